"""The gate: decides whether a candidate replaces the incumbent, from paired 0/1 results.

Both arms are run afresh, pair by pair, in the order of `plan_pairs`. At pair counts fixed
beforehand (the looks) `decide` compares wins with an exact boundary: the chance to adopt a
candidate that is no better on these tasks is at most `alpha`, however often one looks.

    plan = plan_pairs(task_ids, rules.looks[-1], seed)
    results, verdict = [], None
    while verdict is None:
        results += run(plan[len(results) : next_look(len(results), rules)])
        verdict = decide(results, rules)

Results count in planned order, never in the order in which they finish: where failures are slow,
finish order alone adopts a third of the candidates that changed nothing.

What an adoption claims is "better on these tasks". The size of the gain seen here exceeds the
truth and is never reported as the gain; that comes from the sealed test.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Literal

from learnloop.bounds import bounds
from learnloop.errors import ConfigError

GateOutcome = Literal["adopt", "reject", "indecisive", "invalid", "leak", "no_change", "infra"]

LEAST_COVERAGE = 0.9
_LOSS_IMBALANCE_P = 0.05


@dataclass(frozen=True, kw_only=True)
class GateRules:
    """What is fixed before the first pair: the share of error and the pair counts of the looks."""

    alpha: float = 0.0125
    looks: tuple[int, ...] = (80, 160, 240, 320, 400)

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not self.looks or self.looks[0] < 1 or not rising:
            raise ConfigError(
                f"looks must be rising pair counts, not {list(self.looks)}", where="gate.looks"
            )
        if not 0 < self.alpha < 1:
            raise ConfigError(
                f"the error share must lie between 0 and 1, not {self.alpha}", where="gate.alpha"
            )


@dataclass(frozen=True, kw_only=True)
class PlannedPair:
    """One pair to run: both arms on `task_id`; `attempt` counts passes from 0."""

    index: int
    task_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """`correct` of both arms on one task, 0 or 1; None means that the attempt was lost.

    `group` is the task's group (tasks of one group are one unit); empty takes the task itself.
    """

    task_id: str
    incumbent: float | None
    candidate: float | None
    group: str = ""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Wins and losses of the candidate at one look; it crosses with `boundary` wins or more."""

    wins: int
    losses: int
    boundary: int

    @property
    def crossed(self) -> bool:
        """Return whether the candidate has enough wins."""
        return self.wins >= self.boundary


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the gate saw at one look.

    `clean` counts pairs without a lost attempt, `with_faults` all pairs with lost attempts as
    failures; adoption needs both to cross. `error_allowed` is the error that may be spent by now.
    """

    pairs: int
    clean: Tally
    with_faults: Tally
    incumbent_lost: int
    candidate_lost: int
    error_allowed: float
    futile: bool


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The gate's verdict, its reason in words, and the numbers of each look.

    Attributes:
        outcome: what happens to the candidate.
        words: the reason, in one sentence.
        pairs: pairs that were counted.
        looks: the numbers at each look.
        task_z: task-level z of the gain; None where it cannot be had.
        carries_over: whether an adoption may be read as "better on tasks like these".
        label: that reading in words; empty unless adopted.
    """

    outcome: GateOutcome
    words: str
    pairs: int = 0
    looks: tuple[Look, ...] = ()
    task_z: float | None = None
    carries_over: bool = False
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class ErrorPool:
    """The error a run may make, shared by at most `max_candidates` tests."""

    alpha: float = 0.05
    max_candidates: int = 4

    @property
    def share(self) -> float:
        """Return the error share of one test."""
        return self.alpha / self.max_candidates


def plan_pairs(task_ids: Sequence[str], n_pairs: int, seed: int) -> tuple[PlannedPair, ...]:
    """Return pairs in balanced passes: every task once in random order, then all again.

    Balanced passes leave less noise than drawing tasks with replacement.
    """
    if not task_ids or len(set(task_ids)) != len(task_ids):
        raise ConfigError("the gate needs at least one confirm task, each named once")
    rng, order = random.Random(seed), list[tuple[str, int]]()
    for attempt in range(math.ceil(n_pairs / len(task_ids))):
        one_pass = sorted(task_ids)
        rng.shuffle(one_pass)
        order += [(task_id, attempt) for task_id in one_pass]
    return tuple(
        PlannedPair(index=i, task_id=task_id, attempt=a)
        for i, (task_id, a) in enumerate(order[:n_pairs])
    )


