"""Measures of likeness: known values, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.graders.similarity import METRICS

TEXTS = st.text(st.sampled_from("abc de.F9 "), max_size=40)
CAT, MAT = "the cat sat on the mat", "the cat was on the mat"


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        # 5 of 6 words; 3 of 5 pairs; 1 of 4 triples; the longest common run of words has 5.
        ("rouge_1", 5 / 6),
        ("rouge_2", 3 / 5),
        ("rouge_3", 1 / 4),
        ("rouge_l", 5 / 6),
        # the, cat, on, the, mat in two runs: 5/6 x (1 - 0.5 (2/5)^3).
        ("meteor", 5 / 6 * (1 - 0.5 * (2 / 5) ** 3)),
        # 5 + 3 + 1 + 0 of 6 + 5 + 4 + 3.
        ("gleu", 9 / 18),
        # (5/6 x 4/6 x 2/5 x 1/4) ^ 1/4, one added from pairs on.
        ("bleu", (5 / 6 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25),
        ("cosine", 7 / 8),
    ],
)
def test_measures_of_a_known_pair(metric: str, value: float):
    assert METRICS[metric](CAT, MAT) == pytest.approx(value)


def test_a_wrong_number_can_look_more_like_the_right_one_than_the_right_one():
    """Why numbers are compared as numbers: gold 0.07, once as 7 %."""
    fuzzy = METRICS["fuzzy_match"]
    assert fuzzy("0.7", "0.07") > 0.8
    assert fuzzy("7%", "0.07") < 0.4


@pytest.mark.parametrize("metric", METRICS)
@given(text=TEXTS, other=TEXTS)
def test_measures_lie_between_0_and_1_and_nothing_is_like_nothing(
    metric: str, text: str, other: str
):
    assert 0 <= METRICS[metric](text, other) <= 1 + 1e-9
    assert METRICS[metric]("", "abc") == 0


@pytest.mark.parametrize("metric", [m for m in METRICS if m[-1] not in "2345"])
def test_a_text_is_like_itself(metric: str):
    # METEOR's penalty leaves a little: one run of six words.
    assert METRICS[metric](CAT, CAT) == pytest.approx(1.0, abs=0.01)
