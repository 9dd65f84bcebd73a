"""The error tree: every exception that learnloop raises on purpose.

LearnloopError
  UserError            somebody can fix it: what, where, how; carries the exit code
    UsageError         2: the command line itself
    ConfigError        4: configuration, data, missing model or extra
    EndpointError      5: a model, tool or grader endpoint that does not answer
    StoppedEarly       6: a budget ended or an answer is awaited; resumable
    GateNotMet         3: a gate that was asked for said no
    WriteError         1: the system refuses to write a file: a full disk, a folder that is not ours
  BoundaryError        a part outside our process failed; becomes a recorded Failure, never a crash
    ToolError ModelError GraderError SandboxError
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LearnloopError(Exception):
    """Root of every exception that learnloop raises on purpose."""


class UserError(LearnloopError):
    """A mistake that the user can mend; prints as one line.

    Args:
        what: what is wrong.
        where: the place, such as `learnloop.toml:12` or an URL; may be empty.
        fix: what to do about it; may be empty.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(self.line())

    def line(self) -> str:
        """Return the message as one line: `where: what. fix`."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head.rstrip('.')}. {self.fix}" if self.fix else head


class UsageError(UserError):
    """The command line does not parse or contradicts itself."""

    exit_code = 2


class GateNotMet(UserError):
    """A gate, a grader check or a behaviour check that was asked for said no."""

    exit_code = 3


class ConfigError(UserError):
    """Configuration, data, a missing model or a missing extra."""

    exit_code = 4


class EndpointError(UserError):
    """A model, tool or grader endpoint does not answer as it should."""

    exit_code = 5


class StoppedEarly(UserError):
    """A budget ended or an answer from outside is awaited; the run can be resumed."""

    exit_code = 6


class BoundaryError(LearnloopError):
    """A part outside our process failed; the boundary turns it into a Failure.

    `brief` is the message without what it quotes of a reply, for records that cannot be erased.
    """

    def __init__(
        self, message: str, *, kind: str = "error", retryable: bool = True, brief: str = ""
    ) -> None:
        self.kind, self.retryable, self.brief = kind, retryable, brief or message
        super().__init__(message)


class ToolError(BoundaryError):
    """A tool endpoint broke its contract (5xx, reset, time-out, bad reply)."""


class ModelError(BoundaryError):
    """The model or its process failed."""


class GraderError(BoundaryError):
    """The grader could not give a score."""


class SandboxError(BoundaryError):
    """The sandbox could not run the code (not: the code failed)."""


class WriteError(UserError):
    """The system refuses to write a file."""


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Let what the system refuses while a file is written name that file, and not a part of ours.

    Raises:
        WriteError: the disk is full, the folder is not writable, or the like.
    """
    try:
        yield
    except OSError as error:
        fix = "Make room on the disk." if error.errno in _FULL else ""
        what = f"cannot be written: {error.strerror or error}"
        raise WriteError(what, where=str(path), fix=fix) from None
