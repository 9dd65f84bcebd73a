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
    `temperature` is that of sampling; the trainer uses the same. The first token is never sampled:
    there is nothing that it could be predicted from.
    """

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    logprobs: tuple[float, ...]
    temperature: float = 1.0
    advantage: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.sampled) == len(self.logprobs):
            raise ValueError("ids, sampled and logprobs must have one entry a token")
        if self.sampled and self.sampled[0]:
            raise ValueError("the first token cannot have been sampled")

    @property
    def trainable(self) -> int:
        """Return the number of sampled tokens."""
        return sum(self.sampled)


class _Tape:
    """Tokens gathered in order, each with its mark and log-probability."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.sampled: list[bool] = []
        self.logprobs: list[float] = []

    def add(self, ids: Sequence[int], *, sampled: bool, logprobs: Sequence[float] = ()) -> None:
        self.ids += ids
        self.sampled += [sampled] * len(ids)
        self.logprobs += logprobs or [0.0] * len(ids)


def rebuild(
    renderer: Renderer,
    messages: Sequence[Message],
    turns: Sequence[Turn],
    tools: Sequence[ToolSchema],
) -> tuple[list[int], list[bool], list[float]]:
    """Put a conversation's tokens together exactly as they were sampled.

    `messages` is the whole conversation; its last assistant messages belong to `turns`, earlier
    ones are worked examples of the prompt and are not trained. Sampled tokens are taken from the
    turns, never tokenised again. Where no turn has token ids, the conversation is a demonstration:
    its turns are rendered from their messages and count as sampled.

    Raises:
        ValueError: there are more turns than assistant messages.
    """
    messages = describe_tools(messages, tools)
    spoken = [i for i, m in enumerate(messages) if m.role == "assistant"]
    if len(turns) > len(spoken):
        raise ValueError(f"{len(turns)} turns, but only {len(spoken)} assistant messages")
    own = dict(zip(spoken[len(spoken) - len(turns) :], turns, strict=True))
    shown = not any(t.token_ids for t in turns)
    tape = _Tape()
    for i, message in enumerate(messages):
        turn = own.get(i)
        if turn is None:
            tape.add(renderer.messages([message], tools), sampled=False)
            continue
        tape.add(renderer.generation_prompt(), sampled=False)
        if shown:
            body = [*renderer.body(message, tools), renderer.end_id]
            tape.add(body, sampled=True)
            tape.add(renderer.closing(body), sampled=False)
        else:
            tape.add(turn.token_ids, sampled=True, logprobs=turn.logprobs)
            tape.add(renderer.closing(turn.token_ids), sampled=False)
    return tape.ids, tape.sampled, tape.logprobs
