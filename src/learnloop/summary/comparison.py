"""The comparison of two arms that ran the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from learnloop import stats
from learnloop.stats import Estimate, UnitSums
from learnloop.summary.arm import ArmSummary, summarize_rows
from learnloop.summary.row import COSTS, CostName, Row, by_task, mean, rows_of
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


@dataclass(frozen=True, kw_only=True)
class CostChange:
    """Relative changes of one cost; -0.42 means 42 % less. None where it cannot be said.

    Attributes:
        all_rollouts: paired, every graded rollout.
        both_correct: paired, correct rollouts of tasks that both arms solved at least once.
        among_correct: mean among correct rollouts, whichever tasks they are of.
        per_solved: total cost for each correct rollout.
        p50_correct: median among correct rollouts.

    The first two are t intervals on log differences over units (on the log ratio of means where a
    unit's cost is zero), the next two t intervals on the log ratio by leaving out each unit, the
    median a unit bootstrap.
    """

    all_rollouts: Estimate | None
    both_correct: Estimate | None
    among_correct: Estimate | None
    per_solved: Estimate | None
    p50_correct: Estimate | None


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
        costs: by name: calls, rounds, tokens, latency_s.
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
    kinds: Mapping[str, Comparison] = field(default_factory=dict[str, "Comparison"])


def compare(
    before: Sequence[Trace],
    after: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    attempts: int = 0,
) -> Comparison:
    """Return the comparison of two arms, with a slice for each kind of task.

    Args:
        before: rollouts of the baseline.
        after: rollouts of the candidate.
        tasks: the tasks by id.
        attempts: rollouts planned for every task; 0 takes what has a trace as planned.
    """
    old = rows_of(before, tasks, attempts=attempts)
    new = rows_of(after, tasks, attempts=attempts)
    kinds = sorted({row.kind for row in (*old, *new)})
    whole = _compare(old, new, summarize_rows(old), summarize_rows(new))
    return replace(whole, kinds=_slices(old, new, kinds)) if len(kinds) > 1 else whole


def _slices(old: Sequence[Row], new: Sequence[Row], kinds: Sequence[str]) -> dict[str, Comparison]:
    parts = dict[str, Comparison]()
    for kind in kinds:
        ours = [row for row in old if row.kind == kind]
        theirs = [row for row in new if row.kind == kind]
        parts[kind] = _compare(ours, theirs, summarize_rows(ours), summarize_rows(theirs))
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


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """One task's graded rows in both arms."""

    task_id: str
    unit: str
    before: tuple[Row, ...]
    after: tuple[Row, ...]

    def difference(self, pick: Callable[[Row], float]) -> float:
        return mean([pick(r) for r in self.after]) - mean([pick(r) for r in self.before])


def _compare(
    old: Sequence[Row], new: Sequence[Row], before: ArmSummary, after: ArmSummary
) -> Comparison:
    pairs = _pairs(old, new)
    change = {pair.task_id: pair.difference(lambda row: row.correct) for pair in pairs}
    by_format, by_answers = _gain_split(pairs)
    coverage = min(before.coverage, after.coverage)
    return Comparison(
        before=before,
        after=after,
        tasks=len(pairs),
        units=len({pair.unit for pair in pairs}),
        coverage=coverage,
        refused=_refusal(coverage, len(pairs)),
        score=_contrast(pairs, lambda row: row.score),
        correct=_contrast(pairs, lambda row: row.correct),
        valid=_contrast(pairs, lambda row: row.valid),
        gain_by_format=by_format,
        gain_by_answers=by_answers,
        wins=tuple(task_id for task_id, d in change.items() if d > 0),
        losses=tuple(task_id for task_id, d in change.items() if d < 0),
        costs={name: _cost_change(pairs, name) for name in COSTS},
    )


def _pairs(old: Sequence[Row], new: Sequence[Row]) -> list[_Pair]:
    ours = by_task([row for row in old if not row.lost])
    theirs = by_task([row for row in new if not row.lost])
    return [
        _Pair(
            task_id=task_id,
            unit=rows[0].unit,
            before=tuple(rows),
            after=tuple(theirs[task_id]),
        )
        for task_id, rows in ours.items()
        if task_id in theirs
    ]


def _refusal(coverage: float, tasks: int) -> str:
    if tasks == 0:
        return "no task has a score in both arms"
    if coverage < LEAST_COVERAGE:
        return f"only {coverage:.0%} of the planned rollouts have a score; 95 % are needed"
    return ""


def _per_unit(pairs: Sequence[_Pair]) -> dict[str, list[_Pair]]:
    found = dict[str, list[_Pair]]()
    for pair in pairs:
        found.setdefault(pair.unit, []).append(pair)
    return {unit: found[unit] for unit in sorted(found)}


def _contrast(pairs: Sequence[_Pair], pick: Callable[[Row], float]) -> Contrast | None:
    units = _per_unit(pairs).values()
    differences = [mean([pair.difference(pick) for pair in unit]) for unit in units]
    found = stats.plus_two_t(differences)
    if found is None:
        return None
    return Contrast(
        difference=found, p=stats.sign_flip_p(differences), sd=stats.plus_two_sd(differences)
    )


def _gain_split(pairs: Sequence[_Pair]) -> tuple[float | None, float | None]:
    """Split the gain in `correct` = valid x (correct given valid), halves of the product shared."""
    old, new = _valid_and_right(pairs, "before"), _valid_and_right(pairs, "after")
    if old is None or new is None:
        return None, None
    by_format = (new[0] - old[0]) * (new[1] + old[1]) / 2
    by_answers = (new[1] - old[1]) * (new[0] + old[0]) / 2
    return by_format, by_answers


def _valid_and_right(
    pairs: Sequence[_Pair], arm: Literal["before", "after"]
) -> tuple[float, float] | None:
    """Return the share of readable answers and the share of those that are right.

    Units weigh alike, as in the headline, so that the two parts add up to its difference.
    """
    if not pairs:
        return None

    def share(pick: Callable[[Row], float]) -> float:
        units = _per_unit(pairs).values()
        return mean([mean([mean([pick(r) for r in rows(pair)]) for pair in u]) for u in units])

    def rows(pair: _Pair) -> tuple[Row, ...]:
        return pair.before if arm == "before" else pair.after

    valid, right = share(lambda row: row.valid), share(lambda row: row.correct)
    return valid, right / valid if valid > 0 else 0.0


def _cost_change(pairs: Sequence[_Pair], name: CostName) -> CostChange:
    units = list(_per_unit(pairs).values())
    old = [[row for pair in unit for row in pair.before] for unit in units]
    new = [[row for pair in unit for row in pair.after] for unit in units]
    old_right = [[row for row in unit if row.solved] for unit in old]
    new_right = [[row for row in unit if row.solved] for unit in new]
    return CostChange(
        all_rollouts=_paired_change(pairs, name),
        both_correct=_paired_change(_solved_by_both(pairs), name),
        among_correct=stats.change_of_ratios(
            _sums(old_right, old_right, name), _sums(new_right, new_right, name)
        ),
        per_solved=stats.change_of_ratios(_sums(old, old_right, name), _sums(new, new_right, name)),
        p50_correct=stats.change_of_medians(
            [[row.costs[name] for row in unit] for unit in old_right],
            [[row.costs[name] for row in unit] for unit in new_right],
        ),
    )


def _sums(
    cost_of: Sequence[Sequence[Row]], count_of: Sequence[Sequence[Row]], name: CostName
) -> UnitSums:
    return UnitSums(
        top=[sum(row.costs[name] for row in unit) for unit in cost_of],
        bottom=[float(len(unit)) for unit in count_of],
    )


def _solved_by_both(pairs: Sequence[_Pair]) -> list[_Pair]:
    kept = [
        replace(
            pair,
            before=tuple(row for row in pair.before if row.solved),
            after=tuple(row for row in pair.after if row.solved),
        )
        for pair in pairs
    ]
    return [pair for pair in kept if pair.before and pair.after]


def _paired_change(pairs: Sequence[_Pair], name: CostName) -> Estimate | None:
    units = _per_unit(pairs).values()
    before = [mean([mean([r.costs[name] for r in p.before]) for p in unit]) for unit in units]
    after = [mean([mean([r.costs[name] for r in p.after]) for p in unit]) for unit in units]
    if all(b > 0 and a > 0 for b, a in zip(before, after, strict=True)):
        return stats.log_ratio(list(zip(before, after, strict=True)))
    ones = [1.0] * len(before)
    return stats.change_of_ratios(
        UnitSums(top=before, bottom=ones), UnitSums(top=after, bottom=ones)
    )
