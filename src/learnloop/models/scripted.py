"""A model whose turns come from a function: for tests, examples and demos without weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from learnloop.errors import ModelError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.trace import Turn


@dataclass(frozen=True, kw_only=True)
class ScriptedCall:
    """A tool call that a script asks for."""

    name: str
    arguments: Mapping[str, Any]


Played = str | Sequence[ScriptedCall] | Turn
"""A final answer, calls, or a whole turn when a test needs an unusual one."""

Script = Callable[[Sequence[Message], Sequence[ToolSchema], int], Played]
"""Takes messages so far, tools (none when they are not allowed) and the rollout's seed.

It may raise ModelError, and it must not keep state: the same input gives the same turn.
"""


class ScriptedModel:
    """Plays a script; words stand in for tokens.

    Args:
        script: the function that decides each turn.
        latency_s: how long each turn takes.
    """

    def __init__(self, script: Script, *, latency_s: float = 0.0) -> None:
        self.script, self.latency_s = script, latency_s
        self.open_sessions = 0

    async def open(
        self,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        sampling: Sampling,
        seed: int,
    ) -> ScriptedSession:
        """Start a conversation; `sampling` has no effect."""
        self.open_sessions += 1
        return ScriptedSession(self, trace_id, messages, tools, seed)


class ScriptedSession:
    """One conversation with a scripted model."""

    def __init__(
        self,
        model: ScriptedModel,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        seed: int,
    ) -> None:
        self._model, self._trace_id, self._seed = model, trace_id, seed
        self._messages, self._tools = list(messages), tuple(tools)
        self._open = True

    async def turn(self, *, tools_allowed: bool = True) -> Turn:
        """Play the next turn; a script that calls when it is offered no tools is taken at its word."""
        if not self._open:
            raise ModelError("the session is closed", kind="closed")
        await anyio.sleep(self._model.latency_s)
        tools = self._tools if tools_allowed else ()
        played = self._model.script(tuple(self._messages), tools, self._seed)
        turn = self._turn(played)
        self._messages.append(
            Message(role="assistant", content=turn.text, tool_calls=turn.tool_calls)
        )
        return turn

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages before the next turn."""
        self._messages += messages

    async def close(self) -> None:
        """End the conversation; a second time does nothing."""
        self._model.open_sessions -= self._open
        self._open = False

    def _turn(self, played: Played) -> Turn:
        """Return what the script played as a turn."""
        if isinstance(played, Turn):
            return played
        tokens_in = sum(len(m.content.split()) for m in self._messages)
        if isinstance(played, str):
            return Turn(
                text=played,
                tokens_in=tokens_in,
                tokens_out=max(1, len(played.split())),
                latency_s=self._model.latency_s,
            )
        calls = tuple(self._call(i, c) for i, c in enumerate(played))
        return Turn(
            text="",
            tool_calls=calls,
            finish_reason="tool_calls",
            tokens_in=tokens_in,
            tokens_out=sum(1 + len(c.arguments.split()) for c in calls),
            latency_s=self._model.latency_s,
        )

    def _call(self, index: int, call: ScriptedCall) -> ToolCall:
        """Return a call with an id of its own: servers take it as the idempotency key."""
        text = f"{self._trace_id}/{len(self._messages)}/{index}"
        name = "call_" + hashlib.sha256(text.encode()).hexdigest()[:24]
        return ToolCall(id=name, name=call.name, arguments=json.dumps(call.arguments))
