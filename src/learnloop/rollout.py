"""A rollout: one run of one candidate on one task, from opening a session to a score."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import anyio

from learnloop.agent import Episode, run_agent
from learnloop.boundary import boundary, failure_of
from learnloop.config import AgentConfig
from learnloop.errors import BoundaryError, GraderError, ModelError
from learnloop.faults import outcome_of, rule_of
from learnloop.grader import Grader
from learnloop.message import Message
from learnloop.model import Model, Sampling, Session
from learnloop.task import Task
from learnloop.tool import Tool
from learnloop.tools.toolbox import Toolbox, open_toolbox
from learnloop.trace import Score, Trace, trace_id

_CLOSE_S = 10.0
"""Longest wait for a session to close: a dead model must not hold the run."""


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One rollout that is to be made: which task, which candidate, which attempt, which seed."""

    task: Task
    candidate_id: str
    attempt: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What rollouts of one stage share.

    `label` makes trace ids unique: the run's id, and the stage's name where a stage repeats
    attempts of another. `system_prompt` goes first unless the task brings one. `on_end` is told
    the id of every rollout that is over, however it ended; it must be quick and raise nothing.
    """

    label: str
    model: Model
    tools: Mapping[str, Tool]
    grader: Grader
    limits: AgentConfig
    sampling: Sampling
    system_prompt: str = ""
    on_end: Callable[[str], Awaitable[None]] | None = None

    def name(self, planned: Planned, retry: int) -> str:
        """Return the trace id of a rollout with this setup."""
        return trace_id(self.label, planned.candidate_id, planned.task.id, planned.attempt, retry)


async def roll_out(planned: Planned, setup: Setup, retry: int = 0) -> Trace:
    """Make one rollout; it always yields a trace.

    A fault of tool, model or grader gives outcome `infra_fault`, a recorded failure and no score.
    What the agent does wrong is graded as `agent_fault`. Only cancellation and mistakes that the
    user can mend (UserError) are raised. `retry` counts earlier tries that ended in a fault.
    """
    task = planned.task
    name = setup.name(planned, retry)
    episode = Episode(messages=_opening(task, setup.system_prompt))
    start_s = time.monotonic()
    try:
        with boundary("runner"):
            latency_s = await _converse(name, planned, setup, episode)
            trace = _trace(name, planned, episode, latency_s)
            return replace(trace, score=await grade(setup.grader, task, trace))
    except BoundaryError as fault:
        trace = _trace(name, planned, episode, time.monotonic() - start_s)
        failure = failure_of(fault)
        outcome = rule_of(failure.boundary, failure.kind).outcome
        return replace(trace, outcome=outcome, failure=failure)
    finally:
        if setup.on_end is not None:
            await setup.on_end(name)


def _opening(task: Task, system_prompt: str) -> list[Message]:
    """Return the messages that a conversation starts from."""
    own = any(m.role == "system" for m in task.messages)
    first = [Message(role="system", content=system_prompt)] if system_prompt and not own else []
    return [*first, *task.messages]


async def _converse(name: str, planned: Planned, setup: Setup, episode: Episode) -> float:
    """Open a session, run the agent, close the session whatever happens; return seconds run."""
    toolbox = open_toolbox(planned.task, setup.tools, name)
    session = await _open(name, planned.seed, setup, toolbox, episode)
    start_s = time.monotonic()
    try:
        await run_agent(session, toolbox, setup.limits, episode)
        return time.monotonic() - start_s
    finally:
        await _close(session)


async def _open(name: str, seed: int, setup: Setup, toolbox: Toolbox, episode: Episode) -> Session:
    """Start the conversation with the model."""
    with boundary("model"):
        return await setup.model.open(
            name,
            tuple(episode.messages),
            tuple(toolbox.schemas.values()),
            sampling=setup.sampling,
            seed=seed,
        )


async def _close(session: Session) -> None:
    """Free the session, even when the rollout is being cancelled.

    A fault here costs nothing: the rollout is over, and a model that died will say so next time.
    """
    with suppress(ModelError), boundary("model"), anyio.move_on_after(_CLOSE_S, shield=True):
        await session.close()


async def grade(grader: Grader, task: Task, trace: Trace) -> Score:
    """Return the score; one that is not a number between 0 and 1 is the grader's fault."""
    with boundary("grader"):
        score = await grader.grade(task, trace)
    for part in (score.value, score.correct):
        if not (math.isfinite(part) and 0 <= part <= 1):
            raise GraderError(f"score {part} is not between 0 and 1", kind="bad_score")
    return score


def _trace(name: str, planned: Planned, episode: Episode, latency_s: float) -> Trace:
    """Return what the rollout left behind, yet without a score."""
    return Trace(
        id=name,
        task_id=planned.task.id,
        candidate_id=planned.candidate_id,
        attempt=planned.attempt,
        seed=planned.seed,
        messages=tuple(episode.messages),
        turns=tuple(episode.turns),
        calls=tuple(episode.calls),
        outcome=outcome_of(episode.finish_reason, answered=episode.answered),
        finish_reason=episode.finish_reason or "infra",
        latency_s=latency_s,
    )
