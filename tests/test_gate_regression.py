"""Regressions on protected tasks: what is found by chance, and what is real."""

from __future__ import annotations

import math
import random

import pytest

from learnloop.gate import (
    Tries,
    confirmed,
    protected,
    regressions,
    tries_needed,
    veto_words,
)
from learnloop.gate.regression import benjamini_hochberg, worse_p


def tried(rng: random.Random, rates: dict[str, float], times: int) -> dict[str, Tries]:
    return {
        name: Tries(passed=sum(rng.random() < p for _ in range(times)), tried=times)
        for name, p in rates.items()
    }


def vetoed(rng: random.Random, old: dict[str, float], new: dict[str, float]) -> bool:
    """One candidate: tasks are chosen, tested on fresh tries, and tested again."""
    chosen = protected(tried(rng, old, 5))
    k = tries_needed(max(1, len(chosen)))
    found = regressions(tried(rng, old, k), tried(rng, new, k), chosen)
    return bool(confirmed(found, tried(rng, old, k), tried(rng, new, k)))


MIXED = {f"t{i}": [1.0, 1.0, 0.9, 0.5, 0.0][i % 5] for i in range(40)}


def test_only_tasks_that_nearly_always_passed_are_protected():
    seen = {
        "safe": Tries(passed=9, tried=10),
        "shaky": Tries(passed=8, tried=10),
        "new": Tries(passed=4, tried=4),
    }
    assert protected(seen) == ("safe",)


def test_fisher_matches_the_tea_tasting():
    assert worse_p(Tries(passed=3, tried=4), Tries(passed=1, tried=4)) == pytest.approx(17 / 70)
    assert worse_p(Tries(passed=5, tried=5), Tries(passed=0, tried=5)) == pytest.approx(1 / 252)
    assert worse_p(Tries(passed=0, tried=5), Tries(passed=5, tried=5)) == pytest.approx(1.0)


def test_benjamini_hochberg_steps_up():
    found = benjamini_hochberg({"a": 0.01, "b": 0.02, "c": 0.04, "d": 0.9})
    assert found == pytest.approx({"a": 0.04, "b": 0.04, "c": 0.16 / 3, "d": 0.9})
    assert benjamini_hochberg({}) == {}


def test_an_identical_candidate_is_hardly_ever_vetoed():
    """A veto on any task that looks worse would stop 84 to 100 % of them."""
    rng = random.Random(8)
    assert sum(vetoed(rng, MIXED, MIXED) for _ in range(400)) / 400 <= 0.01


def test_a_broken_task_is_found_twice_and_named():
    rng = random.Random(9)
    broken = {**MIXED, "t0": 0.05, "t5": 0.0}
    assert sum(vetoed(rng, MIXED, broken) for _ in range(200)) / 200 >= 0.9
    before, after = {"t0": Tries(passed=8, tried=8)}, {"t0": Tries(passed=0, tried=8)}
    found = regressions(before, after, ["t0", "never tried"])
    assert [x.task_id for x in found] == ["t0"]
    assert "t0 passed 8 of 8 before and 0 of 8 after" in veto_words(found)
    assert veto_words(()) == ""


def test_more_protected_tasks_need_more_tries():
    assert tries_needed(1) == 5
    assert tries_needed(40) == next(k for k in range(5, 20) if 40 / math.comb(2 * k, k) <= 0.05)
    assert tries_needed(400) > tries_needed(40)
