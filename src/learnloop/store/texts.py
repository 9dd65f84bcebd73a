"""The texts of a trace: where they are, and how they are taken out of it and put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from learnloop.codec import trace_from_json, trace_to_json
from learnloop.message import ToolCall
from learnloop.trace import Trace

SHARED_CHARS = 96
"""Texts shorter than this stay in their trace: finding them elsewhere would take more room."""

_INLINE, _SHARED = "=", "#"


def map_texts(trace: Trace, change: Callable[[str], str]) -> Trace:
    """Return the trace with every text that a model, a tool, a grader or a user wrote changed."""

    def called(call: ToolCall) -> ToolCall:
        return replace(call, arguments=change(call.arguments))

    def all_called(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(map(called, calls))

    failure, score = trace.failure, trace.score
    return replace(
        trace,
        messages=tuple(
            replace(m, content=change(m.content), tool_calls=all_called(m.tool_calls))
            for m in trace.messages
        ),
        turns=tuple(
            replace(
                t,
                text=change(t.text),
                malformed=change(t.malformed),
                tool_calls=all_called(t.tool_calls),
            )
            for t in trace.turns
        ),
        calls=tuple(replace(c, call=called(c.call), output=change(c.output)) for c in trace.calls),
        failure=replace(failure, message=change(failure.message)) if failure else None,
        score=replace(score, explanation=change(score.explanation)) if score else None,
    )


def take_out(trace: Trace) -> tuple[str, list[str]]:
    """Return the trace as JSON with places for its longer texts, and those texts, once each."""
    found: dict[str, int] = {}

    def place(text: str) -> str:
        if len(text) < SHARED_CHARS:
            return text and _INLINE + text
        return f"{_SHARED}{found.setdefault(text, len(found))}"

    return trace_to_json(map_texts(trace, place)), list(found)


def put_back(trace_json: str, texts: Sequence[str]) -> Trace:
    """Return the trace that `take_out` took apart."""

    def fill(place: str) -> str:
        return texts[int(place[1:])] if place.startswith(_SHARED) else place[1:]

    # While it is read: changing the trace afterwards would build every part of it twice.
    return trace_from_json(trace_json, fill)
