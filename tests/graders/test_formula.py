"""Formulas over scores: what they compute, and that nothing else gets in."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.formula import Formula, read_formula

SCORES = {"a": 0.5, "b": 0.25, "long_name": 1.0}


def read(text: str) -> Formula:
    return read_formula(text, SCORES, where="here")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 0.5),
        ("0.7 * a + 0.3 * b", 0.425),
        ("a + b * 2", 1.0),
        ("(a + b) * 2", 1.5),
        ("a - b - b", 0.0),
        ("1 / a / 2", 1.0),
        ("-a + 1", 0.5),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        ("min(a, b, long_name)", 0.25),
        ("max(a, 3 * b)", 0.75),
        ("max(a)", 0.5),
        ("abs(b - a)", 0.25),
        ("floor(1.9) + ceil(0.1)", 2),
        ("exp(0) + log(1) + sqrt(4)", 3),
        ("1e-1 + .5", 0.6),
        ("a*(0.8+0.2*b)", 0.425),
    ],
)
def test_formulas_follow_the_usual_rules(text: str, value: float):
    assert read(text)(SCORES) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "something is missing at the end"),
        ("a +", "something is missing at the end"),
        ("a b", "`b` is too much"),
        ("(a", "a `)` is missing"),
        ("a)", "`)` is too much"),
        ("c + 1", "`c` is no grader (a, b, long_name) and no function"),
        ("min", "`min` is no grader"),
        ("sqrt(a, b)", "`sqrt` takes 1 value"),
        ("a ** b", "`*` is no grader"),
        ("__import__('os')", "is no part of a formula"),
        ("a.__class__", "is no part of a formula"),
        ("a; b", "is no part of a formula"),
        ("(" * 200 + "a" + ")" * 200, "too many parentheses"),
        ("-" * 300 + "a", "too many signs"),
        ("a + " * 2000 + "a", "longer than"),
    ],
)
def test_what_is_no_formula_is_refused_when_it_is_read(text: str, words: str):
    with pytest.raises(ConfigError) as error:
        read(text)
    assert words in str(error.value)
    assert str(error.value).startswith("here: ")


@pytest.mark.parametrize(
    "text", ["a / (b - b)", "log(0)", "sqrt(-a)", "(0-a) ^ 0.5", "exp(1000)", "9 ^ 9 ^ 9"]
)
def test_a_formula_without_a_value_is_a_fault_and_no_zero(text: str):
    with pytest.raises(GraderError):
        read(text)(SCORES)


@given(
    st.recursive(
        st.sampled_from(["a", "b", "2", "0.5"]),
        lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        max_leaves=12,
    )
)
def test_sums_and_products_are_those_of_python(text: str):
    expected = eval(text, {}, dict(SCORES))
    assert read(text)(SCORES) == pytest.approx(expected)
    assert math.isfinite(expected)
