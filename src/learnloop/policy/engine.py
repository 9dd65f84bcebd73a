"""The policy: tokenizer, weights, sampler and trainer behind a few calls on plain values.

Everything here is called from one thread (`server.py` owns it); no method blocks except `train`,
which computes in threads of its own, and the ones that read or write files.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from learnloop.errors import ConfigError
from learnloop.message import Message, ToolSchema
from learnloop.policy.memory import trim
from learnloop.policy.protocols.framing import Renderer
from learnloop.policy.protocols.lines import describe_tools, parse_calls
from learnloop.policy.sampler import Lane, Sampler, TurnStop
from learnloop.policy.trainer import Trainer, TrainerSettings
from learnloop.policy.transcript import Transcript, rebuild
from learnloop.policy.weights import Weights, load_weights, save_weights
from learnloop.trace import Turn

CURRENT = "current"
"""Name of the weights that follow training; `""` names the model as it was pulled."""
WORTH_WAITING = 0.5
"""Share of the open conversations that should be ready before an idle sampler is started."""
_ID_LENGTH = 16
"""Characters of a trace id in the ids of its calls: enough to keep a run's rollouts apart."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(eq=False)
class Conversation:
    """One open rollout: its lane, and what must be fed before the next turn.

    `call_prefix` makes call ids its own: tool servers take them as idempotency keys.
    """

    call_prefix: str
    sampler: Sampler
    lane: Lane
    tools: tuple[ToolSchema, ...]
    max_tokens: int
    feed: list[int]
    version: int
    turns: int = 0
    sampling: bool = False


