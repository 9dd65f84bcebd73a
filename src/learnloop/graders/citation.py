"""Scores the sources that an answer names: are they real, are they the right ones, do they bear it out?

With expected sources in the row: precision, recall and F1 against them. Without: recall is the share of
statements that their sources bear out, precision the share of named sources that bear out something (the
measures of ALCE, arXiv 2305.14627), by words and numbers in place of a model of entailment. A source that no
tool returned in this rollout is fabricated: it counts as wrong, and is flagged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from learnloop.errors import GraderError
from learnloop.graders.final_answer import final_text
from learnloop.graders.version import version_of
from learnloop.task import Task, field_of
from learnloop.trace import Score, Trace

FABRICATED = "citation_fabricated"
STUFFED = "citation_stuff"

_CODE_VERSION = 1
_CITED = re.compile(r"\[([^\[\]\n]{1,200})\]")
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_WORD = re.compile(r"[^\W\d_]{4,}")
_SHARED_WORDS = 0.5
"""Share of a statement's words that its sources must hold."""


@dataclass(frozen=True, kw_only=True)
class CitationGrader:
    """Scores `[source]` in the final answer.

    `reference` names the field of the row with the expected sources; empty: there are none. More than
    `most` different sources are flagged, and only the first ones count.
    """

    reference: str = ""
    most: int = 10

    @property
    def version(self) -> str:
        """Return the version of code and settings."""
        return version_of("citation", _CODE_VERSION, reference=self.reference, most=self.most)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the F1 of the sources; `parts` has precision, recall and how many are fabricated.

        Raises:
            GraderError: the row's expected sources are no list of texts.
        """
        answer = final_text(trace)
        cited = list(dict.fromkeys(c.strip() for c in _CITED.findall(answer)))
        flags = [STUFFED] if len(cited) > self.most else []
        cited = cited[: self.most]
        outputs = _returned(trace)
        real = {name: found for name in cited if (found := _of(name, outputs))}
        made_up = [name for name in cited if name not in real]
        if made_up:
            flags.append(FABRICATED)
        if self.reference:
            precision, recall = _against(self._expected(task), cited, real.keys())
        else:
            precision, recall = _borne_out(answer, cited, real)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return Score(
            value=f1,
            correct=f1,
            parts={
                "precision": precision,
                "recall": recall,
                "cited": float(len(cited)),
                "fabricated": float(len(made_up)),
            },
            explanation=f"no tool returned: {', '.join(made_up)[:200]}" if made_up else "",
            flags=tuple(flags),
        )

    def _expected(self, task: Task) -> list[str]:
        found: object = field_of(task.item, self.reference)
        if isinstance(found, str):
            found = [found]
        names = cast("list[object]", found) if isinstance(found, list) else []
        if not names or not all(isinstance(n, str) for n in names):
            what = f"task {task.id}: field {self.reference!r} is {found!r}, no list of sources"
            raise GraderError(what, kind="bad_reference", retryable=False)
        return cast("list[str]", names)


def _returned(trace: Trace) -> list[tuple[str, str]]:
    """Return what each good call was asked for and what it returned."""
    return [(c.call.arguments, c.output) for c in trace.calls_run if not c.is_error]


def _of(name: str, outputs: Sequence[tuple[str, str]]) -> str:
    """Return what the tools returned of a source: what it was opened with, else what names it."""
    opened = [output for asked, output in outputs if f'"{name}"' in asked]
    named = [output for _, output in outputs if name in output]
    return "\n".join(opened or named)


def _against(
    expected: Sequence[str], cited: Sequence[str], real: Iterable[str]
) -> tuple[float, float]:
    hits = len({*expected} & {*real})
    return (hits / len(cited) if cited else 0.0), hits / len({*expected})


def _borne_out(answer: str, cited: Sequence[str], real: dict[str, str]) -> tuple[float, float]:
    """Return precision and recall of sources by what the statements before them say."""
    statements = [
        s for s in _SENTENCE.split(answer) if _NUMBER.search(_CITED.sub("", s)) or _CITED.search(s)
    ]
    held, useful = 0, set[str]()
    for statement in statements:
        sources = [c.strip() for c in _CITED.findall(statement)]
        words = _CITED.sub("", statement)
        bearing = {s for s in sources if s in real and _bears_out(real[s], words)}
        union = "\n".join(real[s] for s in sources if s in real)
        if union and _bears_out(union, words):
            held += 1
            useful |= bearing or {s for s in sources if s in real}
    recall = held / len(statements) if statements else 0.0
    return (len(useful) / len(cited) if cited else 0.0), recall


def _bears_out(source: str, statement: str) -> bool:
    """Return whether a source holds every number of a statement and half of its words."""
    numbers = {n.replace(",", "") for n in _NUMBER.findall(statement)}
    there = {n.replace(",", "") for n in _NUMBER.findall(source)}
    words = {w.casefold() for w in _WORD.findall(statement)}
    known = {w.casefold() for w in _WORD.findall(source)}
    return numbers <= there and len(words & known) >= _SHARED_WORDS * len(words)
