"""A grader served over HTTP: the client side of the wire contract."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from learnloop.errors import GraderError
from learnloop.graders.final_answer import final_text, json_object
from learnloop.graders.version import version_of
from learnloop.message import ToolCall
from learnloop.outbound import Endpoint, Outbound, Reply, TooLarge
from learnloop.task import Task
from learnloop.trace import Score, Trace

_CODE_VERSION = 1


class EndpointGrader:
    """Posts sample, row and trace id to a server that answers `{"score": number}`.

    Any fault of the server, 4xx included, is retried and then raised as GraderError: a score that
    could not be had is missing, never 0. The server may add `sub_scores`, `metrics`,
    `explanation` and `flags`. With a `pass_threshold`, an answer is correct from that score on.
    """

    def __init__(
        self, endpoint: Endpoint, outbound: Outbound, *, pass_threshold: float = 0.0
    ) -> None:
        self._url, self._threshold = endpoint.url, pass_threshold
        self._route = outbound.route(endpoint, GraderError)

    @property
    def version(self) -> str:
        """Return the version of code and address; what the server does to its code is unknown."""
        settings = {"pass_threshold": self._threshold} if self._threshold else {}
        return version_of("endpoint", _CODE_VERSION, url=self._url, **settings)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Ask the server for the score."""
        data = {"sample": sample_of(trace), "item": dict(task.item), "trace_id": trace.id}
        body = json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")
        try:
            posted = await self._route.post(body, {"X-Trace-Id": trace.id}, self._read)
        except TooLarge as error:
            raise self._route.fault(str(error), kind=error.kind) from None
        return posted.value

    def _read(self, reply: Reply) -> Score:
        """Turn a reply into a score, or say what is wrong with it."""
        if reply.status >= 400:
            raise self._route.fault(reply.reason, kind="4xx", quote=self._route.excerpt(reply))
        try:
            data: object = json.loads(reply.body)
        except (ValueError, RecursionError):
            raise self._wrong(
                "answered text, not JSON:", repr(self._route.excerpt(reply))
            ) from None
        if not isinstance(data, dict) or "score" not in data:
            raise self._wrong("answered no `score`:", repr(self._route.excerpt(reply)))
        return self._score(cast("dict[str, Any]", data))

    def _score(self, data: Mapping[str, Any]) -> Score:
        """Read the fields of a reply."""
        value = _number(data["score"])
        if value is None or not 0 <= value <= 1:
            raise self._wrong(
                "answered a score that is no number from 0 to 1:", repr(data["score"])
            )
        metrics = {f"metric/{k}": v for k, v in _numbers(data.get("metrics")).items()}
        flags: object = data.get("flags")
        return Score(
            value=value,
            correct=float(value >= self._threshold) if self._threshold else value,
            parts={**_numbers(data.get("sub_scores")), **metrics},
            explanation=self._route.redact(str(data.get("explanation") or "")),
            flags=tuple(self._route.redact(str(flag)) for flag in cast("list[object]", flags))
            if isinstance(flags, list)
            else (),
        )

    def _wrong(self, message: str, quote: str) -> Exception:
        """Return the error of a reply that holds no usable score."""
        return self._route.fault(message, kind="bad_reply", quote=quote)


def sample_of(trace: Trace) -> dict[str, Any]:
    """Return a rollout in the shape that graders of the wire contract take.

    `output_tools` lists all calls of the rollout, not only those of the last turn.
    """
    text = final_text(trace)
    last = trace.turns[-1] if trace.turns else None
    message = {
        "role": "assistant",
        "content": last.text if last else "",
        "tool_calls": [_call(c) for c in last.tool_calls] if last else [],
    }
    reason = last.finish_reason if last else "stop"
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "output_text": text,
        "output_json": json_object(text),
        "output_tools": [_call(c) for t in trace.turns for c in t.tool_calls],
        "output_reasoning_summary": None,
    }


def _call(call: ToolCall) -> dict[str, Any]:
    """Return a call in the chat-completions shape."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _number(value: object) -> float | None:
    """Return a finite JSON number; true, texts and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _numbers(values: object) -> dict[str, float]:
    """Return those entries of a JSON object that are numbers."""
    if not isinstance(values, dict):
        return {}
    entries = cast("dict[str, object]", values)
    found = {k: _number(v) for k, v in entries.items()}
    return {k: v for k, v in found.items() if v is not None}
