"""The rerun: what the original would have reached for the candidate's budget, by being tried more often.

A gain that a second try buys is no gain of the candidate. Best of k needs somebody who always picks the
right one of k answers, so it is the most that reruns could reach.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learnloop import stats
from learnloop.stats import Estimate
from learnloop.summary.table import Floats, Table

LEAST_K = 2
"""A candidate that costs no more than one run of the original is still held against two of them."""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The original, tried k times a task, beside the candidate tried once.

    Attributes:
        k: how often the original is tried: what the candidate costs, in tokens, at least two.
        cost: tokens of a rollout of the candidate for one token of the original.
        best: best of k of the original, unbiased over its attempts (pass@k, arXiv 2107.03374).
        beyond: by how much the candidate is above that, paired over units; plus-two t interval.
        tasks: tasks with k graded attempts of the original and one of the candidate.
    """

    k: int
    cost: float
    best: Estimate
    beyond: Estimate
    tasks: int

    @property
    def words(self) -> str:
        """Return in a sentence whether reruns of the original would do as well."""
        price = f"for {self.k / self.cost:.1f} times the candidate's tokens"
        rival = f"best of {self.k} reruns of the original ({100 * self.best.value:.1f} %, {price})"
        if self.beyond.above_zero:
            return f"The gain is beyond what {rival} would reach"
        if self.beyond.below_zero:
            return f"{rival[0].upper()}{rival[1:]} would reach more: the gain may be bought by trying again"
        return f"{rival[0].upper()}{rival[1:]} would do about as well, if somebody picked the right one"


def rerun(before: Table, after: Table) -> Rerun | None:
    """Return what reruns of the original reach beside the candidate.

    Args:
        before: graded rows of the original on the tasks that both have.
        after: those of the candidate.

    None where no task has as many attempts of the original as the candidate's budget pays for.
    """
    if not len(before) or not len(after) or not before["tokens"].sum():
        return None
    cost = float(after["tokens"].mean() / before["tokens"].mean())
    k = max(LEAST_K, round(cost))
    full = (before.rows_of_task >= k)[before.task]
    tried = before.where(full)
    if not len(tried):
        return None
    best = _best_of(tried, k)
    ours = after.on_tasks_of(tried)
    gain = ours.task_means(ours["solved"]) - best
    beyond = stats.plus_two_t(tried.unit_means_of_tasks(gain).tolist())
    reached = stats.clustered_share(tried.unit_means_of_tasks(best).tolist(), tried.task_count)
    assert beyond is not None, "there are tasks"
    assert reached is not None, "there are tasks"
    return Rerun(k=k, cost=cost, best=reached, beyond=beyond, tasks=tried.task_count)


def _best_of(tried: Table, k: int) -> Floats:
    """Return for each task the chance that one of k attempts solves it."""
    solved = np.bincount(tried.task, tried["solved"], tried.task_count)
    pairs = zip(tried.rows_of_task.tolist(), solved.tolist(), strict=True)
    return np.asarray([stats.pass_at_k(n, int(c), k) for n, c in pairs])
