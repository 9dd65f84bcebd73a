"""The numeric grader: one number, compared exactly or within a tolerance."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.numeric import NumericGrader
from learnloop.message import ToolCall
from learnloop.task import Task
from learnloop.trace import Score, Trace, Turn


def task_with(**item: Any) -> Task:
    return Task(id="t1", split="train", group="g", messages=(), tools=(), item=item)


def trace_with(*turns: Turn) -> Trace:
    return Trace(id="trace_1", task_id="t1", candidate_id="c", attempt=0, seed=0, turns=turns)


def grade(grader: NumericGrader, text: str, **item: Any) -> Score:
    return anyio.run(grader.grade, task_with(**item), trace_with(Turn(text=text)))


def test_an_equal_number_is_right_however_it_is_written() -> None:
    score = grade(NumericGrader(), "Answer: $1.2 million", answer=1_200_000)
    assert (score.value, score.correct, score.parts["valid"]) == (1.0, 1.0, 1.0)
    assert score.explanation == "1200000 matches 1200000"


def test_a_wrong_number_is_valid_but_wrong() -> None:
    score = grade(NumericGrader(), "13", answer="12")
    assert (score.value, score.parts["valid"]) == (0.0, 1.0)


def test_a_dump_of_numbers_is_invalid_even_with_the_right_one_in_it() -> None:
    score = grade(NumericGrader(abs_tol=100), "12, 13 and 14", answer=13)
    assert (score.value, score.parts["valid"]) == (0.0, 0.0)


def test_seven_and_seven_percent_differ_unless_the_row_counts_in_percent() -> None:
    assert grade(NumericGrader(), "7%", answer=0.07).correct == 1
    assert grade(NumericGrader(), "7%", answer=7).correct == 0
    assert grade(NumericGrader(), "7", answer=0.07).correct == 0
    assert grade(NumericGrader(), "7%", answer=7, unit="percent").correct == 1


@pytest.mark.parametrize(("text", "right"), [("100.5", 1), ("100.51", 0), ("99.5", 1)])
def test_an_absolute_tolerance_includes_its_edge(text: str, right: int) -> None:
    assert grade(NumericGrader(abs_tol=0.5), text, answer=100).correct == right


def test_the_wider_of_both_tolerances_counts() -> None:
    grader = NumericGrader(abs_tol=0.5, rel_tol=0.01)
    assert grade(grader, "202", answer=200).correct == 1
    assert grade(grader, "203", answer=200).correct == 0
    assert grade(grader, "-1.4", answer=-1).correct == 1


def test_a_row_brings_its_own_tolerance() -> None:
    assert grade(NumericGrader(), "101", answer=100, abs_tol=1).correct == 1
    assert grade(NumericGrader(abs_tol=5), "101", answer=100, abs_tol=0).correct == 0
    assert grade(NumericGrader(), "101", answer=100, rel_tol=0.01).correct == 1


def test_a_turn_that_still_asks_for_tools_is_no_answer() -> None:
    call = ToolCall(id="c", name="cat", arguments='{"year": 12}')
    trace = trace_with(Turn(text="cat 12", tool_calls=(call,)))
    for last in (trace, trace_with(Turn(text="12", malformed="cat 12")), trace_with()):
        score = anyio.run(NumericGrader().grade, task_with(answer=12), last)
        assert (score.value, score.parts["valid"]) == (0.0, 0.0)


@pytest.mark.parametrize("gold", [None, True, "twelve", float("nan"), [12], "12 or 13"])
def test_a_row_without_one_expected_number_is_the_datasets_fault_not_a_zero(gold: object) -> None:
    with pytest.raises(GraderError, match="t1"):
        grade(NumericGrader(), "12", answer=gold)


def test_a_nonsense_tolerance_in_a_row_is_refused() -> None:
    with pytest.raises(GraderError, match="abs_tol"):
        grade(NumericGrader(), "12", answer=12, abs_tol=-1)


def test_negative_tolerances_are_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        NumericGrader(abs_tol=-1)


def test_the_version_changes_with_every_setting() -> None:
    graders = (
        NumericGrader(),
        NumericGrader(reference="gold"),
        NumericGrader(abs_tol=1),
        NumericGrader(rel_tol=1),
    )
    assert len({g.version for g in graders}) == 4
    assert NumericGrader().version == NumericGrader().version
