"""The grader JSON of a hosted job, as far as a grader of this project does the same."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from learnloop.errors import ConfigError
from learnloop.formats.mapping import Mapped
from learnloop.formats.openai_rft.endpoints import Address, Variables, read_address
from learnloop.formats.openai_rft.json_file import table

_OUTPUT = re.compile(r"\s*\{\{\s*sample\.output_text\s*\}\}\s*")
_FIELD = re.compile(r"\s*\{\{\s*item\.(\w+(?:\.\w+)*)\s*\}\}\s*")
_OPERATIONS = ("eq", "ne", "like", "ilike")
_MOST_RATE = 1e6
_NOT_YET = {
    "text_similarity": "similarity of texts is no grader here yet; serve it as a grader endpoint",
    "score_model": "a judging model is no grader here yet; serve it as a grader endpoint",
    "label_model": "a labelling model is no grader here yet; serve it as a grader endpoint",
    "python": "Python source is not run here yet; serve the function as a grader endpoint",
    "multi": "combined graders are not computed here yet; serve the formula as a grader endpoint",
}


@dataclass(frozen=True, kw_only=True)
class Grading:
    """The grader of the new project: an endpoint, a comparison of texts, or none that fits.

    `reference` is the field of a row that holds the expected text. `pass_threshold` and
    `rate_limit` belong to an endpoint; 0 where the job says nothing.
    """

    address: Address | None = None
    pass_threshold: float = 0.0
    rate_limit: float = 0.0
    reference: str = ""
    operation: str = "eq"

    @property
    def missing(self) -> bool:
        """Return whether the project has no grader of its own yet."""
        return self.address is None and not self.reference


def read_grader(data: object, *, where: str, variables: Variables) -> tuple[Grading, list[Mapped]]:
    """Return the grader and what became of its parts.

    Raises:
        ConfigError: this is no grader at all.
    """
    fields = table(data, where)
    if "type" not in fields and "grader" in fields:
        fields = table(fields["grader"], where)
    kind = fields.get("type")
    if kind == "endpoint":
        return _endpoint(fields, where, variables)
    if kind == "string_check":
        return _string_check(fields, where)
    if isinstance(kind, str) and kind in _NOT_YET:
        return Grading(), [*_unmapped(fields, "grader")]
    fix = f"Known: endpoint, string_check, {', '.join(_NOT_YET)}."
    raise ConfigError("is no grader: its `type` is missing or unknown", where=where, fix=fix)


def _endpoint(
    fields: Mapping[str, Any], where: str, variables: Variables
) -> tuple[Grading, list[Mapped]]:
    address, lost = read_address(fields, "url", owner="grader", where=where, variables=variables)
    taken = Mapped(source="grader endpoint", value=address.url, fate="taken", target="[grader]")
    threshold = _number(fields, "pass_threshold", where)
    rate = _number(fields, "rate_limit", where)
    if not 0 <= rate <= _MOST_RATE:
        raise ConfigError(f"`rate_limit` is {rate:g}, outside 0 to {_MOST_RATE:g}", where=where)
    grading = Grading(
        address=address,
        pass_threshold=threshold if 0 < threshold <= 1 else 0.0,
        rate_limit=rate,
    )
    why = {
        "rate_limit": "0 is no limit",
        "pass_threshold": "every score reaches 0; the score itself is the measure then",
        "name": "a project has one grader, without a name",
    }
    settings = [*_threshold(threshold), *_rate(rate)]
    used = {"url", "headers", *(m.source.removeprefix("grader: ") for m in settings)}
    return grading, [taken, *lost, *settings, *_ignored(fields, used, why)]


def _threshold(value: float) -> Iterator[Mapped]:
    """Say what becomes of the score from which an answer passes."""
    source = "grader: pass_threshold"
    if value < 0 or value > 1:
        why = "scores are from 0 to 1 here; another scale is a fault of the grader"
        yield Mapped(source=source, value=f"{value:g}", fate="unmapped", why=why)
    elif value:
        target = "grader.pass_threshold"
        yield Mapped(source=source, value=f"{value:g}", fate="taken", target=target)


def _rate(value: float) -> Iterator[Mapped]:
    """Say what becomes of the limit of requests."""
    if value:
        yield Mapped(
            source="grader: rate_limit",
            value=f"{value:g}",
            fate="approximated",
            target="grader.rate_limit",
            why="taken as requests a second; the hosted service does not document its unit",
        )


def _number(fields: Mapping[str, Any], key: str, where: str) -> float:
    """Return a number; 0 when there is none."""
    value = fields.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"`{key}` is not a number", where=where)
    return float(value)


def _string_check(fields: Mapping[str, Any], where: str) -> tuple[Grading, list[Mapped]]:
    operation = fields.get("operation")
    if operation not in _OPERATIONS:
        fix = f"Choose from: {', '.join(_OPERATIONS)}."
        raise ConfigError("`operation` is missing or unknown", where=where, fix=fix)
    field = _FIELD.fullmatch(str(fields.get("reference")))
    if field is None or not _OUTPUT.fullmatch(str(fields.get("input"))):
        why = "only {{sample.output_text}} against one field {{item.NAME}} is compared here"
        return Grading(), [Mapped(source="grader string_check", fate="unmapped", why=why)]
    taken = Mapped(
        source=f"grader string_check {operation}",
        value=f"item.{field[1]}",
        fate="taken",
        target="[grader]",
        why="white space around the answer does not count; no answer is 0",
    )
    rest = _ignored(fields, {"operation", "reference", "input"}, {})
    return Grading(reference=field[1], operation=str(operation)), [taken, *rest]


def _ignored(fields: Mapping[str, Any], used: set[str], why: Mapping[str, str]) -> Iterator[Mapped]:
    for key in sorted(fields.keys() - used - {"type"}):
        if fields[key] is not None:
            reason = why.get(key, "no such setting here")
            yield Mapped(source=f"grader: {key}", fate="ignored", why=reason)


def _unmapped(fields: Mapping[str, Any], path: str) -> Iterator[Mapped]:
    """Name a grader that has no equal here, and each one inside it."""
    kind = str(fields.get("type"))
    if kind in _NOT_YET:
        yield Mapped(source=f"{path} ({kind})", fate="unmapped", why=_NOT_YET[kind])
    else:
        why = "part of a combined grader, which is not computed here yet"
        yield Mapped(source=f"{path} ({kind})", fate="unmapped", why=why)
    if kind == "multi":
        for name, part in table(fields.get("graders") or {}, f"{path}: graders").items():
            yield from _unmapped(table(part, f"{path}.{name}"), f"{path}.{name}")
