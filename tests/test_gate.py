"""The gate: its exact boundary, its plan, and every verdict it can give."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from learnloop.bounds import bounds
from learnloop.errors import ConfigError
from learnloop.gate import (
    ErrorPool,
    GateResult,
    GateRules,
    PairResult,
    decide,
    minimum_detectable_effect,
    next_look,
    plan_pairs,
    refuse_early,
    task_level_z,
)

LOOKS = (80, 160, 240, 320, 400)


@pytest.mark.parametrize(
    ("one_in", "discordant", "needed"),
    [
        (80, (40, 80, 120, 160, 200), [31, 54, 76, 97, 117]),
        (80, (8, 16, 24, 32, 40), [9, 15, 19, 24, 28]),
        (80, (20, 41, 59, 83, 104), [18, 31, 41, 54, 65]),
        (80, (80, 160, 240, 320, 400), [56, 99, 142, 183, 225]),
        (160, (40, 80, 120, 160, 200), [32, 55, 77, 98, 119]),
        (160, (5, 9, 14, 22, 25), [6, 10, 13, 18, 20]),
        (20, (40, 80, 120, 160, 200), [30, 52, 73, 93, 113]),
    ],
)
def test_the_boundary_matches_the_published_vectors(
    one_in: int, discordant: Sequence[int], needed: list[int]
) -> None:
    assert bounds(discordant, [n * n for n in LOOKS], one_in * 400 * 400) == needed


def test_the_boundary_never_spends_more_than_the_error_by_exact_count() -> None:
    discordant, spent = (7, 15, 22, 31, 38), 0.0
    needed = bounds(discordant, [n * n for n in LOOKS], 80 * 400 * 400)
    alive, before = {0: 1.0}, 0
    for total, least in zip(discordant, needed, strict=True):
        steps, after = total - before, Counter[int]()
        for wins, chance in alive.items():
            for j in range(steps + 1):
                after[wins + j] += chance * math.comb(steps, j) / 2**steps
        spent += sum(chance for wins, chance in after.items() if wins >= least)
        alive, before = {w: c for w, c in after.items() if w < least}, total
    assert 0.005 < spent <= 0.0125


def test_a_plan_runs_every_task_once_before_any_runs_again() -> None:
    ids = [f"t{i}" for i in range(7)]
    plan = plan_pairs(ids, 17, seed=3)
    assert [p.index for p in plan] == list(range(17))
    assert sorted(p.task_id for p in plan[:7]) == sorted(ids)
    assert sorted(p.task_id for p in plan[7:14]) == sorted(ids)
    assert [p.attempt for p in plan] == [0] * 7 + [1] * 7 + [2] * 3
    assert plan == plan_pairs(list(reversed(ids)), 17, seed=3)
    assert plan != plan_pairs(ids, 17, seed=4)


def test_more_tasks_than_pairs_are_drawn_without_replacement() -> None:
    plan = plan_pairs([f"t{i}" for i in range(100)], 40, seed=0)
    assert len({p.task_id for p in plan}) == 40


def test_a_plan_without_tasks_or_with_a_task_twice_is_refused() -> None:
    for ids in ([], ["a", "a"]):
        with pytest.raises(ConfigError):
            plan_pairs(ids, 10, seed=0)


def pairs(text: str, *, tasks: int = 10_000) -> list[PairResult]:
    """W win, L loss, + both right, - both wrong, i/c incumbent's/candidate's attempt lost."""
    table: dict[str, tuple[float | None, float | None]] = {
        "W": (0, 1),
        "L": (1, 0),
        "+": (1, 1),
        "-": (0, 0),
        "i": (None, 1),
        "c": (0, None),
    }
    return [
        PairResult(task_id=f"t{i % tasks}", incumbent=table[x][0], candidate=table[x][1])
        for i, x in enumerate(text)
    ]


RULES = GateRules(alpha=0.0125, looks=LOOKS)


def verdict(text: str, rules: GateRules = RULES) -> GateResult:
    found = decide(pairs(text), rules)
    assert found is not None
    return found


def test_before_the_first_look_nothing_is_decided() -> None:
    assert decide(pairs("W" * 79), RULES) is None
    assert next_look(0, RULES) == 80
    assert next_look(80, RULES) == 160


def test_many_wins_at_the_first_look_adopt_and_carry_over() -> None:
    found = verdict("WWW+" * 20)
    assert (found.outcome, found.pairs) == ("adopt", 80)
    assert found.carries_over
    assert found.label == "carries over to tasks like these"
    assert "these 80 confirm tasks" in found.words


def test_wins_from_one_task_adopt_for_these_tasks_only() -> None:
    results = pairs(("WWWW" + "+" * 6) * 8, tasks=10)
    odd = [r for r in results if r.task_id in ("t0", "t1", "t2", "t3")]
    assert len(odd) == 32
    grouped = [
        PairResult(
            task_id=r.task_id,
            incumbent=r.incumbent,
            candidate=r.candidate,
            group="one" if r in odd else r.task_id,
        )
        for r in results
    ]
    found = decide(grouped, RULES)
    assert found is not None
    assert found.outcome == "adopt"
    assert not found.carries_over
    assert found.label == "shown for these tasks only"


def test_no_sign_of_a_gain_stops_early_as_reject() -> None:
    found = verdict("WLLL" * 20)
    assert (found.outcome, found.pairs) == ("reject", 80)
    assert found.looks[0].futile


def test_the_cap_without_a_crossing_is_indecisive_and_says_what_it_could_show() -> None:
    found = verdict(("WWWLL" * 4 + "+" * 60) * 5)
    assert (found.outcome, found.pairs, len(found.looks)) == ("indecisive", 400, 5)
    assert "points in 80 % of cases" in found.words


def test_equal_behaviour_at_the_first_look_is_no_change() -> None:
    assert verdict("+-" * 40).outcome == "no_change"


def test_looks_are_counted_in_planned_order_whatever_comes_later() -> None:
    early = verdict("WWW+" * 20)
    assert verdict("WWW+" * 20 + "L" * 80) == early


def test_low_coverage_of_one_arm_is_infra_not_adopt() -> None:
    found = verdict("WWWWWWWc" * 10)
    assert found.outcome == "infra"
    assert "88% of the candidate's attempts" in found.words


def test_an_incumbent_that_lost_more_attempts_blocks_adoption() -> None:
    found = verdict("W" * 74 + "i" * 6)
    assert found.outcome == "infra"
    assert "the incumbent lost 6 attempts" in found.words


def test_a_candidate_that_lost_more_attempts_may_still_be_adopted_and_it_is_said() -> None:
    found = verdict("W" * 74 + "c" * 6)
    assert found.outcome == "adopt"
    assert "the candidate lost 6 attempts" in found.words


def test_wins_that_vanish_when_faults_count_as_failures_do_not_adopt() -> None:
    """Clean pairs cross, but the candidate's lost attempts would all have been losses."""
    lossy = pairs("W" * 31 + "L" * 9 + "+" * 33) + [
        PairResult(task_id=f"x{i}", incumbent=1, candidate=None) for i in range(7)
    ]
    look_80 = GateRules(alpha=0.0125, looks=LOOKS)
    found = decide(lossy, look_80)
    assert found is None or found.outcome != "adopt"
    clean = decide(pairs("W" * 31 + "L" * 9 + "+" * 40), look_80)
    assert clean is not None
    assert clean.outcome == "adopt"


