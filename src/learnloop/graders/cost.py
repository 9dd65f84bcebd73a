"""Takes a little off a correct answer's reward when it was expensive to get."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from learnloop.errors import ConfigError
from learnloop.grader import Grader
from learnloop.graders.version import version_of
from learnloop.task import Task
from learnloop.trace import Score, Trace

Unit = Literal["calls", "rounds", "tokens"]

_CODE_VERSION = 2
_MOST = 0.2


@dataclass(frozen=True, kw_only=True)
class CostShape:
    """How much is taken off: nothing up to `free`, the whole `weight` from `full` on."""

    weight: float
    unit: Unit = "calls"
    free: float = 1.0
    full: float = 6.0

    def __post_init__(self) -> None:
        """Refuse shapes that could rank a correct rollout below a wrong one, or divide by 0."""
        if not 0 <= self.weight <= _MOST:
            what = f"cost_weight {self.weight:g} is not between 0 and {_MOST}"
            raise ConfigError(what, where="[grader]")
        if not 0 <= self.free < self.full:
            what = f"cost_free {self.free:g} must be below cost_full {self.full:g}"
            raise ConfigError(what, where="[grader]")

    def factor(self, cost: float) -> float:
        """Return what a correct answer's reward is multiplied by, from `1 - weight` to 1."""
        share = (cost - self.free) / (self.full - self.free)
        return 1 - self.weight * min(1.0, max(0.0, share))


class CostGrader:
    """Wraps a grader: `value = correct * factor(cost)`, and `correct` stays as it was.

    It multiplies and never adds, so a wrong answer stays at 0 however cheap it was, and a correct
    one keeps at least 80 %.
    """

    def __init__(self, inner: Grader, shape: CostShape) -> None:
        self._inner, self._shape = inner, shape

    @property
    def version(self) -> str:
        """Return the version of shape and inner grader."""
        return version_of("cost", _CODE_VERSION, shape=self._shape, inner=self._inner.version)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the inner score, shaped; `parts` tells cost and factor apart."""
        score = await self._inner.grade(task, trace)
        cost = cost_of(trace, self._shape.unit)
        factor = self._shape.factor(cost)
        parts = {**score.parts, "cost": cost, "cost_factor": factor}
        return replace(score, value=score.correct * factor, parts=parts)


def cost_of(trace: Trace, unit: Unit) -> float:
    """Return what a rollout cost, in the unit."""
    if unit == "calls":
        return float(len(trace.calls_run))
    return float(trace.rounds if unit == "rounds" else trace.tokens_total)
