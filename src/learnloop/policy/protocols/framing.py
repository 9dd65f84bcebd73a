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
    end-of-sequence token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        chatml = CHATML.start in tokenizer.get_vocab()
        self.framing = CHATML if chatml else PLAIN
        end = tokenizer.convert_tokens_to_ids(CHATML.end) if chatml else tokenizer.eos_token_id
        if not isinstance(end, int):
            raise ValueError("the tokenizer names no end token")
        self.end_id = end

    @property
    def end_ids(self) -> frozenset[int]:
        """Return the tokens that end a turn."""
        eos = self.tokenizer.eos_token_id
        return frozenset({self.end_id, *([eos] if isinstance(eos, int) else [])})

    def encode(self, text: str) -> list[int]:
        """Tokenise without adding special tokens."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of sampled tokens without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def messages(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> list[int]:
        """Render messages, each closed; no generation prompt."""
        ids: list[int] = []
        for m in messages:
            text = write_assistant(m, tools) if m.role == "assistant" else m.content
            ids += self.encode(f"{self.framing.start}{m.role}{self.framing.middle}{text}")
            ids += [self.end_id, *self.encode(self.framing.after)]
        return ids

    def generation_prompt(self) -> list[int]:
        """Return the tokens after which the model speaks."""
        return self.encode(f"{self.framing.start}assistant{self.framing.middle}")

    def closing(self, sampled: Sequence[int]) -> list[int]:
        """Return what closes a sampled turn: the end token if the model did not give it, then the gap."""
        gap = self.encode(self.framing.after)
        return gap if sampled and sampled[-1] in self.end_ids else [self.end_id, *gap]
