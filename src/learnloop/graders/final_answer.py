"""Finds the one final answer in what the agent said last."""

from __future__ import annotations

import json
import re
from typing import Any, cast

from learnloop.trace import Trace

_TAG = re.compile(r"<(answer|final_answer)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_PREFIX = re.compile(r"\A(?:the\s+)?(?:final\s+)?answer\s*(?:is\b\s*:?|[:=])\s*", re.IGNORECASE)
_FIELDS = ("answer", "final_answer", "value")


def final_text(trace: Trace) -> str:
    """Return the last turn's text, or nothing when that turn asked for tools: that is no answer."""
    if not trace.turns or trace.turns[-1].tool_calls or trace.turns[-1].malformed:
        return ""
    return trace.answer.strip()


def final_answer(text: str) -> str:
    """Return the part of a text that states the answer; empty when it states several or none.

    In this order: the only `<answer>` tag, the `answer` field of a JSON object, the last line with
    an optional `Answer:` in front.
    """
    text = text.strip()
    tags = [m[2].strip() for m in _TAG.finditer(text)]
    if tags:
        return tags[0] if len(tags) == 1 else ""
    data = json_object(text)
    if data is not None:
        values = [data[f] for f in _FIELDS if f in data]
        return _scalar(values[0]) if len(values) == 1 else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _PREFIX.sub("", lines[-1].strip("*_` ")).strip("*_` ") if lines else ""


def json_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text consists of, in a code fence or not; else None."""
    fenced = _FENCE.match(text)
    try:
        data: object = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _scalar(value: object) -> str:
    """Return a JSON scalar as text; a list of answers is no answer."""
    if isinstance(value, str):
        return value.strip()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else ""
