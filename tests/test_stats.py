"""Intervals, tests and counts, against values known from elsewhere and against simulation."""

from __future__ import annotations

import math
import random
import subprocess
import sys

import numpy as np
import pytest

from learnloop import stats
from learnloop.stats import UnitSums, UnitValues, ratio


def near(value: float | None, wanted: float, tolerance: float = 1e-9) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=0, abs_tol=tolerance)


def test_student_and_normal_quantiles_match_the_printed_tables() -> None:
    assert near(stats.t_quantile(0.975, 1), 12.7062, 1e-4)
    assert near(stats.t_quantile(0.975, 10), 2.2281, 1e-4)
    assert near(stats.normal_quantile(0.975), 1.959964, 1e-6)


def test_the_t_interval_matches_the_textbook_and_one_value_has_none() -> None:
    found = stats.t_interval([1.0, 2.0, 3.0, 4.0])
    assert found is not None
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert near(found.low, 2.5 - half, 1e-5)
    assert near(found.high, 2.5 + half, 1e-5)
    alone = stats.t_interval([3.0])
    assert alone is not None
    assert (alone.low, alone.high) == (None, None)
    assert stats.t_interval([]) is None


def test_plus_two_t_prints_the_plain_mean_and_stays_honest_when_nothing_differs() -> None:
    found = stats.plus_two_t([0.0] * 20)
    assert found is not None
    assert found.value == 0.0
    assert found.low is not None
    assert found.low < -0.05
    shifted = stats.plus_two_t([0.2] * 20)
    assert shifted is not None
    assert shifted.value == 0.2 or near(shifted.value, 0.2)
    assert shifted.above_zero


def test_wilson_matches_the_known_interval() -> None:
    low, high = stats.wilson(0.1, 10)
    assert near(low, 0.0179, 1e-4)
    assert near(high, 0.4042, 1e-4)


def test_copies_of_an_attempt_add_nothing_to_the_interval_of_a_rate() -> None:
    """Tasks that always give the same result: five attempts say no more than one."""
    means = [1.0] * 18 + [0.0] * 22
    once, often = stats.clustered_share(means, 40), stats.clustered_share(means, 200)
    assert once is not None
    assert often is not None
    assert near(often.low, once.low or 0.0, 0.01)
    assert near(often.high, once.high or 0.0, 0.01)


def test_a_rate_of_one_still_has_an_interval_that_counts_tasks() -> None:
    found = stats.clustered_share([1.0] * 10, 50)
    assert found is not None
    assert found.high == 1.0
    assert found.low is not None
    assert 0.6 < found.low < 0.75
    assert stats.clustered_share([], 0) is None


def test_the_clustered_rate_covers_the_truth_95_times_in_100() -> None:
    rng, covered, runs = random.Random(3), 0, 400
    for _ in range(runs):
        rates = [rng.choices([1.0, 0.0, 0.5], [18, 14, 8])[0] for _ in range(40)]
        means = [sum(rng.random() < p for _ in range(5)) / 5 for p in rates]
        found = stats.clustered_share(means, 200)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.55 <= found.high
    assert covered / runs >= 0.92


def test_plus_two_t_covers_the_truth_with_few_tasks() -> None:
    rng, covered, runs = random.Random(4), 0, 400
    for _ in range(runs):
        d = [rng.choices([0.0, 1.0, -1.0], [0.8, 0.15, 0.05])[0] for _ in range(20)]
        found = stats.plus_two_t(d)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.1 <= found.high
    assert covered / runs >= 0.91


def test_log_ratio_reads_as_relative_change() -> None:
    found = stats.log_ratio([(10.0, 5.0), (20.0, 10.0), (8.0, 4.0)])
    assert found is not None
    assert near(found.value, -0.5)
    assert near(found.high, -0.5)


