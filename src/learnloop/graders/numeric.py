"""Compares the one number that the agent answers with the expected one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.final_answer import final_answer, final_text
from learnloop.graders.number import Unit, read_number
from learnloop.graders.version import version_of
from learnloop.task import Task, field_of
from learnloop.trace import Score, Trace

_CODE_VERSION = 1


class NumericGrader:
    """Right when `|answer - expected| <= max(abs_tol, rel_tol * |expected|)`, else wrong.

    A row may bring its own `abs_tol` and `rel_tol`, and `unit: "percent"` when its expected value
    counts percentage points. Whether 7 and 0.07 are the same is never guessed.
    """

    def __init__(
        self, *, reference: str = "answer", abs_tol: float = 0.0, rel_tol: float = 0.0
    ) -> None:
        if abs_tol < 0 or rel_tol < 0:
            raise ConfigError("tolerances must not be negative", where="[grader]")
        self._reference, self._abs_tol, self._rel_tol = reference, abs_tol, rel_tol

    @property
    def version(self) -> str:
        """Return the version of code and settings."""
        return version_of(
            "numeric",
            _CODE_VERSION,
            reference=self._reference,
            abs_tol=self._abs_tol,
            rel_tol=self._rel_tol,
        )

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return 1 or 0; `parts["valid"]` says whether exactly one number was answered."""
        unit: Unit = "percent" if task.item.get("unit") == "percent" else "number"
        expected = self._expected(task, unit)
        stated = final_answer(final_text(trace))
        answer = read_number(stated, unit)
        if answer is None:
            why = f"no single number in {stated[:80]!r}" if stated else "no final answer"
            return Score(value=0.0, correct=0.0, parts={"valid": 0.0}, explanation=why)
        correct = float(abs(answer - expected) <= self._tolerance(task, expected))
        verb = "matches" if correct else "differs from"
        return Score(
            value=correct,
            correct=correct,
            parts={"valid": 1.0},
            explanation=f"{_shown(answer)} {verb} {_shown(expected)}",
        )

    def _expected(self, task: Task, unit: Unit) -> Decimal:
        """Return the expected number of a row."""
        gold: Any = field_of(task.item, self._reference)
        usable = isinstance(gold, str | int | float | Decimal) and not isinstance(gold, bool)
        number = read_number(str(gold), unit) if usable else None
        if number is None:
            what = f"task {task.id}: field {self._reference!r} is {gold!r}, not one number"
            raise GraderError(what, kind="bad_reference", retryable=False)
        return number

    def _tolerance(self, task: Task, expected: Decimal) -> Decimal:
        """Return the largest difference that is still right."""
        absolute = _tolerance_of(task, "abs_tol", self._abs_tol)
        relative = _tolerance_of(task, "rel_tol", self._rel_tol)
        return max(absolute, relative * abs(expected))


def _tolerance_of(task: Task, name: str, default: float) -> Decimal:
    """Return a row's own tolerance, or the configured one."""
    value: Any = task.item.get(name, default)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
    ):
        what = f"task {task.id}: {name} is {value!r}, not a number of 0 or more"
        raise GraderError(what, kind="bad_tolerance", retryable=False)
    return Decimal(str(value))


def _shown(number: Decimal) -> str:
    """Return a number without exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
