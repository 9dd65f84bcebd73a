"""What the store gives back: a run, an event, and a rollout without its conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RunStatus = Literal["running", "done", "stopped", "failed"]
"""stopped: by a budget, the user or a lost process; can be resumed."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run: what was asked for, with which configuration, and how it stands."""

    id: str
    created_at: str
    command: str
    config_json: str
    config_hash: str
    status: RunStatus
    seed: int
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """One event of a run; ids grow in the order in which events were stored."""

    id: int
    run_id: str
    kind: str
    data: Mapping[str, Any]
    created_at: str


@dataclass(frozen=True, kw_only=True)
class RolloutRecord:
    """One rollout in numbers; `value` and `correct` are None when it has no score.

    `tokens` is `Trace.tokens_total`, `calls` and `tools` count calls that were run, the latter by
    tool name; `failure_kind` is empty unless the rollout was lost to a fault.
    """

    trace_id: str
    run_id: str
    stage: str
    step: int
    candidate_id: str
    task_id: str
    attempt: int
    outcome: str
    finish_reason: str
    value: float | None
    correct: float | None
    calls: int
    rounds: int
    tokens: int
    latency_s: float
    failure_kind: str
    tools: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class ToolCount:
    """How often the rollouts of one step ran one tool."""

    stage: str
    step: int
    tool: str
    calls: int


@dataclass(frozen=True, kw_only=True)
class StepTotals:
    """Sums over the rollouts of one step that ended one way.

    Score sums and `scored_calls` are over the `scored` ones alone: one without a score is no zero.
    """

    stage: str
    step: int
    outcome: str
    rollouts: int
    scored: int
    value_sum: float
    correct_sum: float
    calls: int
    scored_calls: int
    rounds: int
    tokens: int
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some rollouts in the order of `Store.rows`; `after` asks for the next page, empty at the end."""

    rows: tuple[RolloutRecord, ...]
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class Erased:
    """What an erasure did: the rollouts that lost their content, and their runs."""

    rollouts: int
    runs: tuple[str, ...] = ()
