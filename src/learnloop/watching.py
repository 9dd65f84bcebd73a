"""Watches a training run for signs that the reward is had by a trick, step by step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from learnloop.errors import StoppedEarly
from learnloop.guards import UNGUARDED
from learnloop.guards.statistic import StepSeen, alarms
from learnloop.history import CLOCK
from learnloop.run import Run, go_on
from learnloop.trace import Trace


def watch(run: Run, step: int, traces: Sequence[Trace]) -> None:
    """Record what a step shows, tell of alarms, and pause the run for those that are to stop it.

    Raises:
        StoppedEarly: an alarm that stops, where `guards.stop` says so.
    """
    if run.history.done("watch", step):
        return
    seen = step_seen(step, traces, _held_out(run, step))
    before = [_stored(e.data) for e in run.store.events(run.id, "watch")]
    run.emit("watch", **asdict(seen))
    found = alarms([*before, seen])
    for alarm in found:
        run.emit("alarm", **asdict(alarm))
    stopping = [alarm for alarm in found if alarm.stops]
    if stopping and run.config.guards.stop:
        raise StoppedEarly(
            f"{stopping[0].guard} at step {step}: {stopping[0].words}",
            where="guards.stop",
            fix=f"Look at the rollouts (learnloop flags), then {go_on(run.id, run.command)}.",
        )


def step_seen(step: int, traces: Sequence[Trace], held_out: float | None = None) -> StepSeen:
    """Return what the rollouts of a step show."""
    scored = [trace for trace in traces if trace.score is not None]
    right = [trace.score.correct for trace in scored if trace.score is not None]
    n = max(1, len(right))
    mean = math.fsum(right) / n
    spread = math.fsum((x - mean) ** 2 for x in right) / max(1, n - 1)
    rewarded = [t for t in scored if t.score is not None and t.score.is_right]
    answers = {trace.answer.strip() for trace in scored}
    return StepSeen(
        step=step,
        reward=mean,
        reward_se=math.sqrt(spread / n),
        held_out=held_out,
        rewarded_without_tools=_share(not t.calls_run for t in rewarded) if rewarded else None,
        distinct=len(answers) / n if scored else None,
        tokens=math.fsum(t.tokens_out for t in scored) / n if scored else None,
        blocked=_share(t.score is not None and UNGUARDED in t.score.parts for t in scored),
    )


def _share(values: Iterable[bool]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def _held_out(run: Run, step: int) -> float | None:
    """Return the accuracy at the look after the step before, which this step's rollouts belong to."""
    found = run.history.event("evaluation", step - 1)
    return found and found.data.get("accuracy")


def _stored(data: Mapping[str, Any]) -> StepSeen:
    return StepSeen(**{k: v for k, v in data.items() if k != CLOCK})
