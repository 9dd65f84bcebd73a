"""The result of the gate: its verdict, the reason in words, and what it saw at each look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from learnloop.gate.rules import Scores

GateOutcome = Literal["adopt", "reject", "indecisive", "invalid", "leak", "no_change", "infra"]

Claim = Literal["better", "cheaper"]
"""What an adoption says: better, or cheaper and not worse by more than the margin."""

LEAST_E = 10.0


@dataclass(frozen=True, kw_only=True)
class Flips:
    """How rare the sum of graded differences is among random flips of their signs.

    Attributes:
        total: sum of the differences, candidate minus incumbent.
        alive: flip paths that have not crossed at an earlier look.
        reaching: those of them whose sum is at least as large.
        quota: how many may reach it at this look; the error allowed so far, less what is spent.
        e_value: largest gain so far of a bet that the mean is above zero, starting from 1.
    """

    total: float
    alive: int
    reaching: int
    quota: int
    e_value: float

    @property
    def crossed(self) -> bool:
        """Return whether the sum is rare enough and the bet has gained enough."""
        return self.reaching < self.quota and self.e_value >= LEAST_E


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Wins and losses of the candidate at one look.

    Attributes:
        wins: pairs in which the candidate scored more; `losses` those in which it scored less.
        boundary: wins that adopt; None for graded scores, which `flips` decides about.
        flips: the comparison with random flips, for graded scores.
        z: total of the differences in units of its own noise.
    """

    wins: int
    losses: int
    boundary: int | None
    flips: Flips | None = None
    z: float = 0.0

    @property
    def crossed(self) -> bool:
        """Return whether the candidate has done enough."""
        if self.flips is not None:
            return self.flips.crossed
        return self.boundary is not None and self.wins >= self.boundary


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the gate saw at one look.

    `clean` counts pairs without a lost attempt, `with_faults` all pairs with lost attempts as
    failures; adoption needs both to cross. `error_allowed` is the error that may be spent by now.
    """

    pairs: int
    clean: Tally
    with_faults: Tally
    incumbent_lost: int
    candidate_lost: int
    error_allowed: float
    futile: bool


@dataclass(frozen=True, kw_only=True)
class CheaperLook:
    """What the test for a saving saw at one look; all three z values must reach the boundary.

    Attributes:
        pairs: pairs so far.
        boundary: the z value that each part must reach.
        quality_z: how far the gain lies above minus the margin, from pairs without a lost attempt.
        quality_z_with_faults: the same with lost attempts as failures.
        cost_z: how far the cost lies below the incumbent's, tasks as units, from log differences.
        total_ratio: cost of all clean pairs, candidate over incumbent; must be below 1 too.
        incumbent_lost: attempts that the incumbent lost; `candidate_lost` likewise.
        futile: whether a part shows no sign of getting there.
    """

    pairs: int
    boundary: float
    quality_z: float
    quality_z_with_faults: float
    cost_z: float
    total_ratio: float
    incumbent_lost: int
    candidate_lost: int
    futile: bool

    @property
    def crossed(self) -> bool:
        """Return whether both quality and cost have done enough."""
        least = min(self.quality_z, self.quality_z_with_faults, self.cost_z)
        return least >= self.boundary and self.total_ratio < 1


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The gate's verdict, its reason in words, and the numbers of each look.

    Attributes:
        outcome: what happens to the candidate.
        words: the reason, in one sentence.
        pairs: pairs that were counted.
        looks: the numbers at each look.
        task_z: task-level z of the gain; None where it cannot be had.
        carries_over: whether an adoption may be read as "better on tasks like these".
        label: that reading in words; empty unless adopted.
        alpha: the share of error that this test was given; None when no pair was needed.
        scores: what the pairs were compared by.
        claim: what was tested.
        saving: the numbers at each look of the test for a saving, where one was made.
    """

    outcome: GateOutcome
    words: str
    pairs: int = 0
    looks: tuple[Look, ...] = ()
    task_z: float | None = None
    carries_over: bool = False
    label: str = ""
    alpha: float | None = None
    scores: Scores = "right"
    claim: Claim = "better"
    saving: tuple[CheaperLook, ...] = ()
