"""A tool served over HTTP: the client side of the wire contract."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from learnloop.codec import canonical_json
from learnloop.config import ToolConfig
from learnloop.errors import ToolError
from learnloop.message import ToolCall, ToolSchema
from learnloop.outbound import Endpoint, Outbound, Reply, TooLarge, expand_headers, expand_secret
from learnloop.tool import ToolContext, ToolOutput

_LONGEST_ERROR = 2000
"""Characters of a 4xx body without `output` that the model is shown: often an HTML page."""


class HttpTool:
    """Posts each call to the tool's server, and reads what comes back.

    Raises ToolError for what is not the agent's fault (5xx, connection, time-out, redirect, a
    reply that breaks the contract), after retries. The model is shown 4xx replies and a text in
    place of a request or reply that is too large.
    """

    def __init__(
        self, config: ToolConfig, outbound: Outbound, *, environ: Mapping[str, str]
    ) -> None:
        where = f"tool {config.name}"
        self._schema = ToolSchema(
            name=config.name,
            description=config.description,
            parameters_json=canonical_json(dict(config.parameters)),
        )
        endpoint = Endpoint(
            name=where,
            url=config.server_url,
            headers=expand_headers(config.headers, environ, where=where),
            timeout_s=config.timeout_s,
            max_concurrency=config.max_concurrency,
            rate_limit=config.rate_limit,
            secret=expand_secret(config.secret, environ, where=where),
        )
        self._route = outbound.route(endpoint, ToolError)

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told; without parameters when the dataset brings schemas."""
        return self._schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Run one call on the server."""

        def read(reply: Reply) -> ToolOutput:
            return self._output(reply, call)

        try:
            posted = await self._route.post(_request(call, context), _headers(call, context), read)
        except TooLarge as error:
            return ToolOutput(text=f"error: 413 payload too large: {error}", is_error=True)
        text = self._route.redact(posted.value.text)
        return replace(posted.value, text=text, retries=posted.retries)

    def _output(self, reply: Reply, call: ToolCall) -> ToolOutput:
        """Read a reply: 4xx is the agent's business, a broken 2xx is a fault."""
        if reply.status >= 400:
            return ToolOutput(
                text=_error_text(reply, self._route.redact), is_error=True, status=reply.status
            )
        data = _object(reply.body)
        if data is None:
            what = "the reply is not a JSON object:"
            raise self._route.fault(what, kind="bad_reply", quote=self._route.excerpt(reply))
        if (got := data.get("call_id", call.id)) != call.id:
            what = f"the reply is not for call {call.id!r} but for"
            raise self._route.fault(what, kind="call_id", quote=repr(got))
        if data.get("type", "function_call_output") != "function_call_output":
            what = "the reply is no function_call_output but"
            raise self._route.fault(what, kind="bad_reply", quote=repr(data["type"]))
        if "output" not in data:
            raise self._route.fault("the reply has no `output`", kind="bad_reply")
        return ToolOutput(text=_text(data["output"]))


def _request(call: ToolCall, context: ToolContext) -> bytes:
    """Return the body of the request; `arguments` stays the text that the model wrote."""
    data = {
        "type": "function_call",
        "id": "fc_" + call.id.removeprefix("call_"),
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "item": dict(context.item),
        "trace_id": context.trace_id,
    }
    return json.dumps(data, ensure_ascii=False).encode("utf-8", "replace")


def _headers(call: ToolCall, context: ToolContext) -> dict[str, str]:
    """Return our extra headers, harmless to servers that do not know them."""
    trace = hashlib.sha256(context.trace_id.encode()).hexdigest()[:32]
    span = hashlib.sha256(call.id.encode()).hexdigest()[:16]
    return {
        "Idempotency-Key": call.id,
        "X-Trace-Id": context.trace_id,
        "traceparent": f"00-{trace}-{span}-01",
    }


def _error_text(reply: Reply, redact: Callable[[str], str]) -> str:
    """Return what the model is shown of a 4xx: `output` if there is one, else the error payload."""
    data = _object(reply.body) or {}
    if "output" in data:
        return _text(data["output"])
    text = _text(data["error"]) if "error" in data else reply.body.decode("utf-8", "replace")
    text = redact(text)
    if len(text) > _LONGEST_ERROR:
        left = len(text) - _LONGEST_ERROR
        text = f"{text[:_LONGEST_ERROR]}... ({left} more characters)"
    return text or reply.reason


def _object(body: bytes) -> dict[str, Any] | None:
    """Return a JSON object, or None for anything else."""
    try:
        data: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _text(output: object) -> str:
    """Return an output as text that can be encoded: JSON may smuggle in half a surrogate pair."""
    text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
