"""Graders from their JSON: the form of the wire contract, ours beside it, nested as deep as it goes.

`[grader]` of a project is such an object in TOML, and so is each entry of `[grader.graders]`; a file of
JSON that somebody has from elsewhere is one as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from learnloop.errors import ConfigError
from learnloop.grader import Grader
from learnloop.graders.budget import BudgetGrader, Unit
from learnloop.graders.citation import CitationGrader
from learnloop.graders.combined import CascadeGrader, MultiGrader
from learnloop.graders.endpoint import EndpointGrader
from learnloop.graders.formula import FUNCTIONS, read_formula
from learnloop.graders.judge import JudgeGrader, Judging
from learnloop.graders.numeric import NumericGrader
from learnloop.graders.python_code import MOST_BYTES, PythonGrader, Runner
from learnloop.graders.similarity import METRICS
from learnloop.graders.string_check import StringCheckGrader
from learnloop.graders.template import checked_template
from learnloop.graders.texts import OPERATIONS, TextGrader
from learnloop.outbound import Endpoint, Outbound, expand_headers, expand_secret

Spec = Mapping[str, Any]

_DEEPEST = 8
_UNITS = ("calls", "rounds", "tokens", "latency", "wall_clock")
_HOSTED = "https://api.openai.com/v1"


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What graders need beside their own settings.

    Attributes:
        outbound: the HTTP client.
        environ: where `${NAME}` in headers and keys is looked up.
        root: the project's folder, for sources in files.
        runner: runs Python; None where nothing is graded, only versions are told.
    """

    outbound: Outbound
    environ: Mapping[str, str]
    root: Path
    runner: Runner | None = None


def grader_from(
    spec: Spec, around: Surroundings, *, where: str = "grader", depth: int = 0
) -> Grader:
    """Return the grader that a spec describes.

    Raises:
        ConfigError: an unknown type or setting, a missing or wrong value; says where.
    """
    if depth > _DEEPEST:
        raise ConfigError(f"is nested deeper than {_DEEPEST} graders", where=where)
    kind = spec.get("type")
    if not isinstance(kind, str) or kind not in _MAKERS:
        known = ", ".join(_MAKERS)
        raise ConfigError(
            f"`type` is {kind!r}, no kind of grader", where=where, fix=f"Known: {known}."
        )
    known, make = _MAKERS[kind]
    if unknown := sorted(spec.keys() - set(known) - {"type", "name"}):
        raise ConfigError(
            f"`{unknown[0]}` is no setting of `{kind}`",
            where=where,
            fix=f"Known: {', '.join(known)}.",
        )
    return make(_Reading(spec=spec, where=where, around=around, depth=depth))


def needs_python(spec: Spec) -> bool:
    """Return whether a grader, or one inside it, runs Python."""
    inner: object = spec.get("graders")
    within = cast("Mapping[str, Any]", inner).values() if isinstance(inner, Mapping) else ()
    return spec.get("type") == "python" or any(
        needs_python(cast("Spec", one)) for one in within if isinstance(one, Mapping)
    )


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """One spec as it is read."""

    spec: Spec
    where: str
    around: Surroundings
    depth: int

    def at(self, key: str) -> str:
        return f"{self.where}.{key}"

    def text(self, key: str, default: str | None = None) -> str:
        value: object = self.spec.get(key, default)
        if not isinstance(value, str) or (default is None and not value):
            raise ConfigError("is missing, or no text", where=self.at(key))
        return value

    def number(
        self, key: str, default: float | None = None, *, low: float = 0.0, high: float = 1e12
    ) -> float:
        value: object = self.spec.get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise ConfigError(
                f"is {value!r}, no number from {low:g} to {high:g}", where=self.at(key)
            )
        return float(value)

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in choices:
            raise ConfigError(
                f"is `{value}`", where=self.at(key), fix=f"Choose from: {', '.join(choices)}."
            )
        return value

    def template(self, key: str, default: str | None = None) -> str:
        return checked_template(self.spec.get(key, default), where=self.at(key))

    def table(self, key: str) -> Mapping[str, Any]:
        value: object = self.spec.get(key, {})
        if not isinstance(value, Mapping):
            raise ConfigError("is no table", where=self.at(key))
        return cast("Mapping[str, Any]", value)

    def texts(self, key: str) -> tuple[str, ...]:
        value: object = self.spec.get(key)
        found = cast("list[object]", value) if isinstance(value, list | tuple) else []
        if not found or not all(isinstance(x, str) for x in found):
            raise ConfigError("is no list of texts", where=self.at(key))
        return tuple(cast("list[str]", found))

    def inner(self) -> dict[str, Grader]:
        """Return the graders inside this one."""
        named = self.table("graders")
        if not named:
            raise ConfigError("names no grader", where=self.at("graders"))
        return {
            name: grader_from(
                _spec(one, self.at(f"graders.{name}")),
                self.around,
                where=self.at(f"graders.{name}"),
                depth=self.depth + 1,
            )
            for name, one in named.items()
        }

    def endpoint(self, url: str, headers: Mapping[str, str], name: str) -> Endpoint:
        return Endpoint(
            name=name,
            url=url,
            headers=expand_headers(headers, self.around.environ, where=self.at("headers")),
            timeout_s=self.number("timeout_s", 600.0, low=0.001),
            rate_limit=self.number("rate_limit", 0.0),
            secret=expand_secret(
                self.text("secret", ""), self.around.environ, where=self.at("secret")
            ),
        )

    def threshold(self) -> float:
        return self.number("pass_threshold", 0.0, high=1.0)


