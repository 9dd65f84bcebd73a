"""The contract of a tool: something the agent can call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from learnloop.message import ToolCall, ToolSchema


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a call carries beside its arguments: the rollout's id and the dataset row."""

    trace_id: str
    item: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """What the model is shown; `is_error` marks an error that the agent may react to (4xx).

    `status` is that of an HTTP tool's error, and 0 when there is none.
    """

    text: str
    is_error: bool = False
    retries: int = 0
    status: int = 0


class AgentMistake(Exception):
    """Raised by a tool's Python function to show the model what it did wrong.

    Every other exception of a function is a fault of the tool: the rollout is made anew, and the
    model is not shown it.
    """


class Tool(Protocol):
    """One callable tool. Raises ToolError for faults that are not the agent's."""

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told."""
        ...

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Run the call. Malformed arguments come back as an error output, not as an exception."""
        ...
