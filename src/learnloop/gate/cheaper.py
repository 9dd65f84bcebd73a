"""The test for a saving: is the candidate cheaper, and not worse by more than a margin?

It has its own share of error and two parts that must both cross at the same look, so that its
error is at most the larger of theirs:

- Quality. The gain lies above minus the margin. For 0/1 results by the score test of paired shares
  (Tango, 1998), its variance estimated under the margin; for graded scores by a bet on the mean.
- Cost. The mean log ratio of cost over tasks lies below zero (or below the least saving that
  counts), by Student's t with tasks as units; and the total cost is lower as well, because a mean
  of logs does not see a rare blow-up.

Both parts share boundaries that spend alpha (n / n_max)^2. Tasks that come again make the looks of
the cost part more alike than the boundaries assume, which only lowers its error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from learnloop.errors import ConfigError
from learnloop.gate.label import carries_over, label_words, task_level_z
from learnloop.gate.losses import low_coverage, uneven_loss
from learnloop.gate.pair import PairResult
from learnloop.gate.result import CheaperLook, GateResult
from learnloop.gate.rules import LOOKS, Scores, check_alpha, check_looks, futility_limit
from learnloop.gate.spending import z_boundaries

_FAR = 9.0
"""Where there is no noise at all; beyond any boundary, and still a number."""


@dataclass(frozen=True, kw_only=True)
class CheaperRules:
    """What is fixed before the first pair.

    Attributes:
        alpha: this test's own share of error.
        margin: how much worse the candidate may be, as a fraction of the score range.
        least_saving: the saving that counts, as a fraction; 0 takes any.
        looks: pair counts at which the gate looks.
        scores: what quality is compared by.
    """

    alpha: float = 0.0025
    margin: float = 0.05
    least_saving: float = 0.0
    looks: tuple[int, ...] = LOOKS
    scores: Scores = "right"

    def __post_init__(self) -> None:
        check_looks(self.looks)
        check_alpha(self.alpha)
        if not 0 < self.margin < 1:
            raise ConfigError("the margin must lie between 0 and 1", where="gate.margin")
        if not 0 <= self.least_saving < 1:
            raise ConfigError("the saving must lie between 0 and 1", where="gate.least_saving")


def decide_cheaper(results: Sequence[PairResult], rules: CheaperRules) -> GateResult | None:
    """Return the verdict on a saving, or None when more pairs are needed.

    Args:
        results: pairs in planned order with their costs, from the first on.
        rules: what was fixed before the first pair.

    Raises:
        ConfigError: a clean pair has no cost, or one that is not above zero.
    """
    seen = list[CheaperLook]()
    for look in _looks(results, rules):
        seen.append(look)
        verdict = _at_look(results[: look.pairs], look, rules)
        if verdict is not None:
            return replace(
                verdict,
                pairs=look.pairs,
                alpha=rules.alpha,
                scores=rules.scores,
                claim="cheaper",
                saving=tuple(seen),
            )
    return None


def _looks(results: Sequence[PairResult], rules: CheaperRules) -> Iterator[CheaperLook]:
    cap = rules.looks[-1]
    for n, boundary in zip(rules.looks, z_boundaries(rules.looks, rules.alpha), strict=True):
        if n > len(results):
            return
        some = results[:n]
        clean = [r for r in some if r.is_clean]
        # A pair that both arms lost says nothing about either; as a tie it would look "not worse".
        judged = [r for r in some if r.incumbent is not None or r.candidate is not None]
        first = _quality_z([r.clean_difference for r in clean], boundary, rules)
        second = _quality_z([r.difference_with_faults for r in judged], boundary, rules)
        cost_z, ratio = _cost(clean, rules)
        yield CheaperLook(
            pairs=n,
            boundary=boundary,
            quality_z=first,
            quality_z_with_faults=second,
            cost_z=cost_z,
            total_ratio=ratio,
            incumbent_lost=sum(r.incumbent is None for r in some),
            candidate_lost=sum(r.candidate is None for r in some),
            futile=n < cap and min(first, second, cost_z) <= futility_limit(n, cap),
        )


def _quality_z(differences: Sequence[float], boundary: float, rules: CheaperRules) -> float:
    if rules.scores == "right":
        wins, losses = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        return score_z(wins, losses, len(differences), rules.margin)
    return _bet_z(differences, boundary, rules)


def score_z(wins: int, losses: int, pairs: int, margin: float) -> float:
    """Return Tango's score for "the gain lies above minus the margin"."""
    if pairs == 0:
        return 0.0
    a = 2.0 * pairs
    b = -(wins + losses) - (2 * pairs - wins + losses) * margin
    c = losses * margin * (1 + margin)
    lost_share = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
    variance = pairs * (2 * lost_share - margin * (1 + margin))
    excess = wins - losses + pairs * margin
    # Half a pair is taken off, because counts move in steps of one and the normal law does not:
    # the exact error of the whole test is then at most 0.93 alpha for every share that differs.
    return (excess - math.copysign(min(0.5, abs(excess)), excess)) / math.sqrt(variance)