def _spec(value: object, where: str) -> Spec:
    if not isinstance(value, Mapping):
        raise ConfigError("is no table", where=where)
    return cast("Spec", value)


def _numeric(r: _Reading) -> Grader:
    return NumericGrader(
        reference=r.text("reference", "answer"),
        abs_tol=r.number("abs_tol", 0.0),
        rel_tol=r.number("rel_tol", 0.0),
    )


def _string_check(r: _Reading) -> Grader:
    operation = r.choice("operation", tuple(OPERATIONS), "eq")
    if "input" not in r.spec and "{{" not in r.text("reference", "answer"):
        return StringCheckGrader(
            reference=r.text("reference", "answer"), operation=cast("Any", operation)
        )
    return TextGrader(
        input=r.template("input", "{{sample.output_text}}"),
        reference=r.template("reference"),
        measure=operation,
    )


def _text_similarity(r: _Reading) -> Grader:
    return TextGrader(
        input=r.template("input", "{{sample.output_text}}"),
        reference=r.template("reference"),
        measure=r.choice("evaluation_metric", tuple(METRICS)),
        pass_threshold=r.threshold(),
    )


def _endpoint(r: _Reading) -> Grader:
    endpoint = r.endpoint(r.text("url", ""), r.table("headers"), "grader")
    return EndpointGrader(endpoint, r.around.outbound, pass_threshold=r.threshold())


def _score_model(r: _Reading) -> Grader:
    found: object = r.spec.get("range", [0, 1])
    ends = cast("list[Any]", found) if isinstance(found, list | tuple) else []
    if len(ends) != 2 or not all(isinstance(x, int | float) for x in ends) or not ends[0] < ends[1]:
        raise ConfigError("is no pair of rising numbers", where=r.at("range"))
    has_threshold = r.spec.get("pass_threshold") is not None
    return _judge(
        r,
        Judging(
            model=r.text("model"),
            messages=_messages(r),
            low=float(ends[0]),
            high=float(ends[1]),
            pass_threshold=r.number("pass_threshold", low=ends[0], high=ends[1])
            if has_threshold
            else None,
            sampling=r.table("sampling_params"),
            votes=int(r.number("votes", 3, low=1, high=99)),
        ),
    )


def _label_model(r: _Reading) -> Grader:
    labels, passing = r.texts("labels"), r.texts("passing_labels")
    if not set(passing) <= set(labels):
        raise ConfigError("names a label that is not among `labels`", where=r.at("passing_labels"))
    return _judge(
        r,
        Judging(
            model=r.text("model"),
            messages=_messages(r),
            labels=labels,
            passing=passing,
            sampling=r.table("sampling_params"),
        ),
    )


def _judge(r: _Reading, judging: Judging) -> Grader:
    key = r.text("api_key", "${OPENAI_API_KEY}" if "base_url" not in r.spec else "")
    headers = {**r.table("headers"), **({"Authorization": f"Bearer {key}"} if key else {})}
    url = f"{r.text('base_url', _HOSTED).rstrip('/')}/chat/completions"
    return JudgeGrader(
        judging, r.endpoint(url, headers, f"judge {judging.model}"), r.around.outbound
    )


