"""The string check: four operations, and no answer is never right."""

from __future__ import annotations

from typing import Any, cast

import anyio
import pytest

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.string_check import Operation, StringCheckGrader
from learnloop.task import Task
from learnloop.trace import Score, Trace, Turn


def grade(operation: Operation, text: str, gold: object = "Acme Corp") -> Score:
    item: dict[str, Any] = {"answer": gold}
    task = Task(id="t1", split="train", group="g", messages=(), tools=(), item=item)
    trace = Trace(
        id="x", task_id="t1", candidate_id="c", attempt=0, seed=0, turns=(Turn(text=text),)
    )
    return anyio.run(StringCheckGrader(operation=operation).grade, task, trace)


@pytest.mark.parametrize(
    ("operation", "text", "right"),
    [
        ("eq", " Acme Corp\n", 1),
        ("eq", "acme corp", 0),
        ("ne", "Acme", 1),
        ("ne", "Acme Corp", 0),
        ("like", "It is Acme Corp.", 1),
        ("like", "It is ACME CORP.", 0),
        ("ilike", "It is ACME CORP.", 1),
        ("ilike", "Acme", 0),
    ],
)
def test_each_operation_does_what_its_name_says(
    operation: Operation, text: str, right: int
) -> None:
    assert grade(operation, text).value == right


def test_saying_nothing_is_wrong_even_for_ne() -> None:
    score = grade("ne", "  ")
    assert (score.value, score.parts["valid"]) == (0.0, 0.0)


@pytest.mark.parametrize("gold", [None, "", 12])
def test_a_row_without_reference_text_is_no_zero(gold: object) -> None:
    with pytest.raises(GraderError, match="t1"):
        grade("like", "anything", gold)


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(ConfigError, match="contains"):
        StringCheckGrader(operation=cast("Operation", "contains"))
