"""The traffic to one address: what all routes that lead there share."""

from __future__ import annotations

from collections import Counter

from aiolimiter import AsyncLimiter

from learnloop.outbound.breaker import Breaker

_BURST_S = 0.1
"""Requests of so many seconds may go at once: a timer for each would be slow and no gentler."""


class Traffic:
    """A rate limit and a circuit breaker, shared by tools that one server runs."""

    def __init__(self, breaker: Breaker, faults: Counter[str]) -> None:
        self.breaker, self._faults = breaker, faults
        self._rate = 0.0
        self._limiter: AsyncLimiter | None = None

    def limit(self, per_second: float) -> None:
        """Allow at most so many requests a second; the lowest limit of all routes counts."""
        if not per_second or (self._rate and per_second >= self._rate):
            return
        burst = max(1.0, per_second * _BURST_S)
        self._rate, self._limiter = per_second, AsyncLimiter(burst, burst / per_second)

    def count(self, endpoint: str, kind: str) -> None:
        """Count a fault, the repeated ones too, by endpoint and kind."""
        self._faults[f"{endpoint}/{kind}"] += 1

    async def turn(self) -> None:
        """Wait until the rate limit lets another request go."""
        if self._limiter is not None:
            await self._limiter.acquire()