def _messages(r: _Reading) -> tuple[tuple[str, str], ...]:
    """Return role and template of each message; content may come as a text or as text parts."""
    found: object = r.spec.get("input")
    entries = cast("list[Any]", found) if isinstance(found, list | tuple) else []
    if not entries:
        raise ConfigError("is no list of messages", where=r.at("input"))
    made: list[tuple[str, str]] = []
    for number, entry in enumerate(entries):
        where = r.at(f"input[{number}]")
        message = _spec(entry, where)
        role: object = message.get("role")
        if role not in ("system", "developer", "user", "assistant"):
            raise ConfigError(f"has the role {role!r}", where=where)
        content: object = message.get("content")
        if isinstance(content, Mapping):
            content = cast("Spec", content).get("text")
        made.append((str(role), checked_template(content, where=where)))
    return tuple(made)


def _python(r: _Reading) -> Grader:
    if name := r.text("file", ""):
        try:
            source = (r.around.root / name).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot be read ({error})", where=r.at("file")) from None
    else:
        source = r.text("source")
    if len(source.encode()) >= MOST_BYTES:
        raise ConfigError(f"is not under {MOST_BYTES // 1024} kB", where=r.at("source"))
    try:
        compile(source, "grader.py", "exec")
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"is no Python: {error}", where=r.at("source")) from None
    if "def grade" not in source and "grade =" not in source:
        raise ConfigError("defines no `grade(sample, item)`", where=r.at("source"))
    return PythonGrader(source, r.around.runner, pass_threshold=r.threshold())


def _multi(r: _Reading) -> Grader:
    graders = r.inner()
    for name in graders:
        if not name.isidentifier() or name in FUNCTIONS:
            raise ConfigError("is no name that a formula can use", where=r.at(f"graders.{name}"))
    correct = r.text("correct", "")
    if correct and correct not in graders:
        raise ConfigError(f"names `{correct}`, which is not among `graders`", where=r.at("correct"))
    formula = read_formula(r.text("calculate_output"), graders, where=r.at("calculate_output"))
    return MultiGrader(
        graders=graders, formula=formula, correct=correct, pass_threshold=r.threshold()
    )


def _cascade(r: _Reading) -> Grader:
    return CascadeGrader(graders=r.inner())


def _citation(r: _Reading) -> Grader:
    return CitationGrader(
        reference=r.text("reference", ""), most=int(r.number("most", 10, low=1, high=1000))
    )


def _budget(r: _Reading) -> Grader:
    free, full = r.number("free", 0.0), r.number("full")
    if not free < full:
        raise ConfigError("must be above `free`", where=r.at("full"))
    unit = r.choice("unit", _UNITS, "calls")
    latencies = {
        name: _Reading(
            spec=r.table("latencies"), where=r.at("latencies"), around=r.around, depth=0
        ).number(name)
        for name in r.table("latencies")
    }
    if unit == "latency" and not latencies:
        raise ConfigError(
            "is missing: seconds that each tool takes",
            where=r.at("latencies"),
            fix="Declare them, such as {search = 0.2, default = 0.1}; `wall_clock` takes what was measured, "
            "which is noise on a shared machine.",
        )
    return BudgetGrader(unit=cast("Unit", unit), free=free, full=full, latencies=latencies)


_NET = ("headers", "timeout_s", "rate_limit", "secret")
_JUDGE = ("model", "input", "sampling_params", "base_url", "api_key", *_NET)
_MAKERS: Mapping[str, tuple[tuple[str, ...], Callable[[_Reading], Grader]]] = {
    "numeric": (("reference", "abs_tol", "rel_tol"), _numeric),
    "string_check": (("input", "reference", "operation"), _string_check),
    "text_similarity": (
        ("input", "reference", "evaluation_metric", "pass_threshold"),
        _text_similarity,
    ),
    "citation": (("reference", "most"), _citation),
    "budget": (("unit", "free", "full", "latencies"), _budget),
    "python": (("source", "file", "pass_threshold", "image_tag"), _python),
    "score_model": ((*_JUDGE, "range", "pass_threshold", "votes"), _score_model),
    "label_model": ((*_JUDGE, "labels", "passing_labels"), _label_model),
    "endpoint": (("url", "pass_threshold", *_NET), _endpoint),
    "multi": (("graders", "calculate_output", "correct", "pass_threshold"), _multi),
    "cascade": (("graders",), _cascade),
}
KINDS = tuple(_MAKERS)
