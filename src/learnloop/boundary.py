"""The one place where any exception of a part outside our process becomes a recorded failure."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from learnloop.errors import (
    BoundaryError,
    GraderError,
    LearnloopError,
    ModelError,
    SandboxError,
    ToolError,
)
from learnloop.trace import Failure

BoundaryName = Literal["tool", "model", "grader", "sandbox", "runner"]

_ERRORS: dict[BoundaryName, type[BoundaryError]] = {
    "tool": ToolError,
    "model": ModelError,
    "grader": GraderError,
    "sandbox": SandboxError,
    "runner": BoundaryError,
}


@contextmanager
def boundary(name: BoundaryName) -> Generator[None]:
    """Turn whatever escapes the block into the BoundaryError of the named boundary.

    Our own errors pass unchanged: a UserError must reach the user, and an inner boundary has
    already named itself. Cancellation passes too.
    """
    try:
        yield
    except LearnloopError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise _ERRORS[name](f"{kind}: {error}", kind=kind) from error


def failure_of(error: BoundaryError) -> Failure:
    """Return the record of a boundary error; an unnamed boundary is the runner's own."""
    named: BoundaryName = "runner"
    for name, kind in _ERRORS.items():
        if kind is not BoundaryError and isinstance(error, kind):
            named = name
    return Failure(boundary=named, kind=error.kind, message=str(error))
