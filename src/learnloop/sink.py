"""The contract of a sink: whoever listens to a run's events."""

from __future__ import annotations

from typing import Protocol

from learnloop.event import Event


class Sink(Protocol):
    """Takes events in order; must not raise for what it cannot show."""

    def emit(self, event: Event) -> None:
        """Take one event."""
        ...