class Engine:
    """Owns tokenizer, weights, random streams and optimizer state of one model.

    Raises:
        ConfigError: the folder holds no model that can be used, or the model is too short for
            `max_context`.
    """

    def __init__(self, folder: Path, *, dtype: str, device: str, max_context: int) -> None:
        self.folder, self.dtype, self.device = folder, DTYPES[dtype], device
        self.max_context = max_context
        self.resident: dict[str, Weights] = {"": load_weights(folder, self.dtype, device)}
        reach = self.resident[""].shape.positions
        if max_context > reach:
            raise ConfigError(
                f"the model reaches {reach} tokens, max_context is {max_context}",
                where="model.max_context",
                fix=f"Set it to {reach} or less.",
            )
        self.renderer = Renderer(AutoTokenizer.from_pretrained(folder))
        self.samplers: dict[str, Sampler] = {}
        self.trainer: Trainer | None = None
        self.conversations: dict[str, Conversation] = {}
        self.sampling_s = 0.0

    # --- conversations -------------------------------------------------------------------------

    def open(
        self,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        options: Mapping[str, Any],
    ) -> None:
        """Start a conversation; `options`: weights, seed, temperature, max_tokens.

        Raises:
            ValueError: the prompt does not fit, or the id is taken.
            LookupError: no weights of that name are loaded.
        """
        if trace_id in self.conversations:
            raise ValueError(f"conversation `{trace_id}` is open already")
        name = str(options["weights"])
        messages = describe_tools(messages, tools)
        system = 1 if messages and messages[0].role == "system" else 0
        shared = tuple(self.renderer.messages(messages[:system], tools))
        rest = self.renderer.messages(messages[system:], tools)
        size = len(shared) + len(rest) + len(self.renderer.generation_prompt())
        if size >= self.max_context:
            raise ValueError(f"the prompt has {size} tokens, max_context is {self.max_context}")
        sampler = self._sampler(name)
        temperature = float(options["temperature"])
        self.conversations[trace_id] = Conversation(
            call_prefix=f"call_{trace_id[-_ID_LENGTH:]}",
            sampler=sampler,
            lane=sampler.open(shared, seed=int(options["seed"]), temperature=temperature),
            tools=tuple(tools),
            max_tokens=int(options["max_tokens"]),
            feed=rest,
            version=self.trainer.version if self.trainer and name == CURRENT else 0,
        )

    def turn(self, trace_id: str, done: Callable[[Turn], None]) -> None:
        """Ask for the next turn; `done` is called from a later `step`, or now if there is no room.

        Raises:
            LookupError: no such conversation.
            RuntimeError: its last turn is not finished.
        """
        talk = self._conversation(trace_id)
        if talk.sampling:
            raise RuntimeError("the conversation is in the middle of a turn")
        began = time.monotonic()
        feed, talk.feed = [*talk.feed, *self.renderer.generation_prompt()], []
        tokens_in = talk.lane.context + len(feed)

        def finished(stop: TurnStop) -> None:
            talk.sampling = False
            turn = self._read_turn(talk, stop)
            done(replace(turn, tokens_in=tokens_in, latency_s=time.monotonic() - began))

        talk.sampling = True
        talk.sampler.feed(talk.lane, feed, talk.max_tokens, finished)

    def _read_turn(self, talk: Conversation, stop: TurnStop) -> Turn:
        """Read a finished turn and note what closes it."""
        ids = talk.lane.sampled
        text = self.renderer.decode(ids)
        calls, malformed = parse_calls(text, talk.tools, f"{talk.call_prefix}_{talk.turns}")
        talk.turns += 1
        if ids:
            talk.feed = self.renderer.closing(ids)
        return Turn(
            text=text,
            tool_calls=calls,
            malformed=malformed,
            token_ids=tuple(ids),
            logprobs=tuple(talk.lane.logprobs),
            version=talk.version,
            tokens_reused=talk.lane.reused,
            tokens_out=len(ids),
            finish_reason="tool_calls" if calls and stop == "stop" else stop,
        )

    def append(self, trace_id: str, messages: Sequence[Message]) -> None:
        """Add tool results or a user message; they are computed with the next turn."""
        talk = self._conversation(trace_id)
        if talk.sampling:
            raise RuntimeError("the conversation is in the middle of a turn")
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

    @property
    def undecided(self) -> bool:
        """Return whether lanes wait to be fed while none is in the middle of a turn."""
        return any(s.waiting for s in self.samplers.values())

    @property
    def gathering(self) -> bool:
        """Return whether a moment's wait would make a better batch: many tool results are due."""
        waiting = sum(s.waiting for s in self.samplers.values())
        return 0 < waiting < len(self.conversations) * WORTH_WAITING

    def step(self) -> None:
        """Advance every sampler that has work by one token."""
        began = time.monotonic()
        for sampler in self.samplers.values():
            if sampler.busy:
                sampler.step()
        self.sampling_s += time.monotonic() - began

    def _conversation(self, trace_id: str) -> Conversation:
        if trace_id not in self.conversations:
            raise LookupError(f"no conversation `{trace_id}` is open")
        return self.conversations[trace_id]

    def _sampler(self, name: str) -> Sampler:
        if name not in self.samplers:
            current = self.trainer.current if self.trainer else None
            weights = current if name == CURRENT else self.resident.get(name)
            if weights is None:
                raise LookupError(f"no weights named `{name}` are loaded")
            self.samplers[name] = Sampler(
                weights, end_ids=self.renderer.end_ids, max_context=self.max_context
            )
        return self.samplers[name]

    def _in_use(self, sampler: Sampler | None) -> bool:
        return any(t.sampler is sampler for t in self.conversations.values())

    # --- training ------------------------------------------------------------------------------

    def start_training(self, settings: TrainerSettings) -> None:
        """Make fp32 master weights and optimizer state from the base model."""
        self._drop_sampler(CURRENT)
        master = load_weights(self.folder, torch.float32, self.device)
        self.trainer = Trainer(master, self.dtype, settings)

    def train(
        self, rows: Sequence[Transcript], algorithm: str, learning_rate: float
    ) -> dict[str, float]:
        """Make one update; every conversation on the current weights must have been closed."""
        trainer = self._trainer()
        if self._in_use(self.samplers.get(CURRENT)):
            raise RuntimeError("a conversation on the current weights is still open")
        for sampler in self.samplers.values():
            if not self._in_use(sampler):
                sampler.forget_prefixes()
        trim()
        try:
            return trainer.update(rows, algorithm, learning_rate)
        finally:
            trim()

    def transcript(
        self,
        messages: Sequence[Message],
        turns: Sequence[Turn],
        tools: Sequence[ToolSchema],
        *,
        advantage: float,
        temperature: float,
    ) -> Transcript:
        """Put a rollout's tokens together for training."""
        ids, sampled, logprobs = rebuild(self.renderer, messages, turns, tools)
        return Transcript(
            ids=tuple(ids),
            sampled=tuple(sampled),
            logprobs=tuple(logprobs),
            advantage=advantage,
            temperature=temperature,
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
        """Drop named weights and their sampler; no conversation may be open on them."""
        if name in ("", CURRENT):
            raise ValueError(f"the name `{name}` is taken")
        self._drop_sampler(name)
        self.resident.pop(name, None)

    def _drop_sampler(self, name: str) -> None:
        if self._in_use(self.samplers.get(name)):
            raise RuntimeError(f"a conversation on the weights `{name}` is still open")
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
        self._drop_sampler(CURRENT)
        return self._trainer().load_state(path)

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
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Linux counts in KiB, macOS in bytes.
        out["peak_rss_mb"] = peak / (1024 * 1024 if sys.platform == "darwin" else 1024)
        return out
