"""Advantages: centred, bounded, and none for groups that teach nothing."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.optimizers.rft.advantage import advantages, most_telling
from learnloop.summary import teaches


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([], False),
        ([1.0], False),
        ([0.0, 0.0], False),
        ([0.7] * 16, False),
        ([0.5, 0.5 + 1e-7], False),
        ([0.5, 0.5 + 1e-5], True),
        ([0.0, 1.0], True),
        ([1.0] * 15 + [0.8], True),
    ],
)
def test_a_group_teaches_when_two_rollouts_differ(rewards: list[float], expected: bool) -> None:  # noqa: FBT001
    assert teaches(rewards) is expected
    if not expected:
        assert advantages(rewards, "mean") == [0.0] * len(rewards)
        assert advantages(rewards, "mean_std") == [0.0] * len(rewards)


def test_the_mean_is_subtracted() -> None:
    assert advantages([1.0, 0.0, 0.0, 0.0], "mean") == [0.75, -0.25, -0.25, -0.25]


def test_the_deviation_of_the_group_divides_where_asked() -> None:
    found = advantages([1.0, 0.0], "mean_std")
    assert found == pytest.approx([0.5 / 0.501, -0.5 / 0.501])


@settings(derandomize=True, max_examples=200)
@given(rewards=st.lists(st.floats(0, 1), max_size=24), method=st.sampled_from(["mean", "mean_std"]))
def test_advantages_are_centred_ordered_and_bounded(
    rewards: list[float], method: Literal["mean", "mean_std"]
) -> None:
    found = advantages(rewards, method)
    assert len(found) == len(rewards)
    if not rewards:
        return
    assert abs(fmean(found)) < 1e-9
    bound = 1.0 if method == "mean" else math.sqrt(len(rewards))
    assert max(map(abs, found)) <= bound
    for (r1, a1), (r2, a2) in zip(
        zip(rewards, found, strict=True), zip(rewards[1:], found[1:], strict=True), strict=False
    ):
        assert (r1 - r2) * (a1 - a2) >= 0


@pytest.mark.parametrize(
    ("rewards", "most", "expected"),
    [
        ([0.0, 1.0, 0.0, 1.0], 0, [0, 1, 2, 3]),
        ([0.0, 1.0, 0.0, 1.0], 4, [0, 1, 2, 3]),
        ([0.0, 0.5, 0.8, 1.0], 2, [0, 3]),
        ([0.3, 0.9, 0.1, 0.8, 0.2], 3, [1, 2, 3]),
    ],
)
def test_the_lowest_and_highest_rewards_are_kept(
    rewards: list[float], most: int, expected: list[int]
) -> None:
    assert most_telling(rewards, most, "seed") == expected


def test_ties_are_drawn_by_the_seed_and_favour_nobody() -> None:
    rewards = [0.0, 0.0, 0.0, 1.0]
    drawn = [most_telling(rewards, 2, f"seed {n}") for n in range(600)]
    assert most_telling(rewards, 2, "seed 1") == drawn[1]
    assert all(3 in kept for kept in drawn)
    counts = [sum(i in kept for kept in drawn) for i in range(3)]
    assert all(150 < n < 250 for n in counts), counts


@given(
    rewards=st.lists(st.sampled_from([0.0, 0.8, 1.0]), min_size=2, max_size=16),
    most=st.integers(min_value=2, max_value=16),
)
@settings(derandomize=True, deadline=None)
def test_a_group_that_teaches_still_teaches_when_thinned_out(
    rewards: list[float], most: int
) -> None:
    kept = most_telling(rewards, most, "seed")
    assert len(kept) == min(most, len(rewards))
    assert teaches([rewards[i] for i in kept]) == teaches(rewards)
