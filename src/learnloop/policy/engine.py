"""The policy: tokenizer, weights, sampler and trainer behind a few calls on plain values.

Everything here runs on one thread (`server.py` owns it); no method blocks except `train` and the
ones that read or write files.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from learnloop.message import Message, ToolSchema
from learnloop.policy.protocols.framing import Renderer
from learnloop.policy.protocols.lines import describe_tools, parse_calls
from learnloop.policy.sampler import Lane, Sampler
from learnloop.policy.trainer import Trainer, TrainerSettings
from learnloop.policy.transcript import Transcript, rebuild
from learnloop.policy.weights import Weights, load_weights, save_weights
from learnloop.trace import Turn

CURRENT = "current"
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(eq=False)
class Conversation:
    """One open rollout: its lane, and what must be fed before the next turn."""

    sampler: Sampler
    lane: Lane
    tools: tuple[ToolSchema, ...]
    max_tokens: int
    feed: list[int]
    version: int
    turns: int = 0
    last: list[int] = field(default_factory=list[int])


class Engine:
    """Owns tokenizer, weights, random streams and optimizer state of one model."""

    def __init__(self, folder: Path, *, dtype: str, device: str, max_context: int) -> None:
        self.folder, self.dtype, self.device = folder, DTYPES[dtype], device
        self.max_context = max_context
        self.renderer = Renderer(AutoTokenizer.from_pretrained(folder))
        self.resident: dict[str, Weights] = {"": load_weights(folder, self.dtype, device)}
        self.samplers: dict[str, Sampler] = {}
        self.trainer: Trainer | None = None
        self.conversations: dict[str, Conversation] = {}
        self.sampling_s = 0.0

    # --- conversations -------------------------------------------------------------------------

    def open(
        self, trace_id: str, messages: Sequence[Message], tools: Sequence[ToolSchema], options: Mapping[str, Any]
    ) -> None:
        """Start a conversation; `options`: weights, seed, temperature, max_tokens."""
        name = str(options["weights"])
        messages = describe_tools(messages, tools)
        system = 1 if messages and messages[0].role == "system" else 0
        shared = tuple(self.renderer.messages(messages[:system], tools))
        rest = self.renderer.messages(messages[system:], tools)
        if len(shared) + len(rest) >= self.max_context:
            raise ValueError(f"the prompt has {len(shared) + len(rest)} tokens, max_context is {self.max_context}")
        sampler = self._sampler(name)
        lane = sampler.open(shared, seed=int(options["seed"]), temperature=float(options["temperature"]))
        self.conversations[trace_id] = Conversation(
            sampler=sampler, lane=lane, tools=tuple(tools), max_tokens=int(options["max_tokens"]), feed=rest,
            version=self.trainer.version if self.trainer and name == CURRENT else 0,
        )

    def turn(self, trace_id: str, tools_allowed: bool, done: Callable[[Turn], None]) -> None:
        """Ask for the next turn; `done` is called from a later `step`."""
        talk = self.conversations[trace_id]
        began = time.monotonic()
        tokens_in = talk.lane.context + len(talk.feed) + len(self.renderer.generation_prompt())
        reused = talk.lane.context

        def finished(reason: str) -> None:
            ids = talk.lane.sampled
            text = self.renderer.decode(ids)
            calls, malformed = parse_calls(text, talk.tools, f"call_{talk.turns}") if tools_allowed else ((), "")
            talk.turns += 1
            talk.last = list(ids)
            done(
                Turn(
                    text=text, tool_calls=calls, malformed=malformed, token_ids=tuple(ids),
                    logprobs=tuple(talk.lane.logprobs), version=talk.version, tokens_in=tokens_in,
                    tokens_reused=reused, tokens_out=len(ids), latency_s=time.monotonic() - began,
                    finish_reason="tool_calls" if calls and reason == "stop" else reason,  # type: ignore[arg-type]
                )
            )

        feed = [*talk.feed, *self.renderer.generation_prompt()]
        talk.feed = []
        talk.sampler.feed(talk.lane, feed, talk.max_tokens, finished)

    def append(self, trace_id: str, messages: Sequence[Message]) -> None:
        """Add tool results or a user message; they are computed with the next turn."""
        talk = self.conversations[trace_id]
        if talk.last:
            talk.feed += self.renderer.closing(talk.last)
            talk.last = []
        talk.feed += self.renderer.messages(messages, talk.tools)

    def close(self, trace_id: str) -> None:
        """End a conversation and free its cache; unknown ids are fine."""
        talk = self.conversations.pop(trace_id, None)
        if talk:
            talk.sampler.close(talk.lane)

    @property
    def busy(self) -> bool:
        """Return whether any sampler has work."""
        return any(s.busy for s in self.samplers.values())

    def step(self) -> None:
        """Advance every sampler that has work by one token."""
        began = time.monotonic()
        for sampler in self.samplers.values():
            if sampler.busy:
                sampler.step()
        self.sampling_s += time.monotonic() - began

    def _sampler(self, name: str) -> Sampler:
        if name not in self.samplers:
            weights = self.trainer.current if name == CURRENT and self.trainer else self.resident.get(name)
            if weights is None:
                raise KeyError(f"no weights named `{name}` are loaded")
            self.samplers[name] = Sampler(weights, end_ids=self.renderer.end_ids, max_context=self.max_context)
        return self.samplers[name]

    # --- training ------------------------------------------------------------------------------

    def start_training(self, settings: TrainerSettings) -> None:
        """Make fp32 master weights and optimizer state from the base model."""
        master = load_weights(self.folder, torch.float32, self.device)
        self.trainer = Trainer(master, self.dtype, settings)

    def train(self, rows: Sequence[Transcript], algorithm: str, learning_rate: float) -> dict[str, float]:
        """Make one update; every conversation on the current weights must have been closed."""
        trainer = self._trainer()
        sampler = self.samplers.get(CURRENT)
        if sampler and any(t.sampler is sampler for t in self.conversations.values()):
            raise RuntimeError("a conversation on the current weights is still open")
        for idle in self.samplers.values():
            if not any(t.sampler is idle for t in self.conversations.values()):
                idle.release_memory()
        return trainer.update(rows, algorithm, learning_rate)

    def transcript(
        self, messages: Sequence[Message], turns: Sequence[Turn], tools: Sequence[ToolSchema],
        *, advantage: float, temperature: float,
    ) -> Transcript:
        """Put a rollout's tokens together for training."""
        ids, sampled, logprobs = rebuild(self.renderer, messages, turns, tools)
        return Transcript(
            ids=tuple(ids), sampled=tuple(sampled), logprobs=tuple(logprobs), advantage=advantage, temperature=temperature
        )

    def snapshot(self, name: str, folder: Path | None) -> None:
        """Keep a copy of the current weights under a name, and write it as a model folder."""
        trainer = self._trainer()
        self.forget(name)
        self.resident[name] = trainer.current.cast(self.dtype, self.device)
        if folder is not None:
            save_weights(trainer.current, self.folder, folder)

    def load(self, name: str, folder: Path) -> None:
        """Load a model folder under a name."""
        self.forget(name)
        self.resident[name] = load_weights(folder, self.dtype, self.device)

    def forget(self, name: str) -> None:
        """Drop named weights and their sampler."""
        self.resident.pop(name, None)
        self.samplers.pop(name, None)

    def _trainer(self) -> Trainer:
        if self.trainer is None:
            raise RuntimeError("training was not started")
        return self.trainer

    def save_state(self, path: Path, extra: Mapping[str, Any]) -> None:
        """Write the training state (see `Trainer.save_state`)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._trainer().save_state(path, extra)

    def load_state(self, path: Path) -> dict[str, Any]:
        """Read a training state and return its `extra`."""
        extra = self._trainer().load_state(path)
        self.samplers.pop(CURRENT, None)
        return extra

    def reset_optimizer(self) -> None:
        """Forget Adam's moments."""
        self._trainer().reset_optimizer()

    def stats(self) -> dict[str, float]:
        """Return token counts since the last call, sampling seconds, and peak memory in MB."""
        out = {"sampling_s": self.sampling_s, "prefilled": 0.0, "reused": 0.0, "sampled": 0.0}
        for sampler in self.samplers.values():
            out["prefilled"] += sampler.counts.prefilled
            out["reused"] += sampler.counts.reused
            out["sampled"] += sampler.counts.sampled
            sampler.counts = type(sampler.counts)()
        self.sampling_s = 0.0
        out["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return out
