"""The rerun: what the original would have reached for the candidate's budget, by being tried more often.

A gain that a second try buys is no gain of the candidate. Best of k needs somebody who always picks the
right one of k answers, so it is the most that reruns could reach. A vote (self-consistency, arXiv
2203.11171) needs nobody: the commonest of k answers counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from learnloop import stats
from learnloop.stats import Estimate
from learnloop.summary.row import Row
from learnloop.summary.table import Floats, Table

LEAST_K = 2
"""A candidate that costs no more than one run of the original is still held against two of them."""
LEAST_VOTES = 3
"""Of two answers neither is the commoner one."""


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
    if not cost:
        return None
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


@dataclass(frozen=True, kw_only=True)
class Majority:
    """The commonest answer of k tries of the original, beside the candidate tried once.

    Attributes:
        k: how many answers vote: what the candidate costs, in tokens, at least three.
        cost: tokens of a rollout of the candidate for one token of the original.
        reached: share of right votes; attempts vote in blocks of k, in the order they were made.
        beyond: by how much the candidate is above that, paired over units; plus-two t interval.
        tasks: tasks with k graded attempts of the original and one of the candidate.
    """

    k: int
    cost: float
    reached: Estimate
    beyond: Estimate
    tasks: int

    @property
    def words(self) -> str:
        """Return in a sentence whether voting would do as well."""
        price = f"for {self.k / self.cost:.1f} times the candidate's tokens"
        rival = (
            f"a vote of {self.k} runs of the original, by equal last lines and {price}, reaches "
            f"{100 * self.reached.value:.1f} %"
        )
        gap = f"the candidate is {100 * self.beyond.value:+.1f} points from it"
        if self.beyond.low is None or self.beyond.high is None:
            return f"{rival}; {gap}"
        return f"{rival}; {gap} ({100 * self.beyond.low:+.1f} to {100 * self.beyond.high:+.1f})"


def majority(before: Table, after: Table) -> Majority | None:
    """Return what a vote of the original's answers reaches beside the candidate.

    Args:
        before: graded rows of the original on the tasks that both have.
        after: those of the candidate.

    None where no task has enough attempts of the original, or texts of answers were not kept.
    """
    if not len(before) or not len(after) or not before["tokens"].sum():
        return None
    cost = float(after["tokens"].mean() / before["tokens"].mean())
    if not cost:
        return None
    k = max(LEAST_VOTES, round(cost))
    tried = before.where((before.rows_of_task >= k)[before.task])
    if not len(tried) or any(row.answer is None for row in tried.rows):
        return None
    by_task = defaultdict[int, list[Row]](list)
    for number, row in zip(tried.task.tolist(), tried.rows, strict=True):
        by_task[number].append(row)
    right = np.asarray([_votes(by_task[n], k) for n in range(tried.task_count)])
    ours = after.on_tasks_of(tried)
    gain = ours.task_means(ours["solved"]) - right
    beyond = stats.plus_two_t(tried.unit_means_of_tasks(gain).tolist())
    reached = stats.clustered_share(tried.unit_means_of_tasks(right).tolist(), tried.task_count)
    assert beyond is not None, "there are tasks"
    assert reached is not None, "there are tasks"
    return Majority(k=k, cost=cost, reached=reached, beyond=beyond, tasks=tried.task_count)


def _votes(rows: Sequence[Row], k: int) -> float:
    """Return the share of blocks of k answers the commonest of which is right; the first wins ties."""
    blocks = [rows[i : i + k] for i in range(0, len(rows) - k + 1, k)]
    won = 0
    for block in blocks:
        [(answer, _)] = Counter(row.answer for row in block).most_common(1)
        won += next(row.solved for row in block if row.answer == answer)
    return won / len(blocks)
