"""The error pool: the chance of a false adoption that a whole run may take, shared by its tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from learnloop.errors import ConfigError
from learnloop.gate.result import GateResult
from learnloop.gate.rules import check_alpha


@dataclass(frozen=True, kw_only=True)
class ErrorPool:
    """The error of a run, and how much of it is spent.

    A test is given one share before its first pair. Adopted, the share returns: up to the first
    false adoption the shares used on candidates that are no better still sum to at most `alpha`.
    Otherwise it is gone, whatever part of it the test left unused; giving that back doubles the
    error of a run.

    Attributes:
        alpha: the chance of a false adoption that the run may take.
        max_candidates: into how many shares it is split.
        used: shares that are gone.
    """

    alpha: float = 0.05
    max_candidates: int = 4
    used: int = 0

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if self.max_candidates < 1:
            raise ConfigError("at least one candidate must fit", where="gate.max_candidates")

    @property
    def share(self) -> float:
        """Return the error share of one test."""
        return self.alpha / self.max_candidates

    @property
    def left(self) -> int:
        """Return how many more tests the pool pays for."""
        return max(0, self.max_candidates - self.used)

    def after(self, results: Iterable[GateResult]) -> ErrorPool:
        """Return the pool as it is after these tests; verdicts that needed no pair cost nothing."""
        spent = sum(r.pairs > 0 and r.outcome != "adopt" for r in results)
        return replace(self, used=self.used + spent)
