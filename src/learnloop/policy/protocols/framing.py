"""How messages of each role are wrapped in a model's special tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from learnloop.message import Message, ToolSchema
from learnloop.policy.protocols.lines import write_assistant


@dataclass(frozen=True, kw_only=True)
class Framing:
    """Text before and after a message; `end` is the token that ends an assistant turn."""

    start: str
    middle: str
    end: str
    after: str


CHATML = Framing(start="<|im_start|>", middle="\n", end="<|im_end|>", after="\n")
PLAIN = Framing(start="### ", middle="\n", end="", after="\n\n")


class Renderer:
    """Turns messages into token ids, append only: earlier tokens never change.

    Models whose vocabulary has the ChatML tokens get ChatML, others plain headings and their own
    end-of-sequence token. What a message says is tokenised apart from the frame around it, so that
    a tool result that spells out a special token cannot pose as one.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        chatml = CHATML.start in tokenizer.get_vocab()
        self.framing = CHATML if chatml else PLAIN
        end = tokenizer.convert_tokens_to_ids(CHATML.end) if chatml else tokenizer.eos_token_id
        if not isinstance(end, int):
            raise ValueError("the tokenizer names no end token")
        self.end_id = end
        self._gap = self._encode(self.framing.after, special=True)
        self._heads: dict[str, list[int]] = {}

    @property
    def end_ids(self) -> frozenset[int]:
        """Return the tokens that end a turn."""
        eos = self.tokenizer.eos_token_id
        return frozenset({self.end_id, *([eos] if isinstance(eos, int) else [])})

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled tokens without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def messages(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """Render messages, each closed; no generation prompt."""
        ids: list[int] = []
        for message in messages:
            ids += [*self._head(message.role), *self.body(message, tools), self.end_id, *self._gap]
        return ids

    def body(self, message: Message, tools: Sequence[ToolSchema]) -> list[int]:
        """Render what a message says, without the frame around it."""
        text = write_assistant(message, tools) if message.role == "assistant" else message.content
        return self._encode(text, special=False)

    def generation_prompt(self) -> list[int]:
        """Return the tokens after which the model speaks."""
        return list(self._head("assistant"))

    def closing(self, sampled: Sequence[int]) -> list[int]:
        """Return what closes a sampled turn: the end token if the model did not give it, then the gap."""
        ended = bool(sampled) and sampled[-1] in self.end_ids
        return list(self._gap) if ended else [self.end_id, *self._gap]

    def _head(self, role: str) -> list[int]:
        if role not in self._heads:
            text = f"{self.framing.start}{role}{self.framing.middle}"
            self._heads[role] = self._encode(text, special=True)
        return self._heads[role]

    def _encode(self, text: str, *, special: bool) -> list[int]:
        # Tool results come as JSON, which may hold half of a surrogate pair; UTF-8 has no such thing.
        clean = text.encode("utf-8", "replace").decode()
        out = self.tokenizer(clean, add_special_tokens=False, split_special_tokens=not special)
        return list(out["input_ids"])
