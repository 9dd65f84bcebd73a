"""A project: a folder with a `learnloop.toml`, and the parts that the file describes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Self

import anyio

from learnloop.candidate import Candidate
from learnloop.codec import Demo, config_hash, load_demos, load_tasks, read_config
from learnloop.config import Config
from learnloop.errors import ConfigError, UserError, writing
from learnloop.grader import Grader
from learnloop.grading import open_grader
from learnloop.message import ToolSchema
from learnloop.models.registry import resolve
from learnloop.outbound import BreakerRules, Outbound, Retry
from learnloop.services import running_services, service_url
from learnloop.store import Store
from learnloop.task import Task
from learnloop.tool import Tool
from learnloop.tools.cassette import recording
from learnloop.tools.episode import EpisodeEnd
from learnloop.tools.opening import open_tools, own_schemas

CONFIG_FILE = "learnloop.toml"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The running parts of a project: its tools by name and its grader.

    `on_end` tells stateful tools that a rollout is over; `outbound` is what they send through.
    """

    tools: Mapping[str, Tool]
    grader: Grader
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    on_end: Callable[[str], Awaitable[None]] | None = None
    outbound: Outbound | None = None


@dataclass(frozen=True, kw_only=True)
class Project:
    """An opened project. `origins` tells for each setting that is no default where it was set.

    `record_tools` is a cassette that every answer of a tool is written to.
    """

    root: Path
    config: Config
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    record_tools: Path | None = None

    @classmethod
    def open(
        cls,
        folder: Path | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        flags: Mapping[str, object] = MappingProxyType({}),
    ) -> Self:
        """Open the project in a folder, or the one found upward from the working folder.

        Args:
            folder: the project's folder; None searches upward.
            environ: the process environment (`LEARNLOOP_SECTION__KEY` overrides the file).
            flags: settings from the command line by dotted key; they override both.

        Raises:
            ConfigError: no project there, or its configuration is wrong.
        """
        root = _find(Path.cwd()) if folder is None else _given(folder)
        loaded = read_config(root / CONFIG_FILE, environ=environ, flags=flags)
        return cls(root=root, config=loaded.config, origins=loaded.origins)

    @classmethod
    def open_all(cls, folder: Path | None = None) -> list[Self]:
        """Open one project as `open` does, or, in a folder of none, those up to two levels below it.

        Raises:
            ConfigError: there is no project, or the configuration of one is wrong.
        """
        here = Path.cwd()
        if folder is None and not any((at / CONFIG_FILE).exists() for at in (here, *here.parents)):
            below = sorted({*here.glob(f"*/{CONFIG_FILE}"), *here.glob(f"*/*/{CONFIG_FILE}")})
            if found := [cls.open(file.parent) for file in below]:
                return found
        return [cls.open(folder)]

    @property
    def state_dir(self) -> Path:
        """Return the folder for database, checkpoints and reports; `prepare_state` makes it."""
        return self.root / self.config.project.state_dir

    @property
    def config_hash(self) -> str:
        """Return the name of this configuration's content."""
        return config_hash(self.config)

    def prepare_state(self) -> Path:
        """Make the state folder, kept out of version control, and return it."""
        ignore = self.state_dir / ".gitignore"
        with writing(ignore):
            self.state_dir.mkdir(parents=True, exist_ok=True)
            if not ignore.exists():
                ignore.write_text("*\n")
        return self.state_dir

    @property
    def database(self) -> Path:
        """Return the file of the project's store."""
        return self.state_dir / "learnloop.db"

    def run_folder(self, run_id: str) -> Path:
        """Return the folder of a run's checkpoints and report."""
        return self.state_dir / "runs" / run_id

    def report_page(self, run_id: str) -> Path:
        """Return the page of a run's report; its other forms are beside it."""
        return self.run_folder(run_id) / "report.html"

    def open_store(self) -> Store:
        """Open the project's store, and make it when it is missing; close it after use.

        Raises:
            ConfigError: the file is no store, or cannot be written.
            UserError: it is of an older version and another process works on the project.
        """
        self.prepare_state()
        return Store.open(self.database, partial(self.lock, "the database must be upgraded, but "))

    @contextmanager
    def lock(self, why: str = "") -> Generator[None]:
        """Hold the project for one writing process; a lock whose owner died is taken over.

        `why` begins the message of a refusal.

        Raises:
            UserError: another process holds it.
        """
        with _locked(self.prepare_state() / "lock", why):
            yield

    @property
    def is_at_work(self) -> bool:
        """Return whether the process that locked the project last is still there.

        Looks only: taking the lock, however shortly, would turn away a run that starts just then.
        """
        try:
            owner = int((self.state_dir / "lock").read_text())
            os.kill(owner, 0)
        except (OSError, ValueError) as error:
            return isinstance(error, PermissionError)
        return True

    def system_prompt(self) -> str:
        """Return the system prompt.

        Raises:
            ConfigError: its file is missing or empty.
        """
        name = self.config.agent.system_prompt
        fix = "Write it, or name another file in `agent.system_prompt`."
        try:
            text = (self.root / name).read_text(encoding="utf-8")
        except OSError as error:
            what = f"the system prompt cannot be read ({error.strerror})"
            raise ConfigError(what, where=name, fix=fix) from None
        except UnicodeDecodeError:
            raise ConfigError("the system prompt is not UTF-8 text", where=name) from None
        if not text.strip():
            raise ConfigError("the system prompt is empty", where=name, fix=fix)
        return text.strip()

    def candidate(self) -> Candidate:
        """Return the agent as the project describes it, before any training."""
        files = {self.config.agent.system_prompt: self.system_prompt()}
        return Candidate(model=self.config.model.ref, files=files)

    def model_folder(self) -> Path:
        """Return the folder of the project's model; relative folders count from the project.

        Raises:
            ConfigError: the model is not there; says how to get it.
        """
        local = self.root / self.config.model.ref
        return resolve(str(local) if local.is_dir() else self.config.model.ref)

    def tasks(self) -> list[Task]:
        """Return the dataset's tasks, the system prompt in front of each.

        Raises:
            ConfigError: a row is wrong; tells file, line and fix.
        """
        path = self.root / self.config.data.path
        prompt, schemas = self.system_prompt(), self.own_schemas()
        return load_tasks(path, self.config, system_prompt=prompt, schemas=schemas)

    def demos(self) -> list[Demo]:
        """Return the warm-up's demonstrations; none when there is no warm-up.

        Raises:
            ConfigError: a row is wrong; tells file, line and fix.
        """
        if not self.config.warmup.path:
            return []
        path = self.root / self.config.warmup.path
        prompt, schemas = self.system_prompt(), self.own_schemas()
        return load_demos(path, self.config, system_prompt=prompt, schemas=schemas)

    async def ensure_data(self) -> list[str]:
        """Make data files that are missing by the project's own commands; return what was made.

        Raises:
            ConfigError: a file is missing and no command makes it, or its command failed; what it
                had half written is taken away.
        """
        data, warmup = self.config.data, self.config.warmup
        wanted = [(data.path, data.make, "data.make")]
        if warmup.path:
            wanted.append((warmup.path, warmup.make, "warmup.make"))
        return [path for path, make, key in wanted if await self._ensure(path, make, key)]

    def own_schemas(self) -> tuple[ToolSchema, ...]:
        """Return the schemas of tools that tell the model of themselves, without starting any.

        Those of MCP servers are as `learn_schemas` last found them.

        Raises:
            ConfigError: a function does not load.
        """
        return own_schemas(self.config, self.root, self.state_dir)

    async def learn_schemas(self) -> None:
        """Ask the MCP servers which tools they have, and keep the answer in the state folder.

        Raises:
            EndpointError: a server does not come up.
        """
        if self.config.mcp and not self.config.tools_replay.cassette:
            async with self.open_parts():
                pass  # opening keeps what the servers say

    @asynccontextmanager
    async def open_parts(self, *, retry: Retry | None = None) -> AsyncGenerator[Parts]:
        """Start the services, connect tools and grader, and stop everything at the end.

        Raises:
            EndpointError: a service does not come up.
        """
        async with (
            running_services(self.config.services, self.root) as addresses,
            self._outbound(retry) as outbound,
            open_tools(self._served(addresses), self.root, self.prepare_state, outbound) as tools,
            open_grader(self.config, self.root, addresses, outbound) as grader,
        ):
            ending = EpisodeEnd(self._served(addresses).tools, outbound, environ=os.environ)
            yield Parts(
                tools=recording(tools, self.record_tools) if self.record_tools else tools,
                grader=grader,
                addresses=addresses,
                on_end=ending.tell,
                outbound=outbound,
            )

    def _outbound(self, retry: Retry | None) -> Outbound:
        """Return the HTTP client as the network's settings want it."""
        network = self.config.network
        # Whoever wants no retries, such as the check, does not want to wait either.
        never = retry is not None and retry.retries == 0
        rules = BreakerRules(
            faults=sys.maxsize if never else network.breaker_faults,
            probe_s=network.breaker_probe_s,
            longest_wait_s=network.breaker_wait_s,
        )
        return Outbound(allow_private=network.allow_private, retry=retry, breaker=rules)

    def _served(self, addresses: Mapping[str, str]) -> Config:
        """Return the configuration with the addresses of services in those of tools."""
        tools = (
            replace(
                tool,
                server_url=service_url(tool.server_url, addresses),
                episode_end_url=service_url(tool.episode_end_url, addresses),
            )
            for tool in self.config.tools
        )
        servers = (replace(m, url=service_url(m.url, addresses)) for m in self.config.mcp)
        return replace(self.config, tools=tuple(tools), mcp=tuple(servers))

    async def _ensure(self, path: str, make: tuple[str, ...], key: str) -> bool:
        """Make one file unless it is there. A marker tells a file that was cut short."""
        target = self.root / path
        marker = self.state_dir / f"making-{key}"
        if target.exists() and not marker.exists():
            return False
        if not make:
            fix = f"Put the file there, or name a command that makes it in `{key}`."
            raise ConfigError("no such file", where=path, fix=fix)
        with _locked(self.prepare_state() / "data.lock"):
            marker.touch()
            target.unlink(missing_ok=True)
            try:
                await _make(make, self.root, key)
                if not target.exists():
                    what = f"`{key}` ended well but did not write {path}"
                    raise ConfigError(what, where=CONFIG_FILE)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                marker.unlink(missing_ok=True)
        return True


