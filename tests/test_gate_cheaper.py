"""The test for a saving: not worse by more than the margin, and cheaper."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from learnloop.bounds import bounds
from learnloop.errors import ConfigError
from learnloop.gate import CheaperRules, GateResult, PairResult, decide_cheaper, either
from learnloop.gate.cheaper import score_z
from learnloop.gate.spending import z_boundaries

LOOKS = (80, 160, 240, 320, 400)
RULES = CheaperRules(alpha=0.0125, margin=0.05)


def pairs(
    rng: random.Random, *, win: float, loss: float, saving: float, noise: float = 0.5
) -> list[PairResult]:
    """Return 400 pairs on 40 tasks with costs that differ by task and by chance."""
    out = list[PairResult]()
    for i in range(400):
        u = rng.random()
        old, new = (0.0, 1.0) if u < win else (1.0, 0.0) if u < win + loss else (1.0, 1.0)
        level = 1000 * math.exp(0.7 * ((i % 40) / 20 - 1))
        out.append(
            PairResult(
                task_id=f"t{i % 40}",
                incumbent=old,
                candidate=new,
                incumbent_cost=level * math.exp(noise * rng.gauss(0, 1)),
                candidate_cost=level * (1 - saving) * math.exp(noise * rng.gauss(0, 1)),
            )
        )
    return out


def verdict(results: list[PairResult], rules: CheaperRules = RULES) -> GateResult:
    found = decide_cheaper(results, rules)
    assert found is not None
    return found


def rate(runs: int, **world: float) -> float:
    rng = random.Random(3)
    return sum(verdict(pairs(rng, **world)).outcome == "adopt" for _ in range(runs)) / runs


def test_the_normal_boundary_spends_what_the_exact_one_spends():
    z = z_boundaries(LOOKS, 0.0125)
    wins = bounds([400 * k for k in range(1, 6)], [n * n for n in LOOKS], 80 * 400 * 400)
    exact = [(2 * w - 400 * k) / math.sqrt(400 * k) for k, w in enumerate(wins, start=1)]
    assert all(0 < b - a < 0.12 for a, b in zip(z, exact, strict=True))
    assert z_boundaries((100,), 0.025) == pytest.approx((1.959964,), abs=1e-4)


def exact_level(alpha: float, margin: float, differing: float) -> float:
    """Return the chance to cross at the edge of the null, by walking all counts of wins and losses."""
    win, loss = (differing - margin) / 2, (differing + margin) / 2
    alive, crossed = np.ones((1, 1)), 0.0
    for n, boundary in zip(LOOKS, z_boundaries(LOOKS, alpha), strict=True):
        for _ in range(80):
            after = np.zeros((len(alive) + 1, len(alive) + 1))
            after[:-1, :-1] += alive * (1 - win - loss)
            after[1:, :-1] += alive * win
            after[:-1, 1:] += alive * loss
            alive = after
        for wins in range(n + 1):
            # Few losses cross: stop at the first count that does not.
            for losses in range(n + 1 - wins):
                if score_z(wins, losses, n, margin) < boundary:
                    break
                crossed += float(alive[wins, losses])
                alive[wins, losses] = 0.0
    return crossed


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("differing", [0.12, 0.3, 0.6])
def test_the_error_at_the_edge_of_the_margin_is_below_alpha_by_exact_count(
    margin: float, differing: float
):
    assert exact_level(0.0125, margin, differing) <= 0.0125


def test_equal_quality_at_lower_cost_is_adopted_and_says_its_margin():
    found = verdict(pairs(random.Random(1), win=0.02, loss=0.02, saving=0.3))
    assert (found.outcome, found.claim) == ("adopt", "cheaper")
    assert "cheaper and at most 5 points worse" in found.words
    assert found.saving[-1].crossed
    assert not found.looks


def test_a_candidate_that_loses_exactly_the_margin_is_adopted_no_more_often_than_alpha():
    runs = 400
    assert rate(runs, win=0.05, loss=0.10, saving=0.5) <= 0.0125 + 3 * math.sqrt(0.0125 / runs)


def test_a_candidate_that_saves_nothing_is_adopted_no_more_often_than_alpha():
    runs = 400
    assert rate(runs, win=0.04, loss=0.0, saving=0.0) <= 0.0125 + 3 * math.sqrt(0.0125 / runs)


def test_a_real_saving_at_equal_quality_is_found():
    assert rate(60, win=0.02, loss=0.02, saving=0.2) >= 0.85


def test_a_rare_blow_up_of_cost_is_no_saving_however_frequent_the_small_one():
    results = [
        replace(p, candidate_cost=500_000.0 if i % 40 == 7 else p.candidate_cost)
        for i, p in enumerate(pairs(random.Random(2), win=0.0, loss=0.0, saving=0.3, noise=0.05))
    ]
    found = verdict(results)
    assert found.outcome != "adopt"
    assert found.saving[-1].total_ratio > 1


def test_lost_attempts_of_the_candidate_count_against_it():
    fine = pairs(random.Random(1), win=0.02, loss=0.02, saving=0.3)
    lossy = [replace(p, candidate=None) if i % 11 == 0 else p for i, p in enumerate(fine)]
    assert verdict(lossy).outcome != "adopt"


def test_an_incumbent_that_lost_too_many_attempts_is_infra():
    fine = pairs(random.Random(1), win=0.0, loss=0.0, saving=0.3)
    lossy = [replace(p, incumbent=None) if i % 15 == 0 else p for i, p in enumerate(fine)]
    assert verdict(lossy).outcome == "infra"


def test_graded_quality_is_tested_by_a_bet_on_the_margin():
    rules = replace(RULES, scores="graded", margin=0.1)
    results = [
        replace(p, incumbent=0.6, candidate=0.6)
        for p in pairs(random.Random(5), win=0.0, loss=0.0, saving=0.4)
    ]
    assert verdict(results, rules).outcome == "adopt"
    worse = [replace(p, candidate=0.49) for p in results]
    assert verdict(worse, rules).outcome == "reject"


def test_costs_must_be_there_and_above_zero():
    free = [
        replace(p, candidate_cost=0.0) for p in pairs(random.Random(1), win=0, loss=0, saving=0)
    ]
    with pytest.raises(ConfigError, match="above zero"):
        decide_cheaper(free, RULES)
    with pytest.raises(ConfigError, match="margin"):
        CheaperRules(margin=0.0)


def test_of_two_tests_on_the_same_pairs_either_may_adopt_and_neither_ends_the_other():
    adopt = GateResult(outcome="adopt", words="better", pairs=80, alpha=0.006)
    reject = GateResult(outcome="reject", words="no sign of a gain", pairs=80, alpha=0.006)
    saving = GateResult(outcome="adopt", words="cheaper", pairs=160, alpha=0.006, claim="cheaper")
    assert either(adopt, None) == adopt
    assert either(reject, None) is None
    assert either(None, reject) is None
    assert either(reject, saving) == saving
    both = either(reject, replace(reject, pairs=160))
    assert both is not None
    assert (both.outcome, both.pairs, both.alpha) == ("reject", 160, 0.012)
