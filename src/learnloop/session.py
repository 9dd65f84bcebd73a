"""A session: one process at work on one run, from the project's lock to the last event.

A run may take several sessions: it is stopped by its budget, by the user or by a fault, and
resumed. What a session holds (lock, store, services, policy process) is let go however it ends.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from learnloop.check import check
from learnloop.codec import config_changes, config_json
from learnloop.config import Config
from learnloop.erasure import Chosen, erase, log_words, remove_stale_reports
from learnloop.errors import (
    ConfigError,
    EndpointError,
    ModelError,
    StoppedEarly,
    UsageError,
    UserError,
)
from learnloop.history import CLOCK, History
from learnloop.models.policy import PolicyProcess
from learnloop.models.registry import INSTALL_LOCAL
from learnloop.project import Project
from learnloop.provenance import (
    MCP_TOOLS,
    describe,
    environment_keys,
    fingerprints,
    given_settings,
    repeating_command,
)
from learnloop.run import Run, go_on, policy_failed
from learnloop.sink import Sink
from learnloop.store import RunRecord, RunStatus, Store, told
from learnloop.task import Task
from learnloop.tools.mcp.snapshot import changes

_FREE_TO_CHANGE = re.compile(
    r"budget\..+|store\..+|project\.name|model\.threads|train\.max_concurrency|grader\.timeout_s"
    r"|tools\[\d+\]\.(rate_limit|secret|episode_end_url)"
    r"|gate\.(target|accept_underpowered)|(tools|mcp)\[\d+\]\.(timeout_s|start_timeout_s|max_concurrency)"
    r"|grader\.(rate_limit|secret)|network\.breaker_\w+|prices\.\w+|services\[\d+\]\.start_timeout_s"
)
"""Settings without influence on results: a resumed run may have other ones."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Session:
    """What one process at work on one run holds; `sinks` hear its events."""

    project: Project
    store: Store
    record: RunRecord
    tasks: Mapping[str, Task]
    sinks: Sequence[Sink] = field(default_factory=tuple[Sink, ...])

    @property
    def history(self) -> History:
        """Return what the run has stored."""
        return History(store=self.store, run_id=self.record.id)


@contextmanager
def project_store(
    project: Project, *, going_on: str = "", tell: Callable[[str], None] = lambda _: None
) -> Generator[Store]:
    """Hold the project's lock and its store; what a killed process left half done is finished.

    Texts older than the project keeps them are erased.

    Args:
        project: the project.
        going_on: the run that will be worked on, and settles its own rollouts.
        tell: is told what the user must know of erasures.
    """
    with project.lock(), Store.open(project.database) as store:
        _settle(store, going_on)
        _tidy(project, store, tell)
        try:
            yield store
        finally:
            if store.is_log_due and not store.empty_log():
                tell(f"{log_words(store)}. The next run or purge of this project tries again.")


def _settle(store: Store, going_on: str) -> None:
    """Record how runs ended whose process was killed: nobody else works on the project now.

    Rollouts under way of a run that can be resumed are left to it: it makes them anew.
    """
    for run in store.runs():
        if run.status == "running":
            store.set_status(run.id, "stopped")
    for run_id in store.under_way():
        run = store.run(run_id)
        is_over = run.command != "train" or run.status == "done"
        if is_over and run_id != going_on:
            clock = {CLOCK: History(store=store, run_id=run_id).spent_s}
            store.take_unfinished(run_id, clock, "abandoned")


def _tidy(project: Project, store: Store, tell: Callable[[str], None]) -> None:
    """Erase what is older than the project keeps it, and finish erasures that were cut short."""
    for path in remove_stale_reports(project, store):
        tell(f"removed {path}: it quoted texts that were erased")
    if days := project.config.store.retention_days:
        chosen = Chosen(older_than=timedelta(days=days))
        gone = erase(project, store, chosen, reason=f"retention of {days} days")
        for path in gone.files:
            tell(f"removed {path}: it quoted texts older than {days} days")
    if store.holds_less_than_said:
        store.empty_log(wait_s=0)


