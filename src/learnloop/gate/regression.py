"""Regressions: did tasks that the incumbent always managed get worse, beyond chance?

A veto on any single task that looks worse stops nearly every candidate, an identical one included:
with forty noisy tasks some always look worse. So only protected tasks count, each by an exact test,
corrected for their number, and what is found must show again on fresh pairs before it vetoes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST_RATE = 0.9
LEAST_TRIES = 5
FALSE_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class Tries:
    """How often a task was tried, and how often it passed."""

    passed: int
    tried: int


@dataclass(frozen=True, kw_only=True)
class Regression:
    """One protected task that got worse; `p` is exact and one-sided, `p_adjusted` for all tasks."""

    task_id: str
    before: Tries
    after: Tries
    p: float
    p_adjusted: float

    @property
    def words(self) -> str:
        """Return it as it is printed."""
        return (
            f"{self.task_id} passed {self.before.passed} of {self.before.tried} before and "
            f"{self.after.passed} of {self.after.tried} after"
        )


def protected(baseline: Mapping[str, Tries]) -> tuple[str, ...]:
    """Return the tasks that the baseline passes nearly always, as far as it was tried enough.

    Their tries here choose them, and so must not be counted again in the test.
    """
    return tuple(
        sorted(
            task_id
            for task_id, seen in baseline.items()
            if seen.tried >= LEAST_TRIES and seen.passed >= LEAST_RATE * seen.tried
        )
    )


def regressions(
    before: Mapping[str, Tries], after: Mapping[str, Tries], tasks: Sequence[str]
) -> tuple[Regression, ...]:
    """Return the protected tasks that got worse, at most one in twenty of them by chance.

    Args:
        before: fresh tries of the incumbent, none of which chose the protected tasks.
        after: fresh tries of the candidate.
        tasks: the protected tasks; those that lack tries in an arm are left out.
    """
    known = [t for t in tasks if before.get(t) and after.get(t)]
    p = {t: worse_p(before[t], after[t]) for t in known}
    adjusted = benjamini_hochberg(p)
    return tuple(
        Regression(task_id=t, before=before[t], after=after[t], p=p[t], p_adjusted=adjusted[t])
        for t in known
        if adjusted[t] <= FALSE_SHARE
    )


def confirmed(
    found: Sequence[Regression], before: Mapping[str, Tries], after: Mapping[str, Tries]
) -> tuple[Regression, ...]:
    """Return the regressions that show again in a rerun of both arms; only these veto."""
    return regressions(before, after, [x.task_id for x in found])


def veto_words(found: Sequence[Regression]) -> str:
    """Return why a candidate is rejected; empty when no regression was confirmed."""
    if not found:
        return ""
    tasks = "1 protected task" if len(found) == 1 else f"{len(found)} protected tasks"
    return f"{tasks} got worse, twice: {'; '.join(x.words for x in found)}"


def worse_p(before: Tries, after: Tries) -> float:
    """Return the chance of so few passes after, if both arms pass alike (Fisher, one-sided)."""
    total, passed = before.tried + after.tried, before.passed + after.passed
    ways = math.comb(total, after.tried)
    fewest = max(0, passed - before.tried)
    return math.fsum(
        math.comb(passed, x) * math.comb(total - passed, after.tried - x) / ways
        for x in range(fewest, after.passed + 1)
    )


def benjamini_hochberg(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p values adjusted so that a cut at q lets through a share q of false ones at most."""
    order = sorted(p_values, key=lambda key: (p_values[key], key))
    ceiling, adjusted = 1.0, dict[str, float]()
    for rank in range(len(order), 0, -1):
        name = order[rank - 1]
        ceiling = min(ceiling, p_values[name] * len(order) / rank)
        adjusted[name] = ceiling
    return adjusted


def tries_needed(tasks: int) -> int:
    """Return how many tries an arm show that one of so many tasks went from always to never."""
    tries = LEAST_TRIES
    while tasks / math.comb(2 * tries, tries) > FALSE_SHARE:
        tries += 1
    return tries
