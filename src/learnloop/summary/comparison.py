"""The comparison of two arms that ran the same tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from learnloop import stats
from learnloop.config import PricesConfig
from learnloop.stats import Estimate, UnitSums, UnitValues
from learnloop.summary.arm import ArmSummary, summarize_table
from learnloop.summary.rerun import Majority, Rerun, majority, rerun
from learnloop.summary.row import CostName, rows_of
from learnloop.summary.table import Floats, Names, Table, table_of
from learnloop.task import Task
from learnloop.trace import Trace

LEAST_COVERAGE = 0.95
Measure = Literal["correct", "score"]


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A paired difference (after minus before) with its p value.

    `difference` carries the plus-two t interval over units; `p` is the two-sided sign-flip p over
    units; `p_holm` is corrected over the kinds and None outside slices; `sd` is the deviation of
    unit differences, the two pseudo-units of the interval included.
    """

    difference: Estimate
    p: float
    sd: float
    p_holm: float | None = None

    @property
    def decisive(self) -> bool:
        """Return whether interval and p value both say that the difference is not zero."""
        p = self.p if self.p_holm is None else self.p_holm
        return p < 0.05 and (self.difference.above_zero or self.difference.below_zero)

    def detectable(self, units: int) -> float:
        """Return the difference that so many units show in 80 % of cases, as a fraction."""
        return (1.96 + 0.84) * self.sd / math.sqrt(units)


@dataclass(frozen=True, kw_only=True)
class CostChange:
    """Relative changes of one cost; -0.42 means 42 % less. None where it cannot be said.

    Attributes:
        all_rollouts: paired, every graded rollout.
        both_correct: paired, correct rollouts of tasks that both arms solved at least once.
        among_correct: mean among correct rollouts, whichever tasks they are of.
        per_solved: total cost for each correct rollout.
        p50_correct: median among correct rollouts, of latency only; `p95_correct` the 95th percentile.

    The first two are t intervals on log differences over units (on the log ratio of means where a
    unit's cost is zero), the next two t intervals on the log ratio by leaving out each unit, the
    quantiles a unit bootstrap.
    """

    all_rollouts: Estimate | None
    both_correct: Estimate | None
    among_correct: Estimate | None
    per_solved: Estimate | None
    p50_correct: Estimate | None = None
    p95_correct: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two arms, paired by task; `before` is the baseline.

    Attributes:
        before: the baseline's own summary; `after` the candidate's.
        tasks: tasks graded in both arms; `units` the groups they fall into.
        coverage: smaller share of planned rollouts that were graded, of the two arms.
        refused: why there is no headline; empty when there is one.
        score: paired difference in score; `correct` before shaping; `valid` in readable answers.
        gain_by_format: part of the difference in correct that more readable answers explain.
        gain_by_answers: the part that better answers among readable ones explain.
        wins: tasks that got better in `correct`; `losses` those that got worse.
        costs: by name: calls, rounds, tokens, latency_s, and usd where there are prices.
        rerun: the original tried again for the candidate's budget; None when it was tried too rarely.
        majority: the original's commonest answer of several; None in slices, and as `rerun`.
        kinds: the same comparison for each kind, p values Holm-corrected; empty in slices.
    """

    before: ArmSummary
    after: ArmSummary
    tasks: int
    units: int
    coverage: float
    refused: str
    score: Contrast | None
    correct: Contrast | None
    valid: Contrast | None
    gain_by_format: float | None
    gain_by_answers: float | None
    wins: tuple[str, ...]
    losses: tuple[str, ...]
    costs: Mapping[CostName, CostChange]
    rerun: Rerun | None = None
    majority: Majority | None = None
    kinds: Mapping[str, Comparison] = field(default_factory=dict[str, "Comparison"])


def compare(
    before: Sequence[Trace],
    after: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    attempts: int = 0,
    prices: PricesConfig | None = None,
) -> Comparison:
    """Return the comparison of two arms, with a slice for each kind of task.

    Args:
        before: rollouts of the baseline.
        after: rollouts of the candidate.
        tasks: the tasks by id.
        attempts: rollouts planned for every task; 0 takes what has a trace as planned.
        prices: what rollouts cost in money; without prices money is no cost.
    """
    old = rows_of(before, tasks, attempts=attempts, prices=prices)
    new = rows_of(after, tasks, attempts=attempts, prices=prices)
    names = Names.of((*old, *new))
    priced = prices is not None and prices != PricesConfig()
    ours, theirs = (table_of(rows, names, priced=priced) for rows in (old, new))
    kinds = list(names.kinds)
    whole = _compare(ours, theirs)
    whole = replace(whole, majority=majority(*_graded_pair(ours, theirs)))
    return replace(whole, kinds=_slices(ours, theirs, kinds)) if len(kinds) > 1 else whole


def _slices(old: Table, new: Table, kinds: Sequence[str]) -> dict[str, Comparison]:
    parts = {kind: _compare(old.of_kind(kind), new.of_kind(kind)) for kind in kinds}
    score = stats.holm({k: c.score.p for k, c in parts.items() if c.score})
    correct = stats.holm({k: c.correct.p for k, c in parts.items() if c.correct})
    valid = stats.holm({k: c.valid.p for k, c in parts.items() if c.valid})
    return {
        kind: replace(
            part,
            score=part.score and replace(part.score, p_holm=score[kind]),
            correct=part.correct and replace(part.correct, p_holm=correct[kind]),
            valid=part.valid and replace(part.valid, p_holm=valid[kind]),
        )
        for kind, part in parts.items()
    }


def _compare(old: Table, new: Table) -> Comparison:
    before, after = summarize_table(old), summarize_table(new)
    pair = _graded_pair(old, new)
    gain = pair.before.gain_of_tasks(pair.after, "correct")
    ids = pair.before.task_ids
    by_format, by_answers = _gain_split(pair)
    coverage = min(before.coverage, after.coverage)
    return Comparison(
        before=before,
        after=after,
        tasks=pair.before.task_count,
        units=pair.before.unit_count,
        coverage=coverage,
        refused=_refusal(coverage, pair.before.task_count),
        score=_contrast(pair, "score"),
        correct=_contrast(pair, "correct"),
        valid=_contrast(pair, "valid"),
        gain_by_format=by_format,
        gain_by_answers=by_answers,
        wins=tuple(ids[i] for i in np.flatnonzero(gain > 0).tolist()),
        losses=tuple(ids[i] for i in np.flatnonzero(gain < 0).tolist()),
        costs={name: _cost_change(pair, name) for name in pair.before.costs},
        rerun=rerun(*pair),
    )


class _Pair(NamedTuple):
    """Both arms' graded rows on the tasks that both have; their tasks and units are numbered alike."""

    before: Table
    after: Table


