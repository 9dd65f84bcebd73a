"""The circuit breaker of one endpoint: while it is down, requests wait instead of failing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from learnloop.clock import paused
from learnloop.errors import EndpointError


@dataclass(frozen=True, kw_only=True)
class BreakerRules:
    """When requests stop, how often one is let through to look, and how long that may last.

    `looks` is how many looks of one request may fail before it is taken to be at fault itself.
    """

    faults: int = 20
    looks: int = 6
    probe_s: float = 5.0
    max_probe_s: float = 60.0
    longest_wait_s: float = 600.0


@dataclass(frozen=True, kw_only=True)
class Outage:
    """News of an endpoint: it stopped answering, or answers again after some seconds."""

    endpoint: str
    is_down: bool
    fault: str = ""
    down_s: float = 0.0


Tell = Callable[[Outage], None]


class Breaker:
    """Opens after faults in a row; then lets one request through now and then.

    Closed: everything passes. Open: everything waits. Half-open: one request is under way to see
    how things are; its success closes the breaker, its fault keeps it open for twice as long.

    One request that the endpoint can never answer must not keep the others waiting: whoever has
    failed the fewest looks goes first, and who has failed too many is given up, not the endpoint.
    """

    def __init__(self, name: str, rules: BreakerRules, tell: Tell) -> None:
        self._name, self._rules, self._tell = name, rules, tell
        self._in_a_row, self._last = 0, ""
        self._opened_s: float | None = None
        self._next_probe_s = self._pause_s = 0.0
        # The look that counts, 0 for none; one that hangs is replaced, and its late end is no news.
        self._look, self._looks_made, self._look_s = 0, 0, 0.0
        self._changed = anyio.Event()
        self._waiting: list[int] = []

    @property
    def is_open(self) -> bool:
        """Return whether requests wait."""
        return self._opened_s is not None

    def gives_up(self, looks: int) -> bool:
        """Return whether a request has failed so many looks that it is its own fault."""
        return looks >= self._rules.looks

    async def admit(self, looks: int = 0) -> int:
        """Wait until a request may be made; return the number of its look, 0 when it is none.

        Args:
            looks: how many looks of this request failed before.

        Raises:
            EndpointError: the endpoint was down for too long.
        """
        if not self.is_open:
            return 0
        self._waiting.append(looks)
        try:
            with paused():
                return await self._let_look(looks)
        finally:
            self._waiting.remove(looks)

    async def _let_look(self, looks: int) -> int:
        """Wait for this request's turn to look, or for the breaker to close (0)."""
        while (opened_s := self._opened_s) is not None:
            now_s = time.monotonic()
            self._refuse_after(opened_s + self._rules.longest_wait_s - now_s)
            if now_s >= self._next_look_s and looks <= min(self._waiting):
                self._looks_made += 1
                self._look, self._look_s = self._looks_made, now_s
                return self._look
            await self._news(opened_s, now_s)
        return 0

    @property
    def _next_look_s(self) -> float:
        """Return when somebody may look: not while another looks, unless that one hangs."""
        if self._look:
            return self._look_s + self._rules.max_probe_s
        return self._next_probe_s

    async def _news(self, opened_s: float, now_s: float) -> None:
        """Wait for a change, for the next look, or for the end of patience."""
        give_up_s = opened_s + self._rules.longest_wait_s
        until_s = min(give_up_s, self._next_look_s)
        with anyio.move_on_after(max(0.001, until_s - now_s)):
            await self._changed.wait()

    def _refuse_after(self, left_s: float) -> None:
        if left_s <= 0:
            raise EndpointError(
                f"did not answer as it should for {self._rules.longest_wait_s:g} s; last: {self._last}",
                where=self._name,
                fix="Mend it, then go on.",
            )

    def succeeded(self) -> None:
        """Note a request that was answered: the endpoint works."""
        self._in_a_row = 0
        if self._opened_s is not None:
            down_s = time.monotonic() - self._opened_s
            self._opened_s, self._look = None, 0
            self._wake()
            self._tell(Outage(endpoint=self._name, is_down=False, down_s=round(down_s, 3)))

    def failed(self, fault: str, *, look: int, looks: int = 0, asked_s: float = 0.0) -> None:
        """Note a fault; enough of them in a row open the breaker.

        Args:
            fault: what happened.
            look: what `admit` returned for the request it happened to.
            looks: how many looks of this request have failed, this one among them.
            asked_s: how long the endpoint asked to be left alone; no look comes before that.
        """
        self._in_a_row += 1
        self._last = fault
        if look and self.is_open:
            if look != self._look:
                return
            # Another request's look is news, after one that has said all that it can say.
            longer_s = min(2 * self._pause_s, self._rules.max_probe_s)
            self._pause_s = self._rules.probe_s if self.gives_up(looks) else longer_s
            self.let_go(look)
        elif self._in_a_row >= self._rules.faults:
            self.trip(fault)
        self._next_probe_s = max(self._next_probe_s, time.monotonic() + asked_s)

    def trip(self, fault: str) -> None:
        """Open, if it is not open yet: whoever calls this knows that the endpoint is away."""
        self._last = fault
        if self._opened_s is None:
            self._opened_s = time.monotonic()
            self._pause_s = self._rules.probe_s
            self._next_probe_s = self._opened_s + self._pause_s
            self._tell(Outage(endpoint=self._name, is_down=True, fault=fault))

    def let_go(self, look: int) -> None:
        """End a look without a verdict, such as one that was cancelled."""
        if not look or look != self._look:
            return
        self._look = 0
        self._next_probe_s = time.monotonic() + self._pause_s
        self._wake()

    def _wake(self) -> None:
        event, self._changed = self._changed, anyio.Event()
        event.set()