def test_a_total_outage_is_infra_and_never_no_change() -> None:
    gone = [PairResult(task_id=f"t{i}", incumbent=None, candidate=None) for i in range(80)]
    found = decide(gone, RULES)
    assert found is not None
    assert found.outcome == "infra"


def test_graded_scores_are_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match="0/1 results"):
        decide([PairResult(task_id="t", incumbent=0.5, candidate=1)], RULES)


@pytest.mark.parametrize("looks", [(), (80, 80), (160, 80), (0, 10)])
def test_looks_that_do_not_rise_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError):
        GateRules(looks=looks)


def test_what_needs_no_pairs_is_decided_early() -> None:
    same = refuse_early(same_content=True, leaks=(), confirm_tasks=40)
    leak = refuse_early(same_content=False, leaks=("a and b are equal",), confirm_tasks=40)
    none = refuse_early(same_content=False, leaks=(), confirm_tasks=0)
    assert [x and x.outcome for x in (same, leak, none)] == ["no_change", "leak", "invalid"]
    assert refuse_early(same_content=False, leaks=(), confirm_tasks=40) is None


def test_the_error_of_a_run_is_shared_by_its_candidates() -> None:
    assert ErrorPool(alpha=0.05, max_candidates=4).share == 0.0125


@pytest.mark.parametrize(("psi", "points"), [(0.1, 5.0), (0.2, 7.2), (0.3, 8.9), (0.5, 11.4)])
def test_the_minimum_detectable_effect_matches_the_published_values(
    psi: float, points: float
) -> None:
    assert abs(100 * minimum_detectable_effect(0.0125, psi, 400) - points) < 0.15