def _graded_pair(before: Table, after: Table) -> _Pair:
    return _paired(before.where(before["lost"] == 0), after.where(after["lost"] == 0))


def _paired(before: Table, after: Table) -> _Pair:
    return _Pair(before.on_tasks_of(after), after.on_tasks_of(before))


def _refusal(coverage: float, tasks: int) -> str:
    if tasks == 0:
        return "no task has a score in both arms"
    if coverage < LEAST_COVERAGE:
        return f"only {coverage:.0%} of the planned rollouts have a score; 95 % are needed"
    return ""


def _contrast(pair: _Pair, name: str) -> Contrast | None:
    gain = pair.before.gain_of_tasks(pair.after, name)
    differences: list[float] = pair.before.unit_means_of_tasks(gain).tolist()
    found = stats.plus_two_t(differences)
    if found is None:
        return None
    return Contrast(
        difference=found, p=stats.sign_flip_p(differences), sd=stats.plus_two_sd(differences)
    )


def _gain_split(pair: _Pair) -> tuple[float | None, float | None]:
    """Split the gain in `correct` = valid x (correct given valid), halves of the product shared."""
    if not pair.before.task_count:
        return None, None
    old, new = _valid_and_right(pair.before), _valid_and_right(pair.after)
    by_format = (new[0] - old[0]) * (new[1] + old[1]) / 2
    by_answers = (new[1] - old[1]) * (new[0] + old[0]) / 2
    return by_format, by_answers


def _valid_and_right(arm: Table) -> tuple[float, float]:
    """Return the share of readable answers and the share of those that are right.

    Units weigh alike, as in the headline, so that the two parts add up to its difference.
    """
    valid, right = (float(arm.unit_means(arm[name]).mean()) for name in ("valid", "correct"))
    return valid, right / valid if valid > 0 else 0.0


def _cost_change(pair: _Pair, name: CostName) -> CostChange:
    solved = _paired(*(arm.where(arm["solved"] > 0) for arm in pair))
    right = [_sums(arm, name, among=arm["solved"]) for arm in pair]
    every = [
        UnitSums(top=arm.unit_sums(arm[name]), bottom=sums.bottom)
        for arm, sums in zip(pair, right, strict=True)
    ]
    p50, p95 = _quantile_changes(pair, name) if name == "latency_s" else (None, None)
    return CostChange(
        all_rollouts=_paired_change(pair, name),
        both_correct=_paired_change(solved, name),
        among_correct=stats.change_of_ratios(*right),
        per_solved=stats.change_of_ratios(*every),
        p50_correct=p50,
        p95_correct=p95,
    )


def _quantile_changes(pair: _Pair, name: CostName) -> tuple[Estimate | None, Estimate | None]:
    """Return the changes of median and 95th percentile among correct rollouts."""
    before, after = (UnitValues(values=a[name], units=a.unit).where(a["solved"] > 0) for a in pair)
    units = pair.before.unit_count
    p50, p95 = (stats.change_of_quantiles(before, after, units=units, q=q) for q in (0.5, 0.95))
    return p50, p95


def _sums(arm: Table, name: CostName, *, among: Floats) -> UnitSums:
    """Return each unit's cost and count of the rows that `among` marks with 1."""
    return UnitSums(top=arm.unit_sums(arm[name] * among), bottom=arm.unit_sums(among))


def _paired_change(pair: _Pair, name: CostName) -> Estimate | None:
    before, after = (arm.unit_means(arm[name]) for arm in pair)
    if bool(np.all(before > 0)) and bool(np.all(after > 0)):
        return stats.log_ratio(list(zip(before.tolist(), after.tolist(), strict=True)))
    ones = [1.0] * len(before)
    return stats.change_of_ratios(
        UnitSums(top=before.tolist(), bottom=ones), UnitSums(top=after.tolist(), bottom=ones)
    )
