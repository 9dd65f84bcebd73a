"""Power, sample size and the A/A run, against the published numbers."""

from __future__ import annotations

import random

import pytest

from learnloop.errors import ConfigError
from learnloop.gate import (
    GateRules,
    PairResult,
    detectable,
    minimum_detectable_effect,
    noise_of,
    pairs_needed,
    power,
)

QUARTER, EIGHTH = GateRules(alpha=0.0125), GateRules(alpha=0.00625)


@pytest.mark.parametrize(
    ("differing", "effect", "at_quarter", "at_eighth"),
    [
        (0.10, 0.03, 0.30, 0.22),
        (0.10, 0.05, 0.79, 0.71),
        (0.10, 0.075, 0.995, 0.992),
        (0.20, 0.05, 0.43, 0.34),
        (0.20, 0.10, 0.98, 0.97),
        (0.30, 0.10, 0.90, 0.85),
        (0.40, 0.15, 0.99, 0.98),
        (0.50, 0.05, 0.17, 0.11),
        (0.50, 0.10, 0.67, 0.57),
        (0.50, 0.20, 0.999, 0.998),
        (0.70, 0.10, 0.50, 0.40),
    ],
)
def test_power_matches_the_published_table(
    differing: float, effect: float, at_quarter: float, at_eighth: float
):
    assert power(effect, differing, QUARTER).adopted == pytest.approx(at_quarter, abs=0.02)
    assert power(effect, differing, EIGHTH).adopted == pytest.approx(at_eighth, abs=0.02)


def test_power_matches_the_published_pairs_and_level():
    assert power(0.10, 0.5, QUARTER).pairs == pytest.approx(303, abs=8)
    assert power(0.20, 0.5, QUARTER).pairs == pytest.approx(169, abs=8)
    nothing = power(0.0, 0.5, QUARTER)
    assert nothing.adopted == pytest.approx(0.0109, abs=0.001)
    assert nothing.pairs == pytest.approx(201, abs=8)


def test_an_effect_larger_than_the_share_that_differs_is_refused():
    with pytest.raises(ConfigError, match="cannot give"):
        power(0.2, 0.1, QUARTER)


def test_pairs_needed_are_those_that_show_the_effect():
    n = pairs_needed(0.0125, 0.3, 0.07)
    assert minimum_detectable_effect(0.0125, 0.3, n) <= 0.07
    assert minimum_detectable_effect(0.0125, 0.3, n - 2) > 0.07


def aa_run(rates: list[float], rng: random.Random, *, lift: float = 0.0) -> list[PairResult]:
    return [
        PairResult(
            task_id=f"t{i}",
            incumbent=float(rng.random() < p),
            candidate=float(rng.random() < p + lift),
        )
        for i, p in enumerate(rates)
        for _ in range(5)
    ]


MIXED = [1.0] * 18 + [0.0] * 14 + [0.5] * 8


def test_an_agent_against_itself_shows_its_noise_and_what_can_be_detected():
    noise = noise_of(aa_run(MIXED, random.Random(1)))
    assert noise.low <= 0.10 <= noise.high
    assert (noise.tasks, noise.pairs, noise.lost) == (40, 200, 0)
    assert not noise.is_lopsided
    found = detectable(noise.share, QUARTER, tasks=40, target=0.02)
    assert found.effect == pytest.approx(0.05, abs=0.015)
    assert found.effect < found.effect_churned
    assert found.is_underpowered
    assert found.pairs_for_target is not None
    assert found.pairs_for_target > 400
    assert "40 confirm tasks are few" in found.words
    assert not detectable(noise.share, QUARTER, tasks=300, target=0.10).is_underpowered


def test_arms_that_are_not_run_alike_are_told():
    assert noise_of(aa_run([0.4] * 60, random.Random(2), lift=0.3)).is_lopsided
    alike = [noise_of(aa_run([0.4] * 40, random.Random(s))).is_lopsided for s in range(200)]
    assert sum(alike) <= 6


def test_a_deterministic_agent_is_told_that_repeats_say_nothing():
    noise = noise_of(aa_run([1.0] * 20 + [0.0] * 20, random.Random(3)))
    assert noise.share == 0
    assert noise.is_deterministic
    found = detectable(noise.share, QUARTER, tasks=40)
    assert 0 < found.effect < 0.03
    few = detectable(0.5, GateRules(alpha=0.0125, looks=(4, 8)), tasks=8)
    assert few.words.startswith("8 pairs are too few to adopt any gain")
    for share in (0.0, 0.02, 0.1, 0.5, 1.0):
        for target in (None, 0.001, 0.05, 0.5):
            one = detectable(share, QUARTER, tasks=300, target=target)
            assert 0 < one.effect <= one.effect_churned <= 1


def test_an_a_a_run_without_scores_says_so():
    gone = [PairResult(task_id="t", incumbent=None, candidate=None)]
    assert noise_of(gone).lost == 2
    assert "no pair" in noise_of(gone).words