def test_holm_steps_down_and_never_decreases() -> None:
    found = stats.holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert near(found["a"], 0.03)
    assert near(found["c"], 0.06)
    assert near(found["b"], 0.06)
    assert stats.holm({}) == {}


def test_sign_flips_are_exact_for_few_units_and_close_to_exact_for_many() -> None:
    assert stats.sign_flip_p([1.0] * 5) == 2 / 32
    assert stats.sign_flip_p([0.0] * 9) == 1.0
    assert stats.sign_flip_p([]) == 1.0
    d = [1.0] * 14 + [-1.0] * 6
    exact = 2 * sum(math.comb(20, k) for k in range(14, 21)) / 2**20
    assert near(stats.sign_flip_p(d), exact, 0.01)
    assert stats.sign_flip_p(d) == stats.sign_flip_p(d)
    assert stats.sign_flip_p([1.0] * 40) < 0.001


@pytest.mark.parametrize(
    ("n", "correct", "k", "any_of", "all_of"),
    [(5, 2, 1, 0.4, 0.4), (5, 2, 2, 0.7, 0.1), (5, 5, 3, 1.0, 1.0), (5, 0, 5, 0.0, 0.0)],
)
def test_pass_at_k_and_pass_hat_k(
    n: int, correct: int, k: int, any_of: float, all_of: float
) -> None:
    assert near(stats.pass_at_k(n, correct, k), any_of)
    assert near(stats.pass_hat_k(n, correct, k), all_of)


def test_a_ratio_of_sums_has_an_interval_and_none_without_a_denominator() -> None:
    found = stats.ratio_of_sums(UnitSums(top=[4.0, 6.0, 8.0, 6.0], bottom=[1.0, 2.0, 2.0, 1.0]))
    assert found is not None
    assert found.value == 4.0
    assert found.low is not None
    assert found.high is not None
    assert 1.5 <= found.low < 4.0 < found.high <= 11.0
    assert math.isclose(found.low * found.high, 16.0)
    assert stats.ratio_of_sums(UnitSums(top=[4.0, 2.0], bottom=[0.0, 0.0])) is None
    assert stats.ratio_of_sums(UnitSums(top=[], bottom=[])) is None


def test_a_ratio_of_zero_or_from_one_solving_unit_falls_back_to_the_bootstrap() -> None:
    free = stats.ratio_of_sums(UnitSums(top=[0.0, 0.0, 0.0], bottom=[1.0, 2.0, 1.0]))
    assert free is not None
    assert (free.value, free.low, free.high) == (0.0, 0.0, 0.0)
    alone = stats.ratio_of_sums(UnitSums(top=[3.0, 0.0, 0.0], bottom=[1.0, 0.0, 0.0]))
    assert alone is not None
    assert alone.value == 3.0


def test_many_units_take_the_normal_law_of_the_flipped_sum() -> None:
    d = np.random.default_rng(4).normal(0.05, 1.0, 1500).tolist()
    near_law = stats.sign_flip_p(d)
    drawn = stats.sign_flip_p(d[:1000])
    assert 0 < near_law < 1
    assert 0 < drawn < 1
    even = [1.0, -1.0] * 600
    assert near(stats.sign_flip_p(even), 1.0)


def test_ten_thousand_units_take_no_square_of_memory() -> None:
    rng = np.random.default_rng(2)
    many = UnitSums(top=rng.lognormal(0, 1, 10_000).tolist(), bottom=[1.0] * 10_000)
    found = stats.change_of_ratios(many, many)
    assert found is not None
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_the_mean_of_skewed_costs_is_covered_at_thirty_tasks() -> None:
    rng, covered = np.random.default_rng(8), 0
    for _ in range(1000):
        found = stats.cost_mean(rng.lognormal(0, 0.6, 30).tolist())
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= math.exp(0.18) <= found.high
    assert covered / 1000 >= 0.92


