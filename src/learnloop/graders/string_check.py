"""Compares the agent's answer with the expected text."""

from __future__ import annotations

from typing import Literal, get_args

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.final_answer import final_text
from learnloop.graders.version import version_of
from learnloop.task import Task, field_of
from learnloop.trace import Score, Trace

Operation = Literal["eq", "ne", "like", "ilike"]

_CODE_VERSION = 1


class StringCheckGrader:
    """1 when the answer equals (`eq`), differs from (`ne`) or contains (`like`) the reference.

    `ilike` is `like` whatever the case. White space around the answer does not count. No answer
    at all is always 0, with `ne` too.
    """

    def __init__(self, *, reference: str = "answer", operation: Operation = "eq") -> None:
        if operation not in get_args(Operation):
            fix = f"Use one of {', '.join(get_args(Operation))}."
            raise ConfigError(f"unknown operation {operation!r}", where="[grader]", fix=fix)
        self._reference, self._operation = reference, operation

    @property
    def version(self) -> str:
        """Return the version of code and settings."""
        settings = {"reference": self._reference, "operation": self._operation}
        return version_of("string_check", _CODE_VERSION, **settings)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return 1 or 0; `parts["valid"]` says whether there was an answer."""
        expected: object = field_of(task.item, self._reference)
        if not isinstance(expected, str) or not expected:
            what = f"task {task.id}: field {self._reference!r} is {expected!r}, not a text"
            raise GraderError(what, kind="bad_reference", retryable=False)
        answer = final_text(trace)
        if not answer:
            return Score(
                value=0.0, correct=0.0, parts={"valid": 0.0}, explanation="no final answer"
            )
        correct = float(self._holds(answer, expected.strip()))
        words = f"{self._operation} {'holds' if correct else 'does not hold'}"
        return Score(value=correct, correct=correct, parts={"valid": 1.0}, explanation=words)

    def _holds(self, answer: str, expected: str) -> bool:
        """Apply the operation."""
        if self._operation == "eq":
            return answer == expected
        if self._operation == "ne":
            return answer != expected
        if self._operation == "like":
            return expected in answer
        return expected.casefold() in answer.casefold()