def _bet_z(differences: Sequence[float], boundary: float, rules: CheaperRules) -> float:
    """Return a value that reaches the boundary when the bet on the margin has gained 1 / alpha.

    The bet holds at every look at once, so the boundary is put on its scale; below, the value is
    the plain z of the excess, held under the boundary, for the futility rule.
    """
    from learnloop.gate.flips import e_values

    excess = [d + rules.margin for d in differences]
    if not excess:
        return 0.0
    scaled = [x / (1 + rules.margin) for x in excess]
    if e_values(scaled)[-1] >= 1 / rules.alpha:
        return _FAR
    noise = math.sqrt(math.fsum(x * x for x in excess))
    z = math.fsum(excess) / noise if noise else 0.0
    return min(z, math.nextafter(boundary, 0))


def _cost(clean: Sequence[PairResult], rules: CheaperRules) -> tuple[float, float]:
    """Return the z value of the saving over units, and the ratio of total cost."""
    from learnloop import stats

    logs, old, new = dict[str, list[float]](), 0.0, 0.0
    for result in clean:
        before, after = result.incumbent_cost, result.candidate_cost
        if before is None or after is None or before <= 0 or after <= 0:
            raise ConfigError(
                f"the saving of task {result.task_id} needs two costs above zero, "
                f"not {before} and {after}",
                where="gate.claim",
            )
        logs.setdefault(result.unit, []).append(math.log(after / before))
        old, new = old + before, new + after
    if len(logs) < 2:
        return 0.0, 1.0
    means = [math.fsum(x) / len(x) for x in logs.values()]
    below = math.log1p(-rules.least_saving) - math.fsum(means) / len(means)
    noise = stats.deviation(means) / math.sqrt(len(means))
    if noise <= 1e-12:
        return math.copysign(_FAR, below) if abs(below) > 1e-12 else 0.0, new / old
    z = stats.normal_of_t(below / noise, len(means) - 1)
    return max(-_FAR, min(_FAR, z)), new / old


def _at_look(
    results: Sequence[PairResult], look: CheaperLook, rules: CheaperRules
) -> GateResult | None:
    verdict = _unchecked(results, look, rules)
    if verdict is None:
        return None
    trouble = low_coverage(look.pairs, look.incumbent_lost, look.candidate_lost)
    if verdict.outcome == "adopt" and not trouble:
        trouble = uneven_loss(look.incumbent_lost, look.candidate_lost)
    return GateResult(outcome="infra", words=trouble) if trouble else verdict


def _unchecked(
    results: Sequence[PairResult], look: CheaperLook, rules: CheaperRules
) -> GateResult | None:
    claim = f"cheaper and at most {100 * rules.margin:g} points worse"
    if look.crossed:
        z = task_level_z(results, margin=rules.margin)
        # Tasks that all show the same excess over the margin vary in nothing.
        carries = z is None or carries_over(z, rules.alpha)
        tasks = len({result.task_id for result in results})
        return GateResult(
            outcome="adopt",
            words=f"{claim} than the incumbent on these {tasks} confirm tasks ({look.pairs} pairs)",
            task_z=z,
            carries_over=carries,
            label=label_words(carries=carries),
        )
    if look.futile:
        part = "of a saving" if look.cost_z <= look.quality_z else "that it is not worse"
        return GateResult(outcome="reject", words=f"no sign {part} after {look.pairs} pairs")
    if look.pairs < rules.looks[-1]:
        return None
    words = f"not decided after {look.pairs} pairs whether it is {claim}"
    return GateResult(outcome="indecisive", words=words)


def either(better: GateResult | None, cheaper: GateResult | None) -> GateResult | None:
    """Return one verdict of the two tests on the same pairs, or None while one may still adopt.

    The error of the verdict is at most the sum of their shares.
    """
    if better is not None and better.outcome == "adopt":
        return better
    if cheaper is not None and cheaper.outcome == "adopt":
        return replace(cheaper, looks=better.looks if better else ())
    if better is None or cheaper is None:
        return None
    share = (better.alpha or 0.0) + (cheaper.alpha or 0.0)
    words = f"{better.words}; and {cheaper.words}"
    return replace(
        better,
        words=words,
        alpha=share,
        pairs=max(better.pairs, cheaper.pairs),
        saving=cheaper.saving,
    )
