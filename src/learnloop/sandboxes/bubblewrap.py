"""The full sandbox: bubblewrap with namespaces for everything, seccomp, limits, and a private box.

What a job sees: the system read-only, its own /proc and /dev, an empty /tmp, and its box, which is in
memory and of limited size. No network, no other process, no host folder, no environment of ours. It can
make no user namespace of its own, so it never becomes root over any mount.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

import anyio
from anyio.abc import Process

from learnloop.errors import SandboxError
from learnloop.sandbox import Job, Level, Ran
from learnloop.sandboxes.identity import Identities
from learnloop.sandboxes.process import (
    Ended,
    end_confined,
    kill_confined,
    memory_file,
    start_confined,
)
from learnloop.sandboxes.seccomp import seccomp_filter

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
_BOX = "/box"
_MB = 1024 * 1024
# What a job leaves is packed by its own shell, because nothing of the box is left once it is over.
_KEEP = """fd=$1; n=$2; shift 2; files=""
while [ "$n" -gt 0 ]; do files="$files
$1"; shift; n=$((n - 1)); done
"$@"
code=$?
printf '%s' "$files" | tar -C /box --ignore-failed-read -cf - -T - 2>/dev/null >"/proc/self/fd/$fd"
exit $code
"""


@dataclass(frozen=True, kw_only=True)
class Bubblewrap:
    """Runs jobs under bubblewrap.

    Attributes:
        program: path of `bwrap`.
        python: the interpreter that jobs can run.
        reads: folders that jobs may read beside the system.
    """

    program: str
    python: str = "/usr/bin/python3"
    reads: tuple[str, ...] = ()
    identities: Identities = field(default_factory=Identities)

    @property
    def level(self) -> Level:
        """Return how well jobs are confined."""
        return "full"

    async def run(self, job: Job) -> Ran:
        """Run a job to its end and leave nothing of it behind.

        Raises:
            SandboxError: bubblewrap did not come up.
        """
        async with self.started(job) as begun:
            ended = await end_confined(begun.process, job)
            files = await anyio.to_thread.run_sync(_unpacked, begun.kept, job)
            return self.result(begun, ended, files)

    @asynccontextmanager
    async def started(self, job: Job) -> AsyncGenerator[Begun]:
        """Start a job, which waits where it reads what it is given."""
        async with self.identities.take() as identity:
            with ExitStack() as stack:
                names = [checked_name(name) for name in job.files]
                opened = [
                    stack.enter_context(memory_file("in", content))
                    for content in job.files.values()
                ]
                handed = dict(zip(names, [one.fileno() for one in opened], strict=True))
                rules = seccomp_filter(sockets=True)
                guard = stack.enter_context(memory_file("rules", rules)) if rules else None
                kept = stack.enter_context(memory_file("kept", b"")) if job.collect else None
                status = stack.enter_context(memory_file("status", b""))
                walls = self._walls(job, handed, guard.fileno() if guard else None)
                command = [
                    *(self.program, "--json-status-fd", str(status.fileno()), *walls, "--"),
                    *_limited(job),
                    *_kept(job, kept.fileno() if kept else None),
                    *job.argv,
                ]
                passed = [f.fileno() for f in (*opened, guard, kept, status) if f is not None]
                process = await start_confined(command, identity, pass_fds=passed)
                try:
                    yield Begun(process=process, kept=kept, status=status)
                finally:
                    await kill_confined(process)

    def result(self, begun: Begun, ended: Ended, files: Mapping[str, bytes]) -> Ran:
        """Return what came of a job.

        Raises:
            SandboxError: bubblewrap did not come up.
        """
        # Bubblewrap tells the exit code only where the job was started; what the job says is no proof.
        begun.status.seek(0)
        if ended.end == "exited" and b'"exit-code"' not in begun.status.read():
            words = ended.stderr.decode("utf-8", "replace").strip()[:300]
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

    def _walls(self, job: Job, files: Mapping[str, int], guard: int | None) -> list[str]:
        """Return bubblewrap and what it puts around the job."""
        walls = ["--unshare-all", "--unshare-user", "--disable-userns"]
        walls += ["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv"]
        walls += ["--hostname", "box"]
        for place in _SYSTEM:
            walls += _system_folder(place)
        for place in _ETC:
            walls += ["--ro-bind-try", place, place]
        for place in self.reads:
            walls += ["--ro-bind", place, place]
        size = str(job.limits.file_mb * _MB)
        walls += ["--proc", "/proc", "--dev", "/dev"]
        for place in ("/dev/shm", "/tmp", _BOX):
            walls += ["--size", size, "--tmpfs", place]
        for name, descriptor in files.items():
            walls += ["--perms", "0755", "--file", str(descriptor), f"{_BOX}/{name}"]
        # Its own /dev and root are file systems in memory without a limit.
        walls += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", _BOX]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": _BOX, "LANG": "C.UTF-8", **job.env}
        for name, value in env.items():
            walls += ["--setenv", name, value]
        if guard is not None:
            walls += ["--seccomp", str(guard)]
        return walls


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A job that was started: where it leaves files (None: it is to leave none), and how that went."""

    process: Process
    kept: IO[bytes] | None
    status: IO[bytes]


