"""A pair: both arms on one task, started together; planned first, then with its results."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class PlannedPair:
    """One pair to run: both arms on `task_id`; `attempt` counts passes from 0."""

    index: int
    task_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """The scores of both arms on one task, in [0, 1]; None means that the attempt was lost.

    `group` is the task's group (tasks of one group are one unit); empty takes the task itself.
    The costs are only needed where a saving is tested; they must be above zero.
    """

    task_id: str
    incumbent: float | None
    candidate: float | None
    group: str = ""
    incumbent_cost: float | None = None
    candidate_cost: float | None = None

    @property
    def is_clean(self) -> bool:
        """Return whether neither arm lost its attempt."""
        return self.incumbent is not None and self.candidate is not None

    @property
    def unit(self) -> str:
        """Return what is independent of other pairs: the group, or the task where it has none."""
        return self.group or self.task_id

    @property
    def clean_difference(self) -> float:
        """Return candidate minus incumbent; 0 when an attempt was lost."""
        if self.incumbent is None or self.candidate is None:
            return 0.0
        return self.candidate - self.incumbent

    @property
    def difference_with_faults(self) -> float:
        """Return candidate minus incumbent, with lost attempts as failures."""
        return (self.candidate or 0.0) - (self.incumbent or 0.0)


def plan_pairs(
    task_ids: Sequence[str], n_pairs: int, seed: int, *, first_attempt: int = 0
) -> tuple[PlannedPair, ...]:
    """Return pairs in balanced passes: every task once in random order, then all again.

    Balanced passes leave less noise than drawing tasks with replacement.

    Args:
        task_ids: the confirm tasks, each once.
        n_pairs: how many pairs the test may need.
        seed: fixes the order.
        first_attempt: number of the first pass; a later candidate of a run begins behind the
            passes of those before it, so that no result of the incumbent is used twice.
    """
    if not task_ids or len(set(task_ids)) != len(task_ids):
        raise ConfigError("the gate needs at least one confirm task, each named once")
    rng, order = random.Random(seed), list[tuple[str, int]]()
    for attempt in range(passes_of(len(task_ids), n_pairs)):
        one_pass = sorted(task_ids)
        rng.shuffle(one_pass)
        order += [(task_id, first_attempt + attempt) for task_id in one_pass]
    return tuple(
        PlannedPair(index=i, task_id=task_id, attempt=a)
        for i, (task_id, a) in enumerate(order[:n_pairs])
    )


def passes_of(tasks: int, n_pairs: int) -> int:
    """Return how many passes over so many tasks hold `n_pairs` pairs."""
    return math.ceil(n_pairs / tasks)
