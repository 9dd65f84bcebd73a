"""The `lines` protocol: a call is a line `@name argument`, for models without a tool template.

A tool with exactly one required string parameter takes the rest of the line as that argument;
any other tool takes a JSON object. Text after the last call of a turn is dropped by nobody: the
tokens stay as they were sampled. A turn without a call line is the final answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from learnloop.message import Message, ToolCall, ToolSchema

_CALL = re.compile(r"\s*@([\w-]+)[ \t]*:?[ \t]*(.*)", re.DOTALL)


def single_argument(schema: ToolSchema) -> str:
    """Return the name of the only required parameter if it is a string, else an empty string."""
    parameters: dict[str, Any] = json.loads(schema.parameters_json)
    required: list[str] = parameters.get("required", [])
    properties: dict[str, dict[str, Any]] = parameters.get("properties", {})
    if len(required) == 1 and properties.get(required[0], {}).get("type") == "string":
        return required[0]
    return ""


def describe_tools(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> tuple[Message, ...]:
    """Return the messages with every tool named in the system message that does not name it yet."""
    own = bool(messages) and messages[0].role == "system"
    said = messages[0].content if own else ""
    missing = [t for t in tools if not re.search(rf"@{re.escape(t.name)}(?![\w-])", said)]
    if not missing:
        return tuple(messages)
    lines = [
        f"@{t.name} {single_argument(t) or t.parameters_json}: {t.description}" for t in missing
    ]
    head = "Tools, one call a line:" if len(missing) == len(tools) else "More tools:"
    text = "\n".join([*([said] if said else []), head, *lines])
    return (Message(role="system", content=text), *messages[1 if own else 0 :])


def write_call(call: ToolCall, schema: ToolSchema | None) -> str:
    """Render one call as its line; `parse_calls` reads the same name and the same arguments."""
    arguments = _object(call.arguments)
    if arguments is None:
        return f"@{call.name} {' '.join(call.arguments.split())}"
    name = single_argument(schema) if schema else ""
    text = arguments.get(name) if set(arguments) == {name} else None
    if isinstance(text, str) and _is_plain(text):
        return f"@{call.name} {text}"
    return f"@{call.name} {json.dumps(arguments, ensure_ascii=False)}"


def _is_plain(text: str) -> bool:
    """Return whether a line can carry the text as it stands and give it back unchanged."""
    return text == text.strip() and "\n" not in text and not text.startswith(("{", ":"))


def _object(text: str) -> dict[str, Any] | None:
    """Return a JSON object, or None for any other text."""
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def write_assistant(message: Message, tools: Sequence[ToolSchema]) -> str:
    """Render an assistant message: its text, then one line a call."""
    known = {t.name: t for t in tools}
    lines = [message.content] if message.content else []
    return "\n".join(lines + [write_call(c, known.get(c.name)) for c in message.tool_calls])


def parse_calls(
    text: str, tools: Sequence[ToolSchema], prefix: str
) -> tuple[tuple[ToolCall, ...], str]:
    """Read the calls of a turn.

    Returns the calls (ids `<prefix>_<index>`; unknown names included, the agent answers those) and
    a description of the first line that looks like a call but is none (empty when there is none).
    """
    known = {t.name: t for t in tools}
    calls: list[ToolCall] = []
    malformed = ""
    # Not splitlines(): an argument may hold the rarer line ends of Unicode.
    for line in text.split("\n"):
        found = _CALL.fullmatch(line)
        if not found:
            if line.lstrip().startswith("@") and not malformed:
                malformed = f"`{line.strip()[:80]}` looks like a call but names no tool"
            continue
        name, rest = found[1], found[2].strip()
        arguments = _read_arguments(known.get(name), rest)
        calls.append(ToolCall(id=f"{prefix}_{len(calls)}", name=name, arguments=arguments))
    return tuple(calls), malformed


def _read_arguments(schema: ToolSchema | None, rest: str) -> str:
    name = single_argument(schema) if schema else ""
    if not name:
        return rest or "{}"
    if rest.startswith("{") and _object(rest) is not None:
        return rest
    return json.dumps({name: rest}, ensure_ascii=False)
