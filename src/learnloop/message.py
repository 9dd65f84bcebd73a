"""Messages and tool calls, in the chat-completions shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call that the model asks for; `arguments` is the JSON text as it was written."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a conversation; `tool_call_id` and `name` are set on role `tool` only."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolSchema:
    """What the model is told of a tool: `parameters` is a JSON schema kept as canonical JSON text."""

    name: str
    description: str
    parameters_json: str
