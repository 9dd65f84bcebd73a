"""A conversation as tokens: what the trainer needs of a finished rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.message import Message, ToolSchema
from learnloop.policy.protocols.framing import Renderer
from learnloop.policy.protocols.lines import describe_tools
from learnloop.trace import Turn


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """Token ids of a conversation; `sampled[i]` marks tokens that the model chose itself.

    `logprobs[i]` is the sampler's natural-log probability where `sampled[i]`, else 0.
    `temperature` is that of sampling; the trainer uses the same.
    """

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    logprobs: tuple[float, ...]
    temperature: float = 1.0
    advantage: float = 0.0

    @property
    def trainable(self) -> int:
        """Return the number of sampled tokens."""
        return sum(self.sampled)


def rebuild(
    renderer: Renderer, messages: Sequence[Message], turns: Sequence[Turn], tools: Sequence[ToolSchema]
) -> tuple[list[int], list[bool], list[float]]:
    """Put a conversation's tokens together exactly as they were sampled.

    `messages` is the whole conversation; its n-th assistant message after the first non-assistant
    block belongs to `turns[n]`. Sampled tokens are taken from the turns, never tokenised again. A
    turn without token ids (a demonstration) is rendered from its message and counts as sampled.
    """
    messages = describe_tools(messages, tools)
    ids: list[int] = []
    sampled: list[bool] = []
    logprobs: list[float] = []

    def add(tokens: Sequence[int], chosen: bool, values: Sequence[float] = ()) -> None:
        ids.extend(tokens)
        sampled.extend([chosen] * len(tokens))
        logprobs.extend(values or [0.0] * len(tokens))

    first = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    add(renderer.messages(messages[:first], tools), False)
    waiting = list(turns)
    for message in messages[first:]:
        if message.role != "assistant":
            add(renderer.messages([message], tools), False)
            continue
        turn = waiting.pop(0)
        add(renderer.generation_prompt(), False)
        if turn.token_ids:
            add(turn.token_ids, True, turn.logprobs)
            add(renderer.closing(turn.token_ids), False)
        else:
            whole = renderer.messages([message], tools)[len(renderer.generation_prompt()) :]
            gap = len(renderer.encode(renderer.framing.after))
            add(whole[: len(whole) - gap], True)
            add(whole[len(whole) - gap :], False)
    return ids, sampled, logprobs
