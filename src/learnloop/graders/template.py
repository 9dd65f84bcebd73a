"""Templates of the wire contract: `{{item.a.b[0]}}` and `{{ sample.output_text }}` in a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from learnloop.errors import ConfigError, GraderError

_PLACE = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_PATH = re.compile(r"(item|sample)((?:\.[^.\[\]\s{}]+|\[\d+\])*)\Z")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def checked_template(template: object, *, where: str) -> str:
    """Return a template that can be filled.

    Raises:
        ConfigError: it is no text, or names something that is neither of the row nor of the sample.
    """
    if not isinstance(template, str):
        raise ConfigError("is not a text", where=where)
    for path in _PLACE.findall(template):
        if not _PATH.match(path):
            raise ConfigError(
                f"`{{{{{path}}}}}` is no variable",
                where=where,
                fix="Write {{item.FIELD}} or {{sample.output_text}}.",
            )
    return template


def filled(
    template: str,
    item: Mapping[str, Any],
    sample: Mapping[str, Any],
    *,
    shown: Callable[[str, str], str] | None = None,
) -> str:
    """Return a template with its variables filled in.

    Args:
        template: a checked template.
        item: the row.
        sample: the rollout, as `sample_of` returns it.
        shown: what becomes of a value, from its path and its text.

    Raises:
        GraderError: a variable that is not there: missing is an error and never an empty text.
    """

    def put(found: re.Match[str]) -> str:
        text = _text(value_at(found[1], item, sample))
        return shown(found[1], text) if shown else text

    return _PLACE.sub(put, template)


def value_at(path: str, item: Mapping[str, Any], sample: Mapping[str, Any]) -> object:
    """Return what a variable stands for.

    Raises:
        GraderError: there is no such thing in this row or rollout.
    """
    match = _PATH.match(path)
    assert match is not None, "templates are checked before they are filled"
    value: object = item if match[1] == "item" else sample
    for name, index in _STEP.findall(match[2]):
        try:
            if name:
                value = cast("Mapping[str, object]", value)[name]
            else:
                value = cast("Sequence[object]", value)[int(index)]
        except (KeyError, IndexError, TypeError):
            what = f"`{{{{{path}}}}}` is not there"
            raise GraderError(what, kind="invalid_variable", retryable=False) from None
    return value


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
