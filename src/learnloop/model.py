"""The contract of a model: something that can hold a conversation turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from learnloop.message import Message, ToolSchema
from learnloop.trace import Turn


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How turns are sampled; temperature 0 is greedy. `max_tokens` bounds one turn."""

    temperature: float = 0.0
    max_tokens: int = 64


class Session(Protocol):
    """One rollout's conversation; the model keeps its state between turns."""

    async def turn(self, *, tools_allowed: bool = True) -> Turn:
        """Sample the next assistant turn. Raises ModelError when the model fails.

        Calls are read from the turn even where tools are not allowed: a model that asks for them
        all the same has not answered. Call ids differ between conversations of other trace ids.
        """
        ...

    async def append(self, messages: Sequence[Message]) -> None:
        """Add tool results (or a user message) before the next turn."""
        ...

    async def close(self) -> None:
        """Free what the conversation holds; safe to call twice."""
        ...


class Model(Protocol):
    """Anything that can open a conversation."""

    async def open(
        self,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        sampling: Sampling,
        seed: int,
    ) -> Session:
        """Start a conversation; `seed` fixes its random stream where the model allows it."""
        ...
