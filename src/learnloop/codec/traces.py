"""Traces as JSON text and back, without losing a bit.

The standard library is used on purpose: it writes floats by their shortest exact form, takes
dataclasses through one hook, and needs no validation pass for text that learnloop wrote itself.
Fields that hold their default are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, cast

from learnloop.message import Message, ToolCall
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn

Fill = Callable[[str], str]


def trace_to_json(trace: Trace) -> str:
    """Return the trace as one line of JSON; `trace_from_json` gives back an equal trace.

    The text is ASCII: model output may hold lone surrogates, which no database takes as UTF-8.
    """
    return json.dumps(trace, default=_plain, separators=(",", ":"))


def trace_from_json(text: str, fill: Fill = str) -> Trace:
    """Return the trace that `trace_to_json` wrote.

    Args:
        text: the line of JSON.
        fill: what becomes of each text that somebody wrote, while it is read: the store puts texts
            back that it keeps elsewhere.

    Raises:
        ValueError: the text is not a trace.
    """
    try:
        return _trace(json.loads(text), fill)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a stored trace: {error}") from error


def _plain(value: object) -> dict[str, Any]:
    """Return a dataclass, or a mapping that is no dict, as a dict."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if not is_dataclass(value):
        raise TypeError(f"a trace cannot hold {type(value).__name__}")
    found: dict[str, Any] = {}
    for name, default in _defaults(type(value)):
        field_value = getattr(value, name)
        if field_value != default:
            found[name] = field_value
    return found


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """Return names and defaults of a dataclass's fields; a field without one never matches."""
    return tuple((f.name, _default(f)) for f in fields(kind))


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return field.default


# The builders below change the freshly parsed dicts in place and pass them on.


def _trace(data: dict[str, Any], fill: Fill) -> Trace:
    data["messages"] = tuple([_message(m, fill) for m in data.get("messages", ())])
    data["turns"] = tuple([_turn(t, fill) for t in data.get("turns", ())])
    data["calls"] = tuple([_call(c, fill) for c in data.get("calls", ())])
    if "failure" in data:
        _fill(data["failure"], "message", fill)
        data["failure"] = Failure(**data["failure"])
    if "score" in data:
        data["score"] = _score(data["score"], fill)
    return Trace(**data)


def _fill(data: dict[str, Any], key: str, fill: Fill) -> None:
    if key in data:
        data[key] = fill(data[key])


def _message(data: dict[str, Any], fill: Fill) -> Message:
    _fill(data, "content", fill)
    data["tool_calls"] = _tool_calls(data, fill)
    return Message(**data)


def _turn(data: dict[str, Any], fill: Fill) -> Turn:
    _fill(data, "text", fill)
    _fill(data, "malformed", fill)
    data["tool_calls"] = _tool_calls(data, fill)
    data["token_ids"] = tuple(data.get("token_ids", ()))
    data["logprobs"] = tuple(data.get("logprobs", ()))
    return Turn(**data)


def _call(data: dict[str, Any], fill: Fill) -> CallRecord:
    _fill(data, "output", fill)
    data["call"] = _tool_call(data["call"], fill)
    return CallRecord(**data)


def _score(data: dict[str, Any], fill: Fill) -> Score:
    _fill(data, "explanation", fill)
    data["flags"] = tuple(data.get("flags", ()))
    return Score(**data)


def _tool_calls(data: dict[str, Any], fill: Fill) -> tuple[ToolCall, ...]:
    return tuple([_tool_call(call, fill) for call in data.get("tool_calls", ())])


def _tool_call(data: dict[str, Any], fill: Fill) -> ToolCall:
    _fill(data, "arguments", fill)
    return ToolCall(**data)
