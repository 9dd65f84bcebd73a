"""Scores how cheaply an answer was had, as a part of a combined score: 1 up to `free`, 0 from `full` on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

from learnloop.graders.version import version_of
from learnloop.task import Task
from learnloop.trace import Score, Trace

Unit = Literal["calls", "rounds", "tokens", "latency", "wall_clock"]

_CODE_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class BudgetGrader:
    """1 where the cost is at most `free`, 0 from `full` on, a straight line between.

    `latency` is what the rounds take by the declared seconds of each tool (`default` for others): the
    slowest call of a round counts, since calls of a round run at once. Declared, because on shared machines
    measured seconds are noise; `wall_clock` takes them all the same.
    """

    unit: Unit
    free: float
    full: float
    latencies: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def version(self) -> str:
        """Return the version of code and settings."""
        settings = (self.unit, self.free, self.full, dict(self.latencies))
        return version_of("budget", _CODE_VERSION, settings=settings)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the share of the budget that is left."""
        del task
        cost = self.cost(trace)
        value = 1 - min(1.0, max(0.0, (cost - self.free) / (self.full - self.free)))
        return Score(value=value, correct=value, parts={self.unit: cost})

    def cost(self, trace: Trace) -> float:
        """Return what a rollout cost."""
        if self.unit == "calls":
            return float(len(trace.calls_run))
        if self.unit == "rounds":
            return float(trace.rounds)
        if self.unit == "tokens":
            return float(trace.tokens_total)
        if self.unit == "wall_clock":
            return trace.latency_s
        default = self.latencies.get("default", 0.0)
        rounds = groupby(sorted(trace.calls_run, key=lambda c: c.round), key=lambda c: c.round)
        return sum(
            max(self.latencies.get(c.call.name, default) for c in calls) for _, calls in rounds
        )
