"""Measures: rows of the before-and-after table, each with intervals, direction and unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from learnloop.stats import Estimate
from learnloop.summary import ArmSummary, Comparison, Contrast, CostName

Unit = Literal["share", "count", "seconds", "usd"]
ChangeKind = Literal["difference", "relative"]
Better = Literal["higher", "lower"]

METHODS = (
    "Intervals are 95 %, with tasks (or the groups tasks share) as units. Rates: Wilson with the "
    "effective n of unit means; their change: plus-two t on paired unit differences, in points. "
    "Costs, also among correct rollouts and for each solved task: t on logs, leaving out each unit; "
    "their change over all rollouts: t on paired log differences, in percent. Medians and "
    "95th percentiles: bootstrap of units."
)
"""The interval methods in words, printed under every table of measures."""


@dataclass(frozen=True, kw_only=True)
class MeasureRow:
    """One measure in both arms; `beside` is the same in the untrained model before a warm-up.

    `change` is a difference of fractions or a relative change (-0.42 is 42 % less).
    """

    name: str
    label: str
    detail: str
    unit: Unit
    better: Better
    change_kind: ChangeKind
    before: Estimate | None
    after: Estimate | None
    change: Estimate | None
    beside: Estimate | None


@dataclass(frozen=True, kw_only=True)
class _Arms:
    """A comparison and the summary that stands beside it."""

    comparison: Comparison
    beside: ArmSummary | None


def measure_rows(comparison: Comparison, beside: ArmSummary | None) -> tuple[MeasureRow, ...]:
    """Return the rows of the headline table."""
    arms = _Arms(comparison=comparison, beside=beside)
    return (
        _share(arms, "correct", "Accuracy", comparison.correct),
        _share(arms, "correct_planned", "Accuracy, lost rollouts as failures", None),
        _share(arms, "score", "Score, after shaping", comparison.score),
        *_of_k(arms),
        *_costs(arms, "calls", "Tool calls", "count"),
        _mean(arms, "rounds", "Rounds", "count"),
        *_costs(arms, "tokens", "Tokens", "count"),
        _mean(arms, "latency_s", "Latency, mean", "seconds"),
        _quantile(arms, "p50"),
        _quantile(arms, "p95"),
        *(_costs(arms, "usd", "US$", "usd") if "usd" in comparison.costs else ()),
    )


def kind_rows(comparison: Comparison, beside: ArmSummary | None) -> tuple[MeasureRow, ...]:
    """Return the rows of one kind's table."""
    arms = _Arms(comparison=comparison, beside=beside)
    contrast = comparison.correct
    corrected = contrast.p_holm if contrast else None
    detail = "" if corrected is None else f"Holm-corrected p {corrected:.2g}"
    return (
        _share(arms, "correct", "Accuracy", contrast, detail=detail),
        *_costs(arms, "calls", "Tool calls", "count"),
        *_costs(arms, "tokens", "Tokens", "count"),
        _quantile(arms, "p50"),
    )


def format_rows(comparison: Comparison, beside: ArmSummary | None) -> tuple[MeasureRow, ...]:
    """Return the rows that part valid format from right answers."""
    arms = _Arms(comparison=comparison, beside=beside)
    return (
        _share(arms, "valid", "Answers the grader could read", comparison.valid),
        _share(arms, "correct_given_valid", "Correct, given a readable answer", None),
        _share(arms, "bad_calls", "Rollouts with a malformed call", None, better="lower"),
    )


def _share(
    arms: _Arms,
    name: str,
    label: str,
    contrast: Contrast | None,
    *,
    detail: str = "",
    better: Better = "higher",
) -> MeasureRow:
    def of(arm: ArmSummary) -> Estimate | None:
        found: Estimate | None = getattr(arm, name)
        return found

    return MeasureRow(
        name=name,
        label=label,
        detail=detail,
        unit="share",
        better=better,
        change_kind="difference",
        before=of(arms.comparison.before),
        after=of(arms.comparison.after),
        change=contrast.difference if contrast else None,
        beside=of(arms.beside) if arms.beside else None,
    )


def _of_k(arms: _Arms) -> tuple[MeasureRow, ...]:
    k = arms.comparison.after.k
    if k < 2:
        return ()
    return (
        _share(arms, "pass_at_k", f"pass@{k}: any of {k} attempts", None),
        _share(arms, "pass_hat_k", f"pass^{k}: all of {k} attempts", None),
    )


def _costs(arms: _Arms, name: CostName, label: str, unit: Unit) -> tuple[MeasureRow, ...]:
    change = arms.comparison.costs[name]
    rows = [
        _mean(arms, name, f"{label} a rollout", unit),
        _cost(arms, (name, "correct_mean"), f"{label} among correct", unit, change.among_correct),
        _cost(arms, (name, "per_solved"), f"{label} for each solved", unit, change.per_solved),
    ]
    if change.both_correct is not None:
        label = f"{label} among correct, on tasks both solved"
        rows.append(_cost(arms, (name, "both"), label, unit, change.both_correct))
    return tuple(rows)


def _mean(arms: _Arms, name: CostName, label: str, unit: Unit) -> MeasureRow:
    return _cost(arms, (name, "mean"), label, unit, arms.comparison.costs[name].all_rollouts)


def _quantile(arms: _Arms, name: Literal["p50", "p95"]) -> MeasureRow:
    found = arms.comparison.costs["latency_s"]
    change = found.p50_correct if name == "p50" else found.p95_correct
    return _cost(arms, ("latency_s", name), f"Latency {name} among correct", "seconds", change)


def _cost(
    arms: _Arms, what: tuple[CostName, str], label: str, unit: Unit, change: Estimate | None
) -> MeasureRow:
    name, part = what
    return MeasureRow(
        name=f"{name}_{part}",
        label=label,
        detail="",
        unit=unit,
        better="lower",
        change_kind="relative",
        before=_part(arms.comparison.before, name, part),
        after=_part(arms.comparison.after, name, part),
        change=change,
        beside=_part(arms.beside, name, part) if arms.beside else None,
    )


def _part(arm: ArmSummary, name: CostName, part: str) -> Estimate | None:
    found = arm.costs.get(name)
    if found is None:
        return None
    if part in ("p50", "p95"):
        value = found.correct_p50 if part == "p50" else found.correct_p95
        solved = found.correct_mean.n if found.correct_mean else 0
        return None if value is None else Estimate(value=value, low=None, high=None, n=solved)
    parts = {"mean": found.mean, "correct_mean": found.correct_mean, "per_solved": found.per_solved}
    return parts.get(part)
