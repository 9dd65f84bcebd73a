"""Graders made of graders: `multi` computes a formula over them, `cascade` asks the next where one is unsure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from learnloop.errors import GraderError
from learnloop.grader import Grader
from learnloop.graders.formula import Formula
from learnloop.graders.version import version_of
from learnloop.task import Task
from learnloop.trace import Score, Trace

_CODE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MultiGrader:
    """A formula over the values of named graders.

    `correct` names the grader that says whether the answer is right; empty takes the formula's own
    value, right from `pass_threshold` on where there is one. `parts` holds the value of each grader under its
    name, and its own parts under `name/part`.
    """

    graders: Mapping[str, Grader]
    formula: Formula
    correct: str = ""
    pass_threshold: float = 0.0

    @property
    def version(self) -> str:
        """Return the version of code, settings and graders."""
        settings = (self.formula.text, self.correct, self.pass_threshold)
        inner = {name: grader.version for name, grader in self.graders.items()}
        return version_of("multi", _CODE_VERSION, settings=settings, graders=inner)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the formula's value.

        Raises:
            GraderError: a grader could not score, or the formula has no value from 0 to 1.
        """
        scores = {name: await grader.grade(task, trace) for name, grader in self.graders.items()}
        value = self.formula({name: score.value for name, score in scores.items()})
        if not 0 <= value <= 1:
            words = f"`{self.formula.text}` is {value:g}, not between 0 and 1"
            raise GraderError(words, kind="bad_score", retryable=False)
        if self.correct:
            correct = scores[self.correct].correct
        else:
            correct = float(value >= self.pass_threshold) if self.pass_threshold else value
        return Score(
            value=value,
            correct=correct,
            parts=_parts(scores, self.correct),
            explanation=_words(scores),
            flags=tuple(dict.fromkeys(flag for score in scores.values() for flag in score.flags)),
        )


@dataclass(frozen=True, kw_only=True)
class CascadeGrader:
    """Asks graders in order until one finds the answer right; the last one's verdict stands else.

    Cheap and certain ones come first, a judging model last: it sees only what they did not accept.
    """

    graders: Mapping[str, Grader]

    @property
    def version(self) -> str:
        """Return the version of code and graders."""
        inner = [(name, grader.version) for name, grader in self.graders.items()]
        return version_of("cascade", _CODE_VERSION, graders=inner)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the first score that is right, or the last one."""
        scores: dict[str, Score] = {}
        for name, grader in self.graders.items():
            scores[name] = await grader.grade(task, trace)
            if scores[name].is_right:
                break
        last = list(scores)[-1]
        return Score(
            value=scores[last].value,
            correct=scores[last].correct,
            parts=_parts(scores, last),
            explanation=_words(scores),
            flags=scores[last].flags,
        )


def _parts(scores: Mapping[str, Score], decisive: str) -> dict[str, float]:
    """Return each grader's value and parts; whether the answer was readable as the decisive one says."""
    parts: dict[str, float] = {}
    for name, score in scores.items():
        parts[name] = score.value
        parts |= {f"{name}/{part}": value for part, value in score.parts.items()}
    valid = scores[decisive].parts.get("valid") if decisive else None
    return parts if valid is None else {**parts, "valid": valid}


def _words(scores: Mapping[str, Score]) -> str:
    return "; ".join(f"{n}: {s.explanation}" for n, s in scores.items() if s.explanation)