def _find(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / CONFIG_FILE).is_file():
            return folder
    raise ConfigError(
        f"no {CONFIG_FILE} here or in any folder above",
        where=str(start),
        fix="`learnloop init DIR` makes a project; `--project DIR` names one.",
    )


def _given(folder: Path) -> Path:
    if not (folder / CONFIG_FILE).is_file():
        what = f"holds no {CONFIG_FILE}" if folder.is_dir() else "is not a folder"
        raise ConfigError(
            what, where=str(folder), fix=f"`learnloop init {folder}` makes a project."
        )
    return folder.resolve()


@contextmanager
def _locked(path: Path, why: str = "") -> Generator[None]:
    """Lock a file. The kernel lets go of it when its owner dies, however that happens."""
    import fcntl

    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise UserError(
                f"{why}another learnloop (process {owner}) is working on this project",
                where=str(path),
                fix="Wait for it or stop it.",
            ) from None
        file.truncate(0)
        with writing(path):
            # Past the file's own buffer, which would try again, and fail again, as it is closed.
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield
        finally:
            file.truncate(0)


async def _make(make: tuple[str, ...], root: Path, key: str) -> None:
    command = [part.replace("{python}", sys.executable) for part in make]
    if shutil.which(command[0]) is None and not (root / command[0]).is_file():
        raise ConfigError(f"`{key}`: program `{command[0]}` not found", where=CONFIG_FILE)
    done = await anyio.run_process(
        command, cwd=root, check=False, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    if done.returncode:
        lines = [x.strip() for x in done.stdout.decode("utf-8", "replace").splitlines()]
        last = next((x for x in reversed(lines) if x), "it wrote nothing")
        what = f"`{key}` ended with code {done.returncode}: {last[:300]}"
        raise ConfigError(what, where=CONFIG_FILE)