def test_the_interval_of_a_ratio_covers_the_truth() -> None:
    rng, covered, runs = np.random.default_rng(5), 0, 200
    for _ in range(runs):
        level = rng.gamma(4.0, 1.0, size=60)
        before = UnitSums(top=list(level * rng.gamma(9, 1 / 9, 60)), bottom=[1.0] * 60)
        after = UnitSums(top=list(0.6 * level * rng.gamma(9, 1 / 9, 60)), bottom=[1.0] * 60)
        found = stats.change_of_ratios(before, after)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= -0.4 <= found.high
    assert covered / runs >= 0.9


def test_the_change_of_medians_pools_values_of_all_units() -> None:
    before = values_of([[1.0, 2.0], [3.0], [4.0]])
    after = values_of([[1.0], [], [2.0, 3.0]])
    found = stats.change_of_quantiles(before, after, units=3)
    assert found is not None
    assert near(found.value, 2.0 / 2.5 - 1)
    assert stats.change_of_quantiles(values_of([[1.0]]), values_of([[]]), units=1) is None


def values_of(units: list[list[float]]) -> UnitValues:
    return UnitValues(
        values=np.array([value for unit in units for value in unit]),
        units=np.array([i for i, unit in enumerate(units) for _ in unit], dtype=np.intp),
    )


@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_quantiles_over_resamples_are_those_of_the_values_drawn(count: int) -> None:
    rng = np.random.default_rng(count)
    units = [[float(x) for x in rng.integers(0, 9, rng.integers(0, 6))] for _ in range(count)]
    units[0].append(3.0)
    arm = ratio._Sorted.of(values_of(units), count)
    weights = rng.multinomial(count, np.full(count, 1 / count), size=40).astype(np.float64)
    for q in (0.5, 0.95):
        for row, found in zip(weights, arm.quantiles(weights, q), strict=True):
            drawn = [v for unit, times in zip(units, row, strict=True) for v in unit * int(times)]
            assert near(float(np.quantile(drawn, q)), found) if drawn else math.isnan(found)


def test_the_swap_band_is_zero_for_equal_arms_and_wide_for_few_units() -> None:
    same = [[3.0, 1.0]] * 10
    assert stats.swapped_distance_p95(same, same) == 0.0
    few = stats.swapped_distance_p95([[4.0, 0.0]] * 3, [[0.0, 4.0]] * 3)
    many = stats.swapped_distance_p95([[4.0, 0.0]] * 60, [[0.0, 4.0]] * 60)
    assert few == 1.0
    assert many < 0.3


def test_tasks_needed_follows_the_formula() -> None:
    assert stats.tasks_needed(0.4, 0.1) == math.ceil((2.8 * 4) ** 2)


def test_the_unbiased_signal_share_counts_mixed_draws() -> None:
    # 2 passes in 4: of the 6 pairs, 4 are mixed.
    assert near(stats.signal_unbiased([(2, 4)], 2), 4 / 6)
    assert stats.signal_unbiased([(0, 5), (5, 5)], 3) == 0.0


@pytest.mark.parametrize("shape", [(0.3, 0.4), (1.0, 3.0), (50.0, 50.0)])
def test_the_fitted_signal_share_is_close_to_the_truth(shape: tuple[float, float]) -> None:
    rng, errors, free = random.Random(6), list[float](), list[float]()
    for _ in range(10):
        rates = [rng.betavariate(*shape) for _ in range(140)]
        cells = [(sum(rng.random() < p for _ in range(5)), 5) for p in rates]
        truth = sum(1 - p**8 - (1 - p) ** 8 for p in rates) / 140
        found = stats.signal_beta_binomial(cells, 8)
        assert found.low is not None
        errors.append(found.value - truth)
        free.append(stats.signal_npmle(cells, 8) - truth)
    assert abs(sum(errors) / len(errors)) < 0.03
    assert abs(sum(free) / len(free)) < 0.05


def test_importing_the_statistics_does_not_load_scipy() -> None:
    code = "import sys, learnloop.stats; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
