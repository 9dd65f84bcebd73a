"""The contract of a sandbox: it runs foreign code where that can do no harm, and says what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Level = Literal["full", "landlock", "limits"]
"""full: namespaces, seccomp and limits (bubblewrap). landlock: landlock, seccomp and limits, without
namespaces. limits: resource limits only, which is no boundary and must be allowed by the user."""

End = Literal["exited", "wall", "output", "memory"]
"""How a job ended: by itself (also by a signal), or killed for its time, its output or its memory."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a job may use; the whole job is killed beyond `wall_s`, `output_kb` or `memory_mb`.

    Attributes:
        wall_s: seconds from start to end.
        cpu_s: seconds of processor time of each process.
        memory_mb: of all its processes together; of address space for each of them.
        processes: processes and threads at once.
        file_mb: size of one file, and of everything in its box together.
        open_files: open files of each process.
        output_kb: of standard output and error together.
    """

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_mb: int = 1024
    processes: int = 32
    file_mb: int = 64
    open_files: int = 128
    output_kb: int = 256


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is to be run, in a box of its own that is empty but for `files`.

    Attributes:
        argv: program and arguments; the working folder is the box.
        files: content by relative path.
        stdin: what it reads.
        env: variables beside PATH, HOME and LANG; nothing is inherited.
        collect: relative paths of files to bring back, as far as they are there.
        limits: what it may use.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    collect: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What came of a job.

    Attributes:
        end: how it ended.
        exit_code: of the program; 128 + n when signal n ended it; None when it was killed.
        stdout: what it wrote, up to the limit; `stderr` likewise.
        files: those of `collect` that were there.
        wall_s: seconds it took.
        level: how well it was confined.
    """

    end: End
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    files: Mapping[str, bytes]
    wall_s: float
    level: Level

    @property
    def is_well(self) -> bool:
        """Return whether the program ended by itself with code 0."""
        return self.end == "exited" and self.exit_code == 0


class Sandbox(Protocol):
    """Runs jobs; raises SandboxError when a job could not be run, never for what its code did."""

    @property
    def level(self) -> Level:
        """Return how well jobs are confined."""
        ...

    @property
    def python(self) -> str:
        """Return the path of the Python interpreter that jobs can run."""
        ...

    async def run(self, job: Job) -> Ran:
        """Run a job to its end and leave nothing of it behind."""
        ...
