"""Graders that compare two texts, each made from a template: `string_check` and `text_similarity`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from learnloop.graders.endpoint import sample_of
from learnloop.graders.similarity import METRICS
from learnloop.graders.template import filled
from learnloop.graders.version import version_of
from learnloop.task import Task
from learnloop.trace import Score, Trace

_CODE_VERSION = 1

OPERATIONS: Mapping[str, Callable[[str, str], bool]] = {
    "eq": lambda text, reference: text == reference,
    "ne": lambda text, reference: text != reference,
    "like": lambda text, reference: reference in text,
    "ilike": lambda text, reference: reference.casefold() in text.casefold(),
}


@dataclass(frozen=True, kw_only=True)
class TextGrader:
    """Compares `input` with `reference`.

    `measure` is an operation of `string_check` or a metric of `text_similarity`. With a
    `pass_threshold` above 0 an answer is correct from that similarity on.
    """

    input: str
    reference: str
    measure: str
    pass_threshold: float = 0.0

    @property
    def version(self) -> str:
        """Return the version of code and settings."""
        settings = (self.input, self.reference, self.measure, self.pass_threshold)
        return version_of("texts", _CODE_VERSION, settings=settings)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return how the two texts compare.

        Raises:
            GraderError: a variable of a template is not there.
        """
        sample = sample_of(trace)
        text, reference = (filled(t, task.item, sample) for t in (self.input, self.reference))
        if self.measure in OPERATIONS:
            value = float(OPERATIONS[self.measure](text, reference))
        else:
            value = min(1.0, max(0.0, METRICS[self.measure](text, reference)))
        correct = float(value >= self.pass_threshold) if self.pass_threshold else value
        words = f"{self.measure} {value:.3g}"
        valid = {"valid": float(bool(text))}
        return Score(value=value, correct=correct, parts=valid, explanation=words)
