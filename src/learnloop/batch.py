"""A batch: rollouts that belong together, and the order in which those of several are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from learnloop.candidate import Candidate
from learnloop.rollout import Planned
from learnloop.task import Task
from learnloop.trace import Trace

Attempts = Sequence[tuple[Task, int]]
"""What is to be tried: tasks, each with the number of the attempt."""
Key = tuple[str, int]
"""A task's id and the number of the attempt."""
Found = dict[Key, Trace]
"""The rollouts of a batch that are there already."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rollouts that belong together: what is tried, on which weights, and where it is filed.

    `stage`, `step` and candidate name the place in the store, so two batches of one candidate on
    the same tasks (an A/A comparison) need stages of their own. What is trained on is stored in full
    until the update is saved, whatever the project keeps.
    """

    stage: str
    step: int
    weights: str
    candidate: Candidate
    temperature: float
    plan: tuple[Planned, ...]
    is_trained_on: bool = False

    @property
    def place(self) -> tuple[str, int, str]:
        """Return where its rollouts are filed."""
        return self.stage, self.step, self.candidate.id


@dataclass(frozen=True, kw_only=True)
class Job:
    """One rollout to make, and the batch it belongs to."""

    batch: Batch
    planned: Planned
    found: Found


def attempts_on(tasks: Iterable[Task], times: int = 1) -> list[tuple[Task, int]]:
    """Return so many attempts on each task; a task that comes twice goes on counting."""
    seen = Counter[str]()
    out: list[tuple[Task, int]] = []
    for task in tasks:
        out += [(task, seen[task.id] + i) for i in range(times)]
        seen[task.id] += times
    return out


def key_of(planned: Planned) -> Key:
    """Return where a rollout is found among those of its batch: its task and attempt."""
    return planned.task.id, planned.attempt


def interleaved(batches: Sequence[Batch], found: Sequence[Found]) -> Iterator[Job]:
    """Yield jobs of all batches in turn; which batch goes first in a round is drawn by its seed.

    So a slow drift of the world hits both arms of a comparison.
    """
    for row in zip_longest(*(batch.plan for batch in batches)):
        jobs = [
            Job(batch=batch, planned=planned, found=known)
            for batch, planned, known in zip(batches, row, found, strict=True)
            if planned is not None
        ]
        yield from jobs if jobs[0].planned.seed % 2 == 0 else reversed(jobs)
