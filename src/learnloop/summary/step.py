"""The record of one training step, as the report draws it over steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from learnloop import stats
from learnloop.summary.row import Row, calls_per_tool, mean, rows_of, tool_counts
from learnloop.task import Task
from learnloop.trace import Trace

LEAST_SPREAD = 1e-6
"""Groups whose rewards differ by less teach nothing and are left out of updates."""


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One training step in numbers; None means "nothing to measure".

    Attributes:
        step: number of the step, from 1.
        planned: rollouts planned; `graded` of them have a score.
        lost: rollouts without a score, by kind of failure; `not_run` ones left no trace.
        reward_mean: mean score of the groups' graded rollouts; `reward_low` and `reward_high` its 95 %
            interval with groups as units.
        correct_mean: mean of `correct`, before any shaping.
        learnable_share: share of groups that teach.
        calls_per_tool: mean calls a rollout by tool; calls_mean, rounds_mean, tokens_mean alike.
        latency_p50_s: median seconds of a rollout.
        valid_share: share of rollouts whose answer the grader could read.
        seconds: where the time went, by phase.
        tokens: token counts by kind, as the policy reports them.
        loss: metrics of the update by name.
    """

    step: int
    planned: int
    graded: int
    lost: Mapping[str, int]
    reward_mean: float | None
    reward_low: float | None
    reward_high: float | None
    correct_mean: float | None
    learnable_share: float | None
    calls_per_tool: Mapping[str, float]
    calls_mean: float | None
    rounds_mean: float | None
    tokens_mean: float | None
    latency_p50_s: float | None
    valid_share: float | None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    loss: Mapping[str, float] = field(default_factory=dict[str, float])


def step_record(
    step: int,
    groups: Sequence[Sequence[Trace]],
    tasks: Mapping[str, Task],
    *,
    planned: int = 0,
) -> StepRecord:
    """Return what the traces of one step say; `seconds`, `tokens` and `loss` come by `replace`.

    Args:
        step: number of the step.
        groups: the rollouts of the step, one inner sequence for each group (one task, several
            attempts); a task may come in several groups.
        tasks: the tasks by id.
        planned: rollouts that were planned; 0 takes the traces as all of them.
    """
    # By group, because attempts count from 0 in each: one call over all would merge two groups.
    by_group = [rows_of(group, tasks) for group in groups]
    every = [row for rows in by_group for row in rows]
    graded = [[row for row in rows if not row.lost] for rows in by_group]
    graded = [rows for rows in graded if rows]
    flat = [row for rows in graded for row in rows]
    reward = stats.clustered_share([mean([r.score for r in rows]) for rows in graded], len(flat))
    return StepRecord(
        step=step,
        planned=max(planned, len(every)),
        graded=len(flat),
        lost=_lost(every, max(0, planned - len(every))),
        reward_mean=reward.value if reward else None,
        reward_low=reward.low if reward else None,
        reward_high=reward.high if reward else None,
        correct_mean=_mean([row.correct for row in flat]),
        learnable_share=learnable_share([[row.score for row in rows] for rows in graded]),
        calls_per_tool=calls_per_tool(tool_counts(flat), len(flat)),
        calls_mean=_mean([row.costs["calls"] for row in flat]),
        rounds_mean=_mean([row.costs["rounds"] for row in flat]),
        tokens_mean=_mean([row.costs["tokens"] for row in flat]),
        latency_p50_s=stats.quantile([r.costs["latency_s"] for r in flat], 0.5) if flat else None,
        valid_share=_mean([row.valid for row in flat]),
    )


def teaches(rewards: Sequence[float]) -> bool:
    """Return whether a group can be learned from: two rollouts at least, with different rewards."""
    return len(rewards) >= 2 and max(rewards) - min(rewards) > LEAST_SPREAD


def learnable_share(groups: Sequence[Sequence[float]]) -> float | None:
    """Return the share of groups that teach."""
    return mean([float(teaches(group)) for group in groups]) if groups else None


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _lost(rows: Sequence[Row], not_run: int) -> dict[str, int]:
    counts = Counter(row.lost for row in rows if row.lost)
    if not_run:
        counts["not_run"] += not_run
    return dict(sorted(counts.items()))
