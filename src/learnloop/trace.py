"""What one rollout leaves behind: a trace, its turns, its calls and its score."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from learnloop.message import Message, ToolCall

Outcome = Literal["graded", "agent_fault", "infra_fault"]
"""graded: has a score. agent_fault: the agent broke a rule; graded too, usually low.
infra_fault: a part outside the agent failed; no score, never a zero."""

Content = Literal["full", "masked", "hash", "none", "erased"]
"""How much of what was said is kept: all, masked texts, hashes of texts, or numbers only; erased:
numbers only since somebody erased the rest."""

TurnEnd = Literal["stop", "tool_calls", "length", "context"]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One sampled assistant turn.

    `token_ids` and `logprobs` (natural log, at the sampling temperature) have one entry for each
    sampled token, the end token included if it was sampled. Both are empty for models that do not
    give them. `tokens_in` counts context tokens the turn was conditioned on, `tokens_reused` those
    of them that needed no computation.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: TurnEnd = "stop"
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    version: int = 0
    malformed: str = ""
    tokens_in: int = 0
    tokens_reused: int = 0
    tokens_out: int = 0
    latency_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One tool call as it happened: `round` counts turns from 0; calls of one turn share it.

    `ran` is False where nothing was run: the call was refused, malformed or to no such tool. Such
    calls are part of the conversation, and no cost.
    """

    call: ToolCall
    round: int
    output: str
    is_error: bool = False
    latency_s: float = 0.0
    retries: int = 0
    ran: bool = True


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a rollout has no score: the boundary that failed, a kind to count by, and the message."""

    boundary: Literal["tool", "model", "grader", "sandbox", "runner"]
    kind: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Score:
    """A grader's verdict: `value` in [0, 1], `correct` before any shaping, named parts, words."""

    value: float
    correct: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    explanation: str = ""
    flags: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Return whether the answer is fully correct, up to rounding."""
        return self.correct >= 1 - 1e-9


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One rollout of one candidate on one task, good or failed.

    `messages` holds the whole conversation, the task's own messages first; `finish_reason` is one
    of answer, calls (call budget spent), rounds, tokens, length, context, wall_time, cancelled,
    infra. `latency_s` is wall time from first turn to last. `content` says what the store kept of the
    texts; a rollout that is not `full` cannot be trained on.
    """

    id: str
    task_id: str
    candidate_id: str
    attempt: int
    seed: int
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    outcome: Outcome = "graded"
    finish_reason: str = "answer"
    failure: Failure | None = None
    score: Score | None = None
    latency_s: float = 0.0
    content: Content = "full"

    @property
    def answer(self) -> str:
        """Return the last assistant text, or an empty string when there is none."""
        return self.turns[-1].text if self.turns else ""

    @property
    def calls_run(self) -> tuple[CallRecord, ...]:
        """Return the calls that were run, without those that were refused or malformed."""
        return tuple([c for c in self.calls if c.ran])

    @property
    def rounds(self) -> int:
        """Return how many turns ran tools; parallel calls of one turn are one round."""
        return len({c.round for c in self.calls_run})

    @property
    def tokens_out(self) -> int:
        """Return the number of sampled tokens."""
        return sum(t.tokens_out for t in self.turns)

    @property
    def tokens_total(self) -> int:
        """Return context of the last turn plus its sampled tokens: each token counted once."""
        return self.turns[-1].tokens_in + self.turns[-1].tokens_out if self.turns else 0


def trace_id(run_id: str, candidate_id: str, task_id: str, attempt: int, retry: int = 0) -> str:
    """Return `trace_` and 32 hex digits, a pure function of what the rollout is."""
    text = "\x1f".join((run_id, candidate_id, task_id, str(attempt), str(retry)))
    return "trace_" + hashlib.sha256(text.encode()).hexdigest()[:32]
