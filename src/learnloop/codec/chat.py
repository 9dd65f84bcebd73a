"""Messages and tool schemas in the chat-completions shape, in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from learnloop.message import Message, Role, ToolCall, ToolSchema

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


def canonical_json(value: object) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def message_from_chat(data: object) -> Message:
    """Return a message from its chat-completions form.

    Raises:
        ValueError: saying what is wrong with it, in words for the user.
    """
    fields = _table(data, "a message")
    role = _ROLES.get(str(fields.get("role")))
    if role is None:
        known = ", ".join(_ROLES)
        raise ValueError(f"role `{fields.get('role')}` is unknown; there are {known}")
    calls: object = fields.get("tool_calls") or []
    if not isinstance(calls, list):
        raise ValueError("`tool_calls` of a message must be a list")
    return Message(
        role=role,
        content=_content(fields.get("content")),
        tool_calls=tuple(_tool_call(c) for c in cast("list[object]", calls)),
        tool_call_id=str(fields.get("tool_call_id") or ""),
        name=str(fields.get("name") or "") if role == "tool" else "",
    )


def message_to_chat(message: Message) -> dict[str, Any]:
    """Return a message in its chat-completions form."""
    data: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.role == "tool":
        data["tool_call_id"] = message.tool_call_id
        if message.name:
            data["name"] = message.name
    return data


def schema_from_chat(data: object) -> ToolSchema:
    """Return a tool schema from `{"type": "function", "function": {...}}`.

    Raises:
        ValueError: saying what is wrong with it, in words for the user.
    """
    tool = _table(data, "a tool")
    if "function" not in tool:
        form = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
        raise ValueError(f"a tool has no `function`; write it as {form}")
    function = _table(tool["function"], "a tool's `function`")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("a tool has no name")
    parameters = function.get("parameters")
    return schema(
        name,
        str(function.get("description") or ""),
        {} if parameters is None else _table(parameters, f"`parameters` of tool `{name}`"),
    )


def schema_to_chat(tool: ToolSchema) -> dict[str, Any]:
    """Return a tool schema in its chat-completions form."""
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters_json),
    }
    return {"type": "function", "function": function}


def schema(name: str, description: str, parameters: Mapping[str, Any]) -> ToolSchema:
    """Return a tool schema; no parameters at all means an object without properties."""
    shape = parameters or {"type": "object", "properties": {}}
    return ToolSchema(name=name, description=description, parameters_json=canonical_json(shape))


def parameters_of(tool: ToolSchema) -> dict[str, Any]:
    """Return a tool's parameters as a JSON schema."""
    return json.loads(tool.parameters_json)


def schema_problem(tool: ToolSchema) -> str:
    """Return why a tool's parameters are no valid JSON schema; empty when they are one."""
    from jsonschema import Draft202012Validator, SchemaError  # here, because only checks need it

    try:
        Draft202012Validator.check_schema(json.loads(tool.parameters_json))
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path))
        return f"`{place}`: {error.message}" if place else error.message
    return ""


def _tool_call(data: object) -> ToolCall:
    call = _table(data, "a tool call")
    function = _table(call.get("function"), "a tool call's `function`")
    arguments = function.get("arguments", "{}")
    text = arguments if isinstance(arguments, str) else canonical_json(arguments)
    return ToolCall(id=str(call.get("id") or ""), name=str(function.get("name")), arguments=text)


def _content(value: object) -> str:
    """Return text content: a string, or the texts of a list of content parts."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("`content` of a message must be text")
    parts = [_table(part, "a content part") for part in cast("list[object]", value)]
    if other := [str(part.get("type")) for part in parts if part.get("type") != "text"]:
        raise ValueError(f"content of type `{other[0]}` is not supported, only `text`")
    return "".join(str(part.get("text", "")) for part in parts)


def _table(value: object, noun: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{noun} must be a JSON object")
    return cast("dict[str, Any]", value)
