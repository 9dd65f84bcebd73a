"""The clock of a rollout: a limit of wall time that stands still while an endpoint is down."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import anyio


class Clock:
    """Cancels the block that it bounds after some seconds, those of pauses not counted."""

    def __init__(self, limit_s: float) -> None:
        self._scope = anyio.CancelScope(deadline=anyio.current_time() + limit_s)
        self._began_s, self._paused_s, self._pauses = time.monotonic(), 0.0, 0

    @property
    def ran_out(self) -> bool:
        """Return whether the limit ended the block."""
        return self._scope.cancelled_caught

    @property
    def spent_s(self) -> float:
        """Return the seconds so far, without finished pauses."""
        return time.monotonic() - self._began_s - self._paused_s

    @contextmanager
    def running(self) -> Generator[None]:
        """Bound the block; whatever waits inside finds the clock with `paused`."""
        token = _CURRENT.set(self)
        try:
            with self._scope:
                yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def pausing(self) -> Generator[None]:
        """Stop the clock for the block."""
        # Parallel calls pause together: the first stops the clock, the last sets it going.
        if not self._pauses:
            self._left_s, self._stopped_s = (
                self._scope.deadline - anyio.current_time(),
                time.monotonic(),
            )
            self._scope.deadline = float("inf")
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._scope.deadline = anyio.current_time() + self._left_s
                self._paused_s += time.monotonic() - self._stopped_s


_CURRENT: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def paused() -> Generator[None]:
    """Stop the clock of the rollout that this code works for, if there is one."""
    clock = _CURRENT.get()
    if clock is None:
        yield
        return
    with clock.pausing():
        yield
