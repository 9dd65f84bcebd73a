"""The summary of one arm: what one candidate did on a set of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from learnloop import stats
from learnloop.stats import Estimate, UnitSums
from learnloop.summary.row import (
    COSTS,
    CostName,
    Row,
    by_task,
    by_unit,
    mean,
    rows_of,
    tool_shares,
    unit_means,
)
from learnloop.task import Task
from learnloop.trace import Trace


@dataclass(frozen=True, kw_only=True)
class CostSummary:
    """One cost (calls, rounds, tokens or seconds) over the graded rollouts of an arm.

    Attributes:
        mean: mean a rollout; t interval over units, on logs.
        p50: median over rollouts.
        correct_mean: mean among correct rollouts; None when there are none.
        correct_p50: median among correct rollouts.
        per_solved: total cost of all graded rollouts for each correct one.
    """

    mean: Estimate
    p50: float
    correct_mean: Estimate | None
    correct_p50: float | None
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
        costs: by name: calls, rounds, tokens, latency_s; empty when nothing was graded.
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
    traces: Sequence[Trace], tasks: Mapping[str, Task], *, attempts: int = 0
) -> ArmSummary:
    """Return the summary of one arm, with a slice for each kind of task.

    Args:
        traces: rollouts of one candidate, in any order.
        tasks: the tasks by id, for their groups and kinds.
        attempts: rollouts planned for every task of `tasks`; 0 takes what has a trace as planned.
    """
    return summarize_rows(rows_of(traces, tasks, attempts=attempts))


def summarize_rows(rows: Sequence[Row]) -> ArmSummary:
    """Return the summary of rows of one arm (see `summarize`)."""
    kinds = sorted({row.kind for row in rows})
    if len(kinds) < 2:
        return _summary(rows, {})
    slices = {kind: _summary([row for row in rows if row.kind == kind], {}) for kind in kinds}
    return _summary(rows, slices)


def _summary(rows: Sequence[Row], kinds: Mapping[str, ArmSummary]) -> ArmSummary:
    graded = [row for row in rows if not row.lost]
    per_task = Counter(row.task_id for row in rows)
    k = max(Counter(row.task_id for row in graded).values(), default=0)
    return ArmSummary(
        tasks=len(per_task),
        units=len(by_unit(rows)),
        attempts=max(per_task.values(), default=0),
        planned=len(rows),
        graded=len(graded),
        agent_faults=sum(row.agent_fault for row in graded),
        lost=dict(sorted(Counter(row.lost for row in rows if row.lost).items())),
        score=_share(graded, lambda row: row.score),
        correct=_share(graded, lambda row: row.correct),
        score_planned=_share(rows, lambda row: row.score),
        correct_planned=_share(rows, lambda row: row.correct),
        k=k,
        pass_at_1=_share(graded, lambda row: float(row.solved)),
        pass_at_k=_of_k(graded, k, stats.pass_at_k),
        pass_hat_k=_of_k(graded, k, stats.pass_hat_k),
        costs={name: _cost(graded, name) for name in COSTS} if graded else {},
        calls_per_tool=calls_per_tool(graded),
        tool_shares=tool_shares(graded),
        calls_not_run=sum(row.calls_not_run for row in graded),
        bad_calls=_share(graded, lambda row: float(row.bad_call)),
        valid=_share(graded, lambda row: row.valid),
        correct_given_valid=_share([r for r in graded if r.valid > 0], lambda row: row.correct),
        kinds=kinds,
    )


def _share(rows: Sequence[Row], pick: Callable[[Row], float]) -> Estimate | None:
    return stats.clustered_share(unit_means(rows, pick), len(rows))


def _of_k(
    rows: Sequence[Row], k: int, formula: Callable[[int, int, int], float]
) -> Estimate | None:
    """Apply pass@k or pass^k to tasks with at least k graded attempts, others are left out."""
    if k < 2:
        return None
    full = [task for task in by_task(rows).values() if len(task) >= k]
    value = {t[0].task_id: formula(len(t), sum(r.solved for r in t), k) for t in full}
    return _share([t[0] for t in full], lambda row: value[row.task_id])


def _cost(rows: Sequence[Row], name: CostName) -> CostSummary:
    center = stats.cost_mean(unit_means(rows, lambda row: row.costs[name]))
    assert center is not None, "called with graded rows only"
    solved = [row.costs[name] for row in rows if row.solved]
    units = by_unit(rows).values()
    counts = [float(sum(r.solved for r in unit)) for unit in units]

    def cost_of(some: Iterable[Row]) -> float:
        return sum(row.costs[name] for row in some)

    return CostSummary(
        mean=center,
        p50=stats.quantile([row.costs[name] for row in rows], 0.5),
        correct_mean=stats.ratio_of_sums(
            UnitSums(top=[cost_of(r for r in u if r.solved) for u in units], bottom=counts)
        ),
        correct_p50=stats.quantile(solved, 0.5) if solved else None,
        per_solved=stats.ratio_of_sums(UnitSums(top=[cost_of(u) for u in units], bottom=counts)),
    )


def calls_per_tool(rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean number of calls a rollout makes to each tool that was called at all."""
    tools = sorted({tool for row in rows for tool in row.tools})
    return {tool: mean([float(row.tools.get(tool, 0)) for row in rows]) for tool in tools}
