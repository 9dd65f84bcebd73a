"""A confined process from start to end: capped pipes, its clock, its memory, and the kill at the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import ByteReceiveStream, Process

from learnloop.errors import SandboxError
from learnloop.sandbox import End, Job
from learnloop.sandboxes.identity import Identity

_LOOK_S = 0.05
"""How often the memory of all its processes together is looked at."""
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_READ = 65_536


@dataclass(kw_only=True)
class Watched:
    """What is known of a process so far."""

    end: End = "exited"
    left: int = 0
    out: dict[str, bytearray] = field(
        default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()}
    )


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended, and what it wrote; `exit_code` is None when it was killed by us."""

    end: End
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    wall_s: float


async def run_confined(
    command: Sequence[str], job: Job, identity: Identity, *, pass_fds: Sequence[int] = ()
) -> Ended:
    """Run a command that confines itself, and kill everything it started when it ends.

    Raises:
        SandboxError: the program that confines could not be started.
    """
    process = await start_confined(command, identity, pass_fds=pass_fds)
    return await end_confined(process, job)


async def start_confined(
    command: Sequence[str], identity: Identity, *, pass_fds: Sequence[int] = ()
) -> Process:
    """Start a command that confines itself.

    Raises:
        SandboxError: the program that confines could not be started.
    """
    try:
        return await anyio.open_process(
            list(command),
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            start_new_session=True,
            pass_fds=tuple(pass_fds),
            **identity.words,  # pyright: ignore[reportArgumentType]
        )
    except OSError as error:
        raise SandboxError(f"{command[0]} cannot be started: {error}", kind="start") from None


async def kill_confined(process: Process) -> None:
    """Kill a process that is not wanted any more, and everything it started."""
    with anyio.CancelScope(shield=True):
        _kill(process)
        await process.wait()
        await process.aclose()


async def end_confined(process: Process, job: Job) -> Ended:
    """Give a started process its input, and see it to its end under the limits of a job."""
    start_s = time.monotonic()
    watched = Watched(left=job.limits.output_kb * 1024)
    try:
        with anyio.move_on_after(job.limits.wall_s) as clock:
            async with anyio.create_task_group() as group:
                group.start_soon(_feed, process, job.stdin)
                group.start_soon(_watch_memory, process, job.limits.memory_mb, watched)
                async with anyio.create_task_group() as readers:
                    for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
                        assert stream is not None, "pipes were asked for"
                        readers.start_soon(_read, process, stream, name, watched)
                await process.wait()
                group.cancel_scope.cancel()
        if clock.cancelled_caught and watched.end == "exited":
            watched.end = "wall"
    finally:
        await kill_confined(process)
    code = process.returncode
    return Ended(
        end=watched.end,
        exit_code=_shown(code) if watched.end == "exited" else None,
        stdout=bytes(watched.out["stdout"]),
        stderr=bytes(watched.out["stderr"]),
        wall_s=time.monotonic() - start_s,
    )


def _shown(code: int | None) -> int | None:
    return 128 - code if code is not None and code < 0 else code


async def _feed(process: Process, data: bytes) -> None:
    """Write to the process; one that does not read what it is given is no fault."""
    assert process.stdin is not None, "a pipe was asked for"
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if data:
            await process.stdin.send(data)
        await process.stdin.aclose()


async def _read(process: Process, stream: ByteReceiveStream, name: str, watched: Watched) -> None:
    """Read to the end; once both streams together have said too much, everything is killed."""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            some = await stream.receive(_READ)
            watched.out[name] += some[: watched.left]
            watched.left -= len(some)
            if watched.left < 0:
                watched.left = 0
                if watched.end == "exited":
                    watched.end = "output"
                _kill(process)


async def _watch_memory(process: Process, most_mb: int, watched: Watched) -> None:
    """Kill the job when all its processes together hold too much."""
    if sys.platform != "linux":
        return
    while True:
        await anyio.sleep(_LOOK_S)
        if resident_bytes(process.pid) > most_mb * 1024 * 1024:
            watched.end = "memory"
            _kill(process)
            return


def resident_bytes(pid: int) -> int:
    """Return what a process and all below it hold in memory; those that end meanwhile count nothing."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        with suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * _PAGE
        with suppress(OSError, ValueError):
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
    return total


def _kill(process: Process) -> None:
    """Kill the whole process group; in a namespace of its own, everything inside dies with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def memory_file(name: str, content: bytes) -> IO[bytes]:
    """Return an open file in memory that holds content, to be read from its beginning."""
    made = os.fdopen(os.memfd_create(name), "w+b")
    made.write(content)
    made.flush()
    made.seek(0)
    return made