def next_look(done: int, rules: GateRules) -> int:
    """Return up to how many pairs to run before the next call of `decide`."""
    return next((n for n in rules.looks if n > done), rules.looks[-1])


def minimum_detectable_effect(alpha: float, discordant_share: float, pairs: int) -> float:
    """Return the difference that the gate adopts in 80 % of cases, as a fraction."""
    z = NormalDist().inv_cdf(1 - alpha)
    return 1.05 * (z + 0.84) * math.sqrt(discordant_share / pairs)


def refuse_early(
    *, same_content: bool, leaks: Sequence[str], confirm_tasks: int
) -> GateResult | None:
    """Return a verdict that needs no pair at all, or None when the pairs must be run.

    Args:
        same_content: whether both candidates have the same content hash.
        leaks: findings that link confirm tasks to tasks the optimiser has read, in words.
        confirm_tasks: how many confirm tasks there are.
    """
    if same_content:
        return GateResult(
            outcome="no_change", words="the candidate has the incumbent's content; nothing to test"
        )
    if leaks:
        more = f" (and {len(leaks) - 1} more)" if len(leaks) > 1 else ""
        return GateResult(outcome="leak", words=f"the confirm tasks leak: {leaks[0]}{more}")
    if confirm_tasks == 0:
        return GateResult(outcome="invalid", words="there are no confirm tasks to test on")
    return None


def decide(results: Sequence[PairResult], rules: GateRules) -> GateResult | None:
    """Return the verdict on the results so far, or None when more pairs are needed.

    Args:
        results: pairs in planned order, from the first on; those beyond the last look reached
            do not count yet.
        rules: what was fixed before the first pair.

    Raises:
        ConfigError: a score is neither 0 nor 1; the exact test does not hold for graded scores.
    """
    _check_scores(results)
    reached = [n for n in rules.looks if n <= len(results)]
    looks = _looks(results, reached, rules)
    for k, look in enumerate(looks):
        verdict = _at_look(results[: look.pairs], look, rules)
        if verdict is not None:
            return replace(verdict, looks=tuple(looks[: k + 1]), pairs=look.pairs)
    return None


def _check_scores(results: Sequence[PairResult]) -> None:
    for result in results:
        for score in (result.incumbent, result.candidate):
            if score not in (None, 0.0, 1.0):
                raise ConfigError(
                    f"the gate compares 0/1 results, and task {result.task_id} scored {score}",
                    fix="Pass `correct` with a threshold, such as 1.0 if score >= 0.5 else 0.0.",
                )


def _looks(results: Sequence[PairResult], reached: Sequence[int], rules: GateRules) -> list[Look]:
    clean = _tallies([_clean_difference(r) for r in results], reached, rules)
    faults = _tallies(
        [int(r.candidate or 0) - int(r.incumbent or 0) for r in results], reached, rules
    )
    return [
        Look(
            pairs=n,
            clean=clean[k],
            with_faults=faults[k],
            incumbent_lost=sum(r.incumbent is None for r in results[:n]),
            candidate_lost=sum(r.candidate is None for r in results[:n]),
            error_allowed=rules.alpha * (n / rules.looks[-1]) ** 2,
            futile=_futile(clean[k], n, rules) or _futile(faults[k], n, rules),
        )
        for k, n in enumerate(reached)
    ]


def _clean_difference(result: PairResult) -> int:
    """Return 1 for a win, -1 for a loss, 0 for a tie or a pair with a lost attempt."""
    if result.incumbent is None or result.candidate is None:
        return 0
    return int(result.candidate) - int(result.incumbent)


def _tallies(differences: Sequence[int], reached: Sequence[int], rules: GateRules) -> list[Tally]:
    wins = [differences[:n].count(1) for n in reached]
    losses = [differences[:n].count(-1) for n in reached]
    share = Fraction(rules.alpha).limit_denominator(1_000_000)
    # Error is spent as alpha (n / n_max)^2: little at the first looks, which keeps power.
    needed = bounds(
        [w + x for w, x in zip(wins, losses, strict=True)],
        [share.numerator * n * n for n in reached],
        share.denominator * rules.looks[-1] ** 2,
    )
    return [
        Tally(wins=w, losses=x, boundary=c) for w, x, c in zip(wins, losses, needed, strict=True)
    ]


