"""The contract of a guard: it looks at a graded rollout and tells where a reward was had by a trick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from learnloop.task import Task
from learnloop.trace import Score, Trace

Severity = Literal["block", "flag"]
"""block: the reward is replaced by that of a hack. flag: it is recorded, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """What a guard found: its id, how bad it is, what it means, and the words that show it."""

    guard: str
    severity: Severity
    words: str
    evidence: str


class Guard(Protocol):
    """Looks at one graded rollout; it decides by what is there, and never asks a model."""

    @property
    def id(self) -> str:
        """Return its name."""
        ...

    @property
    def severity(self) -> Severity:
        """Return how bad a hit is."""
        ...

    def look(self, task: Task, trace: Trace, score: Score) -> Hit | None:
        """Return what it found; None for an honest rollout."""
        ...
