"""Numbers as reports write them, and what must not pass for one number."""

from __future__ import annotations

from decimal import Decimal

import pytest

from learnloop.graders.final_answer import final_answer
from learnloop.graders.number import read_number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", "12"),
        ("-12.50", "-12.5"),
        ("+3", "3"),
        (".5", "0.5"),
        ("\u22121,234", "-1234"),
        ("\uff0d7", "-7"),
        ("(35)", "-35"),
        ("$(35)", "-35"),
        ("(1,234.5)", "-1234.5"),
        ("($1.2 million)", "-1200000"),
        ("(35)%", "-0.35"),
        ("(35%)", "-0.35"),
        ("$1,234,567.89", "1234567.89"),
        ("-$35", "-35"),
        ("$-35", "-35"),
        ("US$ 35", "35"),
        ("\u20ac 12 345", "12345"),
        ("12\u202f345\u202f678", "12345678"),
        ("1'234'567", "1234567"),
        ("35 EUR", "35"),
        ("7%", "0.07"),
        ("7 percent", "0.07"),
        ("7 percentage points", "0.07"),
        ("25 bps", "0.0025"),
        ("1.2 million", "1200000"),
        ("1.2m", "1200000"),
        ("3bn", "3000000000"),
        ("3 Billion", "3000000000"),
        ("12k", "12000"),
        ("2 trillion", "2000000000000"),
        ("1.5e3", "1500"),
        ("about 35 apples", "35"),
        ("The revenue was $12 million.", "12000000"),
        ("Q4 revenue: 35.", "35"),
        ("12 metres", "12"),
    ],
)
def test_a_number_is_read_as_it_is_meant(text: str, expected: str) -> None:
    assert read_number(text) == Decimal(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "12, 13 and 14",
        "12 or 13",
        "12-13",
        "12\u201313",
        "12/13",
        "1,2,3",
        "12,34",
        "12.34.56",
        "1,234,56",
        "2019-05-06",
        "12:30",
        "--5",
        "NaN",
        "inf",
        "1" * 80,
        "Q4",
        "1e99999",
    ],
)
def test_several_numbers_or_none_are_refused(text: str) -> None:
    assert read_number(text) is None


def test_percentage_points_are_kept_when_the_row_counts_in_them() -> None:
    assert read_number("7%", "percent") == 7
    assert read_number("7", "percent") == 7
    assert read_number("50 bps", "percent") == Decimal("0.5")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I looked it up in 2019.\nAnswer: 12", "12"),
        ("answer = 12", "12"),
        ("**Final answer: 12**", "12"),
        ("The answer is 12.", "12."),
        ("so <answer> 12 </answer> it is, in 2019", "12"),
        ("<answer>12</answer><answer>13</answer>", ""),
        ('{"answer": 12, "year": 2019}', "12"),
        ('```json\n{"answer": "12 million"}\n```', "12 million"),
        ('{"answer": [12, 13]}', ""),
        ('{"answer": 12, "value": 13}', ""),
        ("12\n\n", "12"),
        ("", ""),
    ],
)
def test_the_final_answer_is_found(text: str, expected: str) -> None:
    assert final_answer(text) == expected
