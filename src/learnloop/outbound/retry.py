"""How often a failed request is repeated and how long is waited in between."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Retries with doubling, jittered delays; a server's Retry-After goes first, up to a cap."""

    retries: int = 3
    first_delay_s: float = 0.5
    max_delay_s: float = 8.0
    max_retry_after_s: float = 120.0

    def delay_s(self, attempt: int, retry_after: str | None = None) -> float:
        """Return the wait after failed attempt number `attempt`, counted from 0."""
        asked_s = self.asked_s(retry_after)
        if asked_s is not None:
            return asked_s
        ceiling_s = min(self.max_delay_s, self.first_delay_s * 2**attempt)
        # Jitter keeps rollouts that failed together from coming back together.
        return ceiling_s * random.uniform(0.5, 1.0)

    def asked_s(self, retry_after: str | None) -> float | None:
        """Return how long a server asked to be left alone, up to the cap; None if it did not."""
        asked_s = retry_after_s(retry_after)
        return None if asked_s is None else min(asked_s, self.max_retry_after_s)


def retry_after_s(header: str | None) -> float | None:
    """Return a Retry-After header in seconds (it holds a number or a date), None if unreadable."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
