"""The weaker sandboxes, for machines without user namespaces: landlock, seccomp and limits, or limits only.

Here a job shares the process table and the network stack with the host. Under landlock it can open nothing
but the system and its box, make no socket, trace nobody and (from landlock 6 on) signal nobody outside.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from learnloop.errors import SandboxError
from learnloop.sandbox import Job, Level, Ran
from learnloop.sandboxes import confine
from learnloop.sandboxes.bubblewrap import checked_name
from learnloop.sandboxes.identity import Identities, Identity
from learnloop.sandboxes.process import run_confined
from learnloop.sandboxes.seccomp import seccomp_filter

_MB = 1024 * 1024
_REFUSED = 125
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache")


@dataclass(frozen=True, kw_only=True)
class Landlocked:
    """Runs jobs that confine themselves first; see `confine.py`."""

    level: Level
    python: str = sys.executable
    reads: tuple[str, ...] = ()
    identities: Identities = field(default_factory=Identities)

    async def run(self, job: Job) -> Ran:
        """Run a job to its end; its box is a folder that is removed.

        Raises:
            SandboxError: the confinement did not come up.
        """
        async with self.identities.take() as identity:
            with _box(job, identity) as box:
                word = f"confine-{secrets.token_hex(8)}:"
                settings = self._settings(job, box, word)
                command = [self.python, "-I", "-S", "-c", _source(), settings]
                try:
                    ended = await run_confined([*command, *job.argv], job, identity)
                finally:
                    kill_all_of(identity)
                files = await anyio.to_thread.run_sync(_collected, box, job)
        if ended.exit_code == _REFUSED and ended.stderr.startswith(word.encode()):
            words = ended.stderr.decode("utf-8", "replace").strip().removeprefix(word)[:300]
            raise SandboxError(f"the sandbox did not come up: {words}", kind="start")
        return Ran(
            end=ended.end,
            exit_code=ended.exit_code,
            stdout=ended.stdout,
            stderr=ended.stderr,
            files=files,
            wall_s=ended.wall_s,
            level=self.level,
        )

    def _settings(self, job: Job, box: Path, word: str) -> str:
        limits = job.limits
        rules = seccomp_filter(sockets=False)
        if rules is None and self.level == "landlock":
            raise SandboxError("this processor's system calls are not known", kind="start")
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(box), "LANG": "C.UTF-8"}
        return json.dumps(
            {
                "level": self.level,
                "box": str(box),
                "word": word,
                "reads": [*_SYSTEM, *self.reads],
                "env": {**env, **job.env},
                "rules": (rules or b"").hex(),
                "limits": {
                    "AS": limits.memory_mb * _MB,
                    "CPU": limits.cpu_s,
                    "FSIZE": limits.file_mb * _MB,
                    "NOFILE": limits.open_files,
                    "CORE": 0,
                    # Counted for the whole user: under our own id, our processes count too.
                    **({"NPROC": limits.processes} if os.geteuid() == 0 else {}),
                },
            }
        )


def kill_all_of(identity: Identity) -> None:
    """Kill what left the job's process group; only an id that is the job's alone tells it apart."""
    if identity.uid is None:
        return
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if place.stat().st_uid == identity.uid:
                os.kill(int(place.name), signal.SIGKILL)


def _source() -> str:
    """Return the program as text: a job's user may not be able to read our folder."""
    return Path(confine.__file__).read_text(encoding="utf-8")


@contextmanager
def _box(job: Job, identity: Identity) -> Generator[Path]:
    """Make a job's folder, which belongs to it alone, and remove it afterwards."""
    box = Path(tempfile.mkdtemp(prefix="learnloop-box-"))
    try:
        for name, content in job.files.items():
            path = box / checked_name(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755)
        if identity.uid is not None:
            for path in (box, *box.rglob("*")):
                os.chown(path, identity.uid, identity.uid)
        yield box
    finally:
        shutil.rmtree(box, ignore_errors=True)


def _collected(box: Path, job: Job) -> dict[str, bytes]:
    """Return the files that a job was to leave; links are not followed."""
    found: dict[str, bytes] = {}
    for name in job.collect:
        with suppress(OSError):
            descriptor = _opened(box, checked_name(name))
            with os.fdopen(descriptor, "rb") as file:
                about = os.fstat(descriptor)
                if stat.S_ISREG(about.st_mode) and about.st_size <= job.limits.file_mb * _MB:
                    found[name] = file.read()
    return found


def _opened(box: Path, name: str) -> int:
    """Open a file below a folder without following a link on the way."""
    *folders, last = Path(name).parts
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(box, flags | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(last, flags | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