async def checked_tasks(project: Project) -> dict[str, Task]:
    """Make missing data, check the project, and return its tasks by id.

    Raises:
        UserError: what `learnloop check` calls an error, with its exit code.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{', '.join(missing)} not installed", fix=INSTALL_LOCAL)
    (await check(project)).raise_for_errors()
    return {task.id: task for task in project.tasks()}


def begin(
    project: Project,
    store: Store,
    verb: str,
    tasks: Mapping[str, Task],
    words: Sequence[str] = (),
) -> RunRecord:
    """Record a new run: configuration, seed, and where it comes from.

    `words` are those of the command line that are no settings.
    """
    meta: dict[str, object] = dict(describe(project, tasks.values()))
    meta["command"] = repeating_command(project, verb, words)
    meta["settings"] = given_settings(project)
    return store.create_run(project.config, command=verb, seed=project.config.train.seed, meta=meta)


def training_run(store: Store, name: str) -> RunRecord:
    """Return a training run by id or beginning; `latest` and `latest~1` skip other verbs' runs.

    Raises:
        UsageError: there is no such run, or it did not train.
    """
    if name.partition("~")[0] == "latest":
        runs = [run for run in store.runs() if run.command == "train"]
        back = name.partition("~")[2] or "0"
        if not back.isdecimal() or int(back) >= len(runs):
            fix = "See `learnloop runs`." if runs else "`learnloop train` makes one."
            raise UsageError(f"no run {name!r}: there are {len(runs)} training runs", fix=fix)
        return runs[int(back)]
    found = store.run(name)
    if found.command != "train":
        raise UsageError(f"run {found.id} is of `{found.command}` and trained nothing")
    return found


def project_as_begun(
    folder: Path | None, name: str, flags: Mapping[str, object]
) -> tuple[Project, RunRecord]:
    """Open a project with the flags and variables with which one of its runs began.

    Given anew, they count as they are given now.
    """
    project = Project.open(folder, flags=flags)
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        record = training_run(store, name)
    begun: Mapping[str, object] = record.meta.get("settings", {})
    kept = {k: v for k, v in begun.items() if k not in environment_keys(project)}
    return Project.open(folder, flags={**kept, **flags}), record


def refuse_changes(project: Project, record: RunRecord) -> None:
    """Refuse to go on with a run whose settings or inputs have changed since.

    Raises:
        ConfigError: names what changed.
    """
    changed = config_changes(record.config_json, config_json(project.config))
    changed = [key for key in changed if not _FREE_TO_CHANGE.fullmatch(key)]
    changed = [f"`{key}`" for key in changed]
    changed += [
        f"the {name}{_how(name, record, words)}"
        for name, words in fingerprints(project).items()
        if words != record.meta.get(name, words)
    ]
    if changed:
        raise ConfigError(
            f"changed since run {record.id} began: {', '.join(changed)}",
            where="--resume",
            fix="Change it back, or start a new run without --resume.",
        )


def _how(name: str, record: RunRecord, words: str) -> str:
    """Return which tools an MCP server offers now and did not, or the other way round."""
    return f" ({changes(str(record.meta[name]), words)})" if name == MCP_TOOLS else ""


async def conduct(session: Session, work: Callable[[Run], Awaitable[T]]) -> T:
    """Do the work of a run with everything it needs, and record how it ended.

    Raises:
        EndpointError: the policy process, a tool or the grader failed; the run can be resumed.
        StoppedEarly: its budget is spent; the run can be resumed.
    """
    status: RunStatus = "failed"
    steps = session.project.config.train.steps if session.record.command == "train" else 0
    session.store.set_status(session.record.id, "running")
    try:
        async with at_work(session) as run:
            result = await recorded(session, run, work, steps=steps)
        status = "done"
        return result
    except (EndpointError, StoppedEarly, asyncio.CancelledError, KeyboardInterrupt):
        status = "stopped"
        raise
    finally:
        session.store.set_status(session.record.id, status)


async def recorded(
    session: Session, run: Run, work: Callable[[Run], Awaitable[T]], *, steps: int = 0
) -> T:
    """Do the work between the events that tell how the run began and how it ended.

    `steps` are the updates that it makes.
    """
    config = run.config
    resumed = session.history.done("run_started")
    name, seed = config.project.name, config.train.seed
    run.emit("run_started", project=name, steps=steps, seed=seed, resumed=resumed)
    run.tell_repeated()
    try:
        result = await work(run)
    except BaseException as error:
        run.emit("paused", reason=_reason(error, config), **_faults(run))
        raise
    run.emit("run_ended", status="done", **_faults(run))
    return result


def _reason(error: BaseException, config: Config) -> str:
    """Return why a run paused; what may quote a reply is kept as the project keeps texts."""
    words = str(error) or "interrupted"
    ours = isinstance(error, UserError) and not isinstance(error, EndpointError)
    return words if ours or not str(error) else told(words, config.store.content)


def _faults(run: Run) -> dict[str, object]:
    """Return what an event tells of faults of this session; nothing when there were none."""
    return {"faults": run.faults} if run.faults else {}


@asynccontextmanager
async def at_work(session: Session) -> AsyncGenerator[Run]:
    """Start services and policy process, and stop them at the end.

    Raises:
        EndpointError: the policy process ended or failed; tells what it last wrote.
        UserError: it found no room on the disk.
    """
    project, record, budget = session.project, session.record, session.project.config.budget
    try:
        async with project.open_parts() as parts, _policy(project) as policy:
            run = Run(
                id=record.id,
                command=record.command,
                project=project,
                store=session.store,
                agent=project.candidate(),
                tasks=session.tasks,
                parts=parts,
                policy=policy,
                sinks=session.sinks,
                has_warmup=bool(project.demos()),
                spent_before_s=session.history.spent_s,
                spend=session.history.spend(with_tokens=bool(budget.tokens or budget.cost_usd)),
            )
            if parts.outbound is not None:
                parts.outbound.on_outage = run.tell_outage
            yield run
    except ModelError as fault:
        if _is_disk_full(str(fault)):
            what, fix = (
                f"the disk is full ({fault})",
                f"Make room, then {go_on(record.id, record.command)}.",
            )
            raise UserError(what, where=str(project.state_dir), fix=fix) from fault
        raise policy_failed(record.id, record.command, str(fault)) from fault


def _is_disk_full(message: str) -> bool:
    """Say whether a message of the policy process is about a disk without room."""
    # torch does not pass the system's reason on: it finds less of its file written than it wrote.
    torch_says = "inline_container" in message and "unexpected pos" in message
    return torch_says or os.strerror(errno.ENOSPC) in message


@asynccontextmanager
async def _policy(project: Project) -> AsyncGenerator[PolicyProcess]:
    model = project.config.model
    policy = await PolicyProcess.start(
        project.model_folder(),
        dtype=model.dtype,
        device=model.device,
        threads=model.threads,
        max_context=model.max_context,
    )
    try:
        yield policy
    finally:
        await policy.stop()
