"""The label of an adoption: whether it may be read as "better on tasks like these"."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import NormalDist

from learnloop.gate.pair import PairResult

FEW_TASKS = 200
"""With fewer confirm tasks, edits that only suit these tasks are adopted too often to be believed."""


def task_level_z(results: Sequence[PairResult], *, margin: float = 0.0) -> float | None:
    """Return the z value of the mean gain with tasks (groups) as units; None if they do not vary.

    Pairs with a lost attempt are left out. With a margin, of the gain above minus the margin.
    """
    totals, counts = defaultdict[str, float](float), defaultdict[str, int](int)
    for result in results:
        if result.is_clean:
            totals[result.unit] += result.clean_difference + margin
            counts[result.unit] += 1
    n, pairs = len(totals), sum(counts.values())
    if n < 2:
        return None
    total = math.fsum(totals.values())
    spread = math.fsum((totals[unit] - counts[unit] * total / pairs) ** 2 for unit in totals)
    if spread <= 1e-12:
        return None
    return total / math.sqrt(n / (n - 1) * spread)


def carries_over(z: float | None, alpha: float) -> bool:
    """Return whether the gain stands out against the differences between tasks."""
    return z is not None and z >= NormalDist().inv_cdf(1 - alpha)


def label_words(*, carries: bool) -> str:
    """Return the label as it is printed."""
    return "carries over to tasks like these" if carries else "shown for these tasks only"
