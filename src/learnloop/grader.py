"""The contract of a grader: trace and task to score."""

from __future__ import annotations

from typing import Protocol

from learnloop.task import Task
from learnloop.trace import Score, Trace


class Grader(Protocol):
    """Grades one rollout; raises GraderError when no score can be had, never for the agent's faults."""

    @property
    def version(self) -> str:
        """Return a name that changes whenever the same trace could get another score."""
        ...

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the score; `value` and `correct` are finite and in [0, 1]."""
        ...