def _futile(tally: Tally, pairs: int, rules: GateRules) -> bool:
    """Return whether there is too little sign of a gain to go on.

    The boundary ignores this rule, so that overruling it never breaks the error.
    """
    cap = rules.looks[-1]
    margin = (2.5 * pairs / cap - 1) * math.sqrt(tally.wins + tally.losses)
    return pairs < cap and tally.wins - tally.losses <= margin


def _at_look(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult | None:
    verdict = _unchecked(results, look, rules)
    trouble = _lost_too_many(look) if verdict else ""
    if verdict and verdict.outcome == "adopt" and not trouble:
        trouble = _uneven_loss(look)
    return GateResult(outcome="infra", words=trouble) if trouble else verdict


def _unchecked(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult | None:
    """Return the verdict as if no attempt had been lost."""
    discordant = look.clean.wins + look.clean.losses
    if discordant == 0 and look.pairs == rules.looks[0]:
        words = f"both behave alike in all {look.pairs} pairs"
        return GateResult(outcome="no_change", words=words)
    if look.clean.crossed and look.with_faults.crossed:
        return _adoption(results, look, rules)
    if look.futile:
        words = f"no sign of a gain after {look.pairs} pairs"
        return GateResult(outcome="reject", words=words)
    if look.pairs < rules.looks[-1]:
        return None
    seen = minimum_detectable_effect(rules.alpha, discordant / look.pairs, look.pairs)
    words = (
        f"not decided after {look.pairs} pairs, which show {100 * seen:.1f} points in 80 % of cases"
    )
    return GateResult(outcome="indecisive", words=words)


def _lost_too_many(look: Look) -> str:
    for arm, lost in (("incumbent", look.incumbent_lost), ("candidate", look.candidate_lost)):
        if look.pairs - lost < LEAST_COVERAGE * look.pairs:
            share = 1 - lost / look.pairs
            return f"only {share:.0%} of the {arm}'s attempts have a score; 90 % are needed"
    return ""


def _uneven_loss(look: Look) -> str:
    """Say that the incumbent lost more attempts than chance explains, which fakes a gain."""
    lost, total = look.incumbent_lost, look.incumbent_lost + look.candidate_lost
    tail = sum(math.comb(total, x) for x in range(lost, total + 1)) / 2**total
    if total and tail < _LOSS_IMBALANCE_P:
        return (
            f"the incumbent lost {lost} attempts to faults and the candidate "
            f"{look.candidate_lost}; that alone could make the gain"
        )
    return ""


def _adoption(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult:
    z = task_level_z(results)
    carries = z is not None and z >= NormalDist().inv_cdf(1 - rules.alpha)
    tasks = len({result.task_id for result in results})
    words = f"better than the incumbent on these {tasks} confirm tasks ({look.pairs} pairs)"
    if look.candidate_lost > look.incumbent_lost:
        words += (
            f"; the candidate lost {look.candidate_lost} attempts to faults, "
            f"the incumbent {look.incumbent_lost}"
        )
    return GateResult(
        outcome="adopt",
        words=words,
        task_z=z,
        carries_over=carries,
        label="carries over to tasks like these" if carries else "shown for these tasks only",
    )


def task_level_z(results: Sequence[PairResult]) -> float | None:
    """Return the z value of the mean gain with tasks (groups) as units; None if they do not vary.

    Pairs with a lost attempt are left out.
    """
    totals, counts = defaultdict[str, int](int), defaultdict[str, int](int)
    for result in results:
        if result.incumbent is not None and result.candidate is not None:
            totals[result.group or result.task_id] += _clean_difference(result)
            counts[result.group or result.task_id] += 1
    n, pairs = len(totals), sum(counts.values())
    if n < 2:
        return None
    gain = sum(totals.values()) / pairs
    spread = sum((totals[unit] - counts[unit] * gain) ** 2 for unit in totals)
    if spread <= 1e-12:
        return None
    return sum(totals.values()) / math.sqrt(n / (n - 1) * spread)
