"""The gate on graded scores: random sign flips guarded by a bet on the mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from learnloop.errors import ConfigError
from learnloop.gate import GateResult, GateRules, PairResult, decide
from learnloop.gate.flips import PATHS, e_values, flip_tallies

RULES = GateRules(scores="graded")
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def results(old: np.ndarray, new: np.ndarray, *, tasks: int = 40) -> list[PairResult]:
    pairs = zip(old, new, strict=True)
    return [
        PairResult(task_id=f"t{i % tasks}", incumbent=float(a), candidate=float(b))
        for i, (a, b) in enumerate(pairs)
    ]


def verdict(old: np.ndarray, new: np.ndarray, rules: GateRules = RULES) -> GateResult:
    found = decide(results(old, new), rules)
    assert found is not None
    return found


def adopted(draw: Draw, runs: int) -> float:
    """Return the share of simulated tests that adopt; each has flips of its own."""
    rng, count = np.random.default_rng(11), 0
    for seed in range(runs):
        count += verdict(*draw(rng), replace(RULES, seed=seed)).outcome == "adopt"
    return count / runs


def shifted(gain: float) -> Draw:
    return lambda rng: (rng.beta(2, 2, 400), np.clip(rng.beta(2, 2, 400) + gain, 0, 1))


def test_a_clear_gain_in_graded_scores_is_adopted_with_its_numbers():
    rng = np.random.default_rng(1)
    found = verdict(*shifted(0.2)(rng))
    flips = found.looks[-1].clean.flips
    assert (found.outcome, found.scores) == ("adopt", "graded")
    assert found.looks[-1].clean.boundary is None
    assert flips is not None
    assert flips.reaching < flips.quota
    assert flips.e_value >= 10


def test_the_same_seed_gives_the_same_verdict_and_the_flips_number_20000():
    old, new = shifted(0.05)(np.random.default_rng(5))
    assert PATHS >= 20_000
    assert verdict(old, new) == verdict(old, new)
    d = [float(x) for x in new - old]
    first, other = (list(flip_tallies(d, replace(RULES, seed=s))) for s in (0, 9))
    assert first[0].flips is not None
    assert other[0].flips is not None
    assert first[0].flips.quota == other[0].flips.quota == math.floor(0.0005 * (PATHS + 1))
    assert first[0].flips.reaching != other[0].flips.reaching


def test_what_the_flips_spend_by_the_last_look_is_the_share_of_error():
    d = np.random.default_rng(2).normal(0, 0.2, 400).clip(-1, 1)
    last = list(flip_tallies(list(d), RULES))[-1].flips
    assert last is not None
    assert PATHS - last.alive + last.quota == math.floor(0.0125 * (PATHS + 1))


def test_a_null_candidate_with_graded_scores_is_adopted_no_more_often_than_alpha():
    runs = 250
    rate = adopted(shifted(0.0), runs)
    assert rate <= 0.0125 + 3 * math.sqrt(0.0125 / runs)


def test_five_points_in_graded_scores_are_adopted_as_often_as_the_note_says():
    assert adopted(shifted(0.05), 100) >= 0.78 - 3 * math.sqrt(0.78 * 0.22 / 100)


@pytest.mark.parametrize("gain", [0.01, 0.02, 0.05])
def test_small_gains_that_a_rare_collapse_undoes_are_not_adopted(gain: float):
    """The mean is zero: +gain nearly always, -1 now and then."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        collapse = rng.random(400) < gain / (1 + gain)
        return np.where(collapse, 1.0, 1.0 - gain), np.where(collapse, 0.0, 1.0)

    assert adopted(draw, 120) <= 0.0125 + 3 * math.sqrt(0.0125 / 120)


def test_a_gain_without_a_bet_won_says_that_a_collapse_is_not_ruled_out():
    old, new = np.full(400, 0.5), np.full(400, 0.505)
    found = verdict(old, new)
    assert found.outcome == "indecisive"
    assert "a rare collapse" in found.words


def test_the_bet_keeps_its_best_and_pays_only_for_gains():
    assert e_values([-0.5] * 10) == [1.0] * 10
    up = e_values([0.5, 0.5, -1.0])
    assert up[0] < up[1] == up[2]


def test_equal_graded_scores_are_no_change():
    assert verdict(np.full(400, 0.3), np.full(400, 0.3)).outcome == "no_change"


def test_lost_attempts_must_not_fake_a_gain_in_graded_scores():
    rng = np.random.default_rng(4)
    old, new = rng.beta(2, 2, 400), rng.beta(2, 2, 400)
    pairs = results(old, new)
    # The candidate loses exactly the attempts that would have scored low.
    low = [replace(p, candidate=None if (p.candidate or 0) < 0.2 else p.candidate) for p in pairs]
    found = decide(low, RULES)
    assert found is not None
    assert found.outcome != "adopt"


def test_scores_beyond_the_range_are_refused():
    with pytest.raises(ConfigError, match="from 0 to 1"):
        decide([PairResult(task_id="t", incumbent=0.5, candidate=1.5)], RULES)