def _system_folder(place: str) -> list[str]:
    """Return how a folder of the system is shown: as it is, or as the link that it is."""
    path = Path(place)
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), place]
    return ["--ro-bind", place, place] if path.is_dir() else []


def _limited(job: Job) -> list[str]:
    """Return the program that sets limits, inside: there processes are counted for the job alone."""
    limits = job.limits
    sizes = {
        "as": limits.memory_mb * _MB,
        "cpu": limits.cpu_s,
        "fsize": limits.file_mb * _MB,
        "nproc": limits.processes,
        "nofile": limits.open_files,
        "core": 0,
    }
    return ["/usr/bin/prlimit", *(f"--{name}={n}:{n}" for name, n in sizes.items()), "--"]


def _kept(job: Job, descriptor: int | None) -> list[str]:
    if descriptor is None:
        return []
    names = [checked_name(name) for name in job.collect]
    return ["/bin/sh", "-c", _KEEP, "keep", str(descriptor), str(len(names)), *names]


def _unpacked(kept: IO[bytes] | None, job: Job) -> dict[str, bytes]:
    """Return the files that a job was to leave; the archive is foreign, and read as such."""
    found: dict[str, bytes] = {}
    if kept is None:
        return found
    kept.seek(0)
    most = job.limits.file_mb * _MB
    try:
        with tarfile.open(fileobj=kept, mode="r:") as archive:
            for member in archive:
                is_wanted = member.name in job.collect and member.isreg()
                if is_wanted and member.size <= most and member.name not in found:
                    content = archive.extractfile(member)
                    found[member.name] = content.read() if content else b""
    except (tarfile.TarError, ValueError, OverflowError, OSError):
        return found
    return found


def checked_name(name: str) -> str:
    """Return the name of a file in the box.

    Raises:
        SandboxError: it leads out of the box, or is none.
    """
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\n" in name or "\0" in name:
        raise SandboxError(f"{name!r} is no file in the box", kind="bad_name", retryable=False)
    return str(path)


def usable_python(reads: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
    """Return an interpreter that a job can run, and the folders that it needs beside the system.

    Ours, where every user may read it; else that of the system.
    """
    base = Path(sys.base_prefix).resolve()
    own = Path(sys.executable).resolve()
    if base.is_relative_to("/usr"):
        return str(own), tuple(reads)
    if os.geteuid() != 0 or all(p.stat().st_mode & 0o005 == 0o005 for p in (base, *base.parents)):
        return str(own), (str(base), *reads)
    return "/usr/bin/python3", tuple(reads)