def test_the_task_level_z_of_equal_counts_is_the_one_sample_t() -> None:
    results = pairs("WWWL++")
    d = [1, 1, 1, -1, 0, 0]
    center = sum(d) / 6
    sd = math.sqrt(sum((x - center) ** 2 for x in d) / 5)
    z = task_level_z(results)
    assert z is not None
    assert math.isclose(z, center / (sd / math.sqrt(6)))
    assert task_level_z(pairs("++")) is None


def run_gate(
    p: Sequence[float], q: Sequence[float], rng: random.Random, lose: Callable[[int], bool]
) -> GateResult:
    """One simulated test; `lose` says whether an attempt of the candidate is lost, by result."""
    ids = [f"{i:02}" for i in range(len(p))]
    results = list[PairResult]()
    for pair in plan_pairs(ids, 400, seed=rng.getrandbits(32)):
        i = int(pair.task_id)
        old, new = int(rng.random() < p[i]), int(rng.random() < q[i])
        seen = None if lose(new) else float(new)
        results.append(PairResult(task_id=pair.task_id, incumbent=float(old), candidate=seen))
        if len(results) in LOOKS:
            found = decide(results, RULES)
            if found is not None:
                return found
    raise AssertionError("the cap always decides")


def adoption_rate(
    p: Sequence[float],
    q: Sequence[float],
    runs: int,
    lose: Callable[[random.Random, int], bool] = lambda _rng, _new: False,
) -> float:
    rng = random.Random(7)
    found = [run_gate(p, q, rng, lambda new: lose(rng, new)).outcome for _ in range(runs)]
    return found.count("adopt") / runs


COIN = [0.5] * 40
MIXED = [1.0] * 18 + [0.0] * 14 + [0.5] * 8


@pytest.mark.slow
@pytest.mark.parametrize("world", [COIN, MIXED])
def test_a_candidate_that_changed_nothing_is_adopted_no_more_often_than_alpha(
    world: list[float],
) -> None:
    assert adoption_rate(world, world, 2000) <= 0.0125 + 3 * 0.0025


@pytest.mark.slow
def test_ten_points_are_adopted_as_often_as_promised() -> None:
    shift = 0.1 * 40 / 22  # every task that can rise gains the same
    mixed = [min(1.0, x + shift) if x < 1 else 1.0 for x in MIXED]
    assert adoption_rate(COIN, [0.6] * 40, 1000) >= 0.63 - 0.03
    assert adoption_rate(MIXED, mixed, 1000) >= 0.985 - 0.005


@pytest.mark.slow
def test_losing_only_failing_attempts_does_not_fake_a_gain() -> None:
    rate = adoption_rate(COIN, COIN, 1000, lambda rng, new: new == 0 and rng.random() < 0.1)
    assert rate <= 0.0125 + 3 * 0.0035


def test_importing_the_gate_does_not_load_scipy() -> None:
    code = "import sys, learnloop.gate; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
