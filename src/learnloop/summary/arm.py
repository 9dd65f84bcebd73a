"""The summary of one arm: what one candidate did on a set of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from learnloop import stats
from learnloop.config import PricesConfig
from learnloop.stats import Estimate, UnitSums
from learnloop.summary.row import (
    CostName,
    calls_per_tool,
    rows_of,
    shares,
    tool_counts,
)
from learnloop.summary.table import Table, table_of
from learnloop.task import Task
from learnloop.trace import Trace


@dataclass(frozen=True, kw_only=True)
class CostSummary:
    """One cost (calls, rounds, tokens, seconds or money) over the graded rollouts of an arm.

    Attributes:
        mean: mean a rollout; t interval over units, on logs.
        p50: median over rollouts.
        correct_mean: mean among correct rollouts; None when there are none.
        correct_p50: median among correct rollouts; `correct_p95` the 95th percentile.
        per_solved: total cost of all graded rollouts for each correct one.
    """

    mean: Estimate
    p50: float
    correct_mean: Estimate | None
    correct_p50: float | None
    correct_p95: float | None
    per_solved: Estimate | None


@dataclass(frozen=True, kw_only=True)
class ArmSummary:
    """What one candidate did; rates are fractions, None means "nothing to measure".

    Attributes:
        tasks: tasks with at least one planned rollout.
        units: groups they fall into; intervals take these as independent.
        attempts: most planned rollouts of one task.
        planned: rollouts planned; `graded` of them have a score.
        agent_faults: graded rollouts in which the agent broke a rule.
        lost: rollouts without a score, by kind of failure.
        score: mean score of graded rollouts; correct: the same before any shaping.
        score_planned: mean over all planned, lost ones as failures; correct_planned likewise.
        pass_at_1: share of fully correct rollouts; `pass_at_k` any of k, `pass_hat_k` all of k
            attempts, both None unless there were several attempts; `k` says how many.
        costs: by name: calls, rounds, tokens, latency_s, and usd where there are prices; empty when
            nothing was graded.
        calls_per_tool: mean calls a rollout by tool.
        tool_shares: share of all calls by tool.
        calls_not_run: calls of graded rollouts that were refused or malformed; no other count has
            them.
        bad_calls: share of rollouts with a malformed call or an unknown tool.
        valid: share of rollouts whose answer the grader could read.
        correct_given_valid: mean correct among those.
        kinds: the same summary for each kind of task; empty in slices and with one kind only.
    """

    tasks: int
    units: int
    attempts: int
    planned: int
    graded: int
    agent_faults: int
    lost: Mapping[str, int]
    score: Estimate | None
    correct: Estimate | None
    score_planned: Estimate | None
    correct_planned: Estimate | None
    k: int
    pass_at_1: Estimate | None
    pass_at_k: Estimate | None
    pass_hat_k: Estimate | None
    costs: Mapping[CostName, CostSummary]
    calls_per_tool: Mapping[str, float]
    tool_shares: Mapping[str, float]
    calls_not_run: int
    bad_calls: Estimate | None
    valid: Estimate | None
    correct_given_valid: Estimate | None
    kinds: Mapping[str, ArmSummary] = field(default_factory=dict[str, "ArmSummary"])

    @property
    def coverage(self) -> float:
        """Return the share of planned rollouts that have a score; 1 when none was planned."""
        return self.graded / self.planned if self.planned else 1.0


def summarize(
    traces: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    attempts: int = 0,
    prices: PricesConfig | None = None,
) -> ArmSummary:
    """Return the summary of one arm, with a slice for each kind of task.

    Args:
        traces: rollouts of one candidate, in any order.
        tasks: the tasks by id, for their groups and kinds.
        attempts: rollouts planned for every task of `tasks`; 0 takes what has a trace as planned.
        prices: what rollouts cost in money; without prices money is no cost.
    """
    return summarize_table(table_of(rows_of(traces, tasks, attempts=attempts, prices=prices)))


def summarize_table(table: Table) -> ArmSummary:
    """Return the summary of rows of one arm (see `summarize`)."""
    kinds = table.kinds
    if len(kinds) < 2:
        return _summary(table, {})
    return _summary(table, {kind: _summary(table.of_kind(kind), {}) for kind in kinds})


def _summary(table: Table, kinds: Mapping[str, ArmSummary]) -> ArmSummary:
    graded = table.where(table["lost"] == 0)
    rows = graded.rows
    calls = tool_counts(rows)
    k = int(graded.rows_of_task.max(initial=0))
    return ArmSummary(
        tasks=table.task_count,
        units=table.unit_count,
        attempts=int(table.rows_of_task.max(initial=0)),
        planned=len(table),
        graded=len(graded),
        agent_faults=sum(row.agent_fault for row in rows),
        lost=dict(sorted(Counter(row.lost for row in table.where(table["lost"] > 0).rows).items())),
        score=_share(graded, "score"),
        correct=_share(graded, "correct"),
        score_planned=_share(table, "score"),
        correct_planned=_share(table, "correct"),
        k=k,
        pass_at_1=_share(graded, "solved"),
        pass_at_k=_of_k(graded, k, stats.pass_at_k),
        pass_hat_k=_of_k(graded, k, stats.pass_hat_k),
        costs={name: _cost(graded, name) for name in table.costs} if len(graded) else {},
        calls_per_tool=calls_per_tool(calls, len(rows)),
        tool_shares=shares(calls),
        calls_not_run=sum(row.calls_not_run for row in rows),
        bad_calls=_share(graded, "bad_call"),
        valid=_share(graded, "valid"),
        correct_given_valid=_share(graded.where(graded["valid"] > 0), "correct"),
        kinds=kinds,
    )


def _share(table: Table, name: str) -> Estimate | None:
    return stats.clustered_share(table.unit_means(table[name]).tolist(), len(table))


def _of_k(table: Table, k: int, formula: Callable[[int, int, int], float]) -> Estimate | None:
    """Apply pass@k or pass^k to tasks with at least k graded attempts, others are left out."""
    if k < 2:
        return None
    full = table.where((table.rows_of_task >= k)[table.task])
    solved = np.bincount(full.task, full["solved"], full.task_count)
    known: dict[tuple[int, int], float] = {}
    values: list[float] = []
    for n, c in zip(full.rows_of_task.tolist(), solved.tolist(), strict=True):
        if (n, int(c)) not in known:
            known[n, int(c)] = formula(n, int(c), k)
        values.append(known[n, int(c)])
    means = full.unit_means_of_tasks(np.asarray(values))
    return stats.clustered_share(means.tolist(), full.task_count)


def _cost(graded: Table, name: CostName) -> CostSummary:
    cost, solved = graded[name], graded["solved"]
    center = stats.cost_mean(graded.unit_means(cost).tolist())
    assert center is not None, "called with graded rows only"
    counts = graded.unit_sums(solved)
    right = cost[solved > 0]
    return CostSummary(
        mean=center,
        p50=float(np.quantile(cost, 0.5)),
        correct_mean=stats.ratio_of_sums(
            UnitSums(top=graded.unit_sums(cost * solved), bottom=counts)
        ),
        correct_p50=float(np.quantile(right, 0.5)) if len(right) else None,
        correct_p95=float(np.quantile(right, 0.95)) if len(right) else None,
        per_solved=stats.ratio_of_sums(UnitSums(top=graded.unit_sums(cost), bottom=counts)),
    )
