"""The decision: looks at the results so far and gives the verdict, or asks for more pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from learnloop.errors import ConfigError
from learnloop.gate.label import carries_over, label_words, task_level_z
from learnloop.gate.losses import low_coverage, uneven_loss
from learnloop.gate.pair import PairResult
from learnloop.gate.power import minimum_detectable_effect
from learnloop.gate.result import LEAST_E, GateResult, Look, Tally
from learnloop.gate.rules import GateRules, futility_limit
from learnloop.gate.signs import sign_tallies


def decide(results: Sequence[PairResult], rules: GateRules) -> GateResult | None:
    """Return the verdict on the results so far, or None when more pairs are needed.

    Args:
        results: pairs in planned order, from the first on; those beyond the last look reached
            do not count yet.
        rules: what was fixed before the first pair.

    Raises:
        ConfigError: a score is neither 0 nor 1 while `right` results are compared, or lies
            outside [0, 1].
    """
    check_scores(results, rules)
    seen = list[Look]()
    for look in _looks(results, rules):
        seen.append(look)
        verdict = _at_look(results[: look.pairs], look, rules)
        if verdict is not None:
            return replace(
                verdict,
                looks=tuple(seen),
                pairs=look.pairs,
                alpha=rules.alpha,
                scores=rules.scores,
            )
    return None


def check_scores(results: Sequence[PairResult], rules: GateRules) -> None:
    """Raise ConfigError for scores that the test does not hold for."""
    for result in results:
        for score in (result.incumbent, result.candidate):
            if score is None:
                continue
            if rules.scores == "right" and score not in (0.0, 1.0):
                raise ConfigError(
                    f"the gate compares 0/1 results, and task {result.task_id} scored {score}",
                    fix='Set gate.scores = "graded", or pass 1.0 for right and 0.0 for wrong.',
                )
            if not 0 <= score <= 1:
                raise ConfigError(
                    f"the gate compares scores from 0 to 1, and task {result.task_id} scored {score}"
                )


def _looks(results: Sequence[PairResult], rules: GateRules) -> Iterator[Look]:
    clean = [r.clean_difference for r in results]
    faults = [r.difference_with_faults for r in results]
    # Without a lost attempt both analyses are the same one.
    tallies = (
        ((tally, tally) for tally in _tallies(clean, rules))
        if clean == faults
        else zip(_tallies(clean, rules), _tallies(faults, rules), strict=True)
    )
    for n, (first, second) in zip(rules.looks, tallies, strict=False):
        yield Look(
            pairs=n,
            clean=first,
            with_faults=second,
            incumbent_lost=sum(r.incumbent is None for r in results[:n]),
            candidate_lost=sum(r.candidate is None for r in results[:n]),
            error_allowed=rules.error_allowed(n),
            futile=_futile(first, n, rules) or _futile(second, n, rules),
        )


def _tallies(differences: Sequence[float], rules: GateRules) -> Iterator[Tally]:
    if rules.scores == "right":
        return sign_tallies(differences, rules)
    # Imported here: numpy costs a tenth of a second that 0/1 results need not pay.
    from learnloop.gate.flips import flip_tallies

    return flip_tallies(differences, rules)


def _futile(tally: Tally, pairs: int, rules: GateRules) -> bool:
    """Return whether there is too little sign of a gain to go on."""
    cap = rules.looks[-1]
    return pairs < cap and tally.z <= futility_limit(pairs, cap)


def _at_look(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult | None:
    verdict = _unchecked(results, look, rules)
    if verdict is None:
        return None
    trouble = low_coverage(look.pairs, look.incumbent_lost, look.candidate_lost)
    if verdict.outcome == "adopt" and not trouble:
        trouble = uneven_loss(look.incumbent_lost, look.candidate_lost)
    return GateResult(outcome="infra", words=trouble) if trouble else verdict


def _unchecked(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult | None:
    """Return the verdict as if no attempt had been lost."""
    if look.clean.wins + look.clean.losses == 0 and look.pairs == rules.looks[0]:
        words = f"both behave alike in all {look.pairs} pairs"
        return GateResult(outcome="no_change", words=words)
    if look.clean.crossed and look.with_faults.crossed:
        return _adoption(results, look, rules)
    if look.futile:
        words = f"no sign of a gain after {look.pairs} pairs"
        return GateResult(outcome="reject", words=words)
    if look.pairs < rules.looks[-1]:
        return None
    return GateResult(outcome="indecisive", words=_undecided(results, look, rules))


def _undecided(results: Sequence[PairResult], look: Look, rules: GateRules) -> str:
    """Say what so many pairs could have shown, and why a rare sum alone does not adopt."""
    noise = sum(r.clean_difference**2 for r in results) / look.pairs
    visible = minimum_detectable_effect(rules.alpha, noise, look.pairs)
    words = (
        f"not decided after {look.pairs} pairs, which show {100 * visible:.1f} points "
        "in 80 % of cases"
    )
    flips = look.clean.flips
    if flips is not None and flips.reaching < flips.quota and flips.e_value < LEAST_E:
        words += "; small gains are frequent, but a rare collapse that undoes them is not ruled out"
    return words


def _adoption(results: Sequence[PairResult], look: Look, rules: GateRules) -> GateResult:
    z = task_level_z(results)
    carries = carries_over(z, rules.alpha)
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
        label=label_words(carries=carries),
    )
