"""The rules of one test: what is fixed before its first pair."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from learnloop.errors import ConfigError

Scores = Literal["right", "graded"]
"""What pairs are compared by: right or not (0 or 1), or a number in [0, 1]."""

LOOKS = (80, 160, 240, 320, 400)


@dataclass(frozen=True, kw_only=True)
class GateRules:
    """What is fixed before the first pair.

    Attributes:
        alpha: the share of error of this test.
        looks: pair counts at which the gate looks.
        scores: `right` takes the exact sign test; `graded` random flips and a bet on the mean.
        seed: fixes the random flips of graded scores.
    """

    alpha: float = 0.0125
    looks: tuple[int, ...] = LOOKS
    scores: Scores = "right"
    seed: int = 0

    def __post_init__(self) -> None:
        check_looks(self.looks)
        check_alpha(self.alpha)

    def error_allowed(self, pairs: int) -> float:
        """Return the error that may be spent up to a look: little at first, which keeps power."""
        return self.alpha * (pairs / self.looks[-1]) ** 2


def check_looks(looks: tuple[int, ...]) -> None:
    """Raise ConfigError unless the looks are rising pair counts."""
    if not looks or looks[0] < 1 or any(a >= b for a, b in pairwise(looks)):
        raise ConfigError(
            f"looks must be rising pair counts, not {list(looks)}", where="gate.looks"
        )


def check_alpha(alpha: float) -> None:
    """Raise ConfigError unless the share of error lies between 0 and 1."""
    if not 0 < alpha < 1:
        raise ConfigError(
            f"the error share must lie between 0 and 1, not {alpha}", where="gate.alpha"
        )


def next_look(done: int, rules: GateRules) -> int:
    """Return up to how many pairs to run before the next call of `decide`."""
    return look_after(done, rules.looks)


def look_after(done: int, looks: tuple[int, ...]) -> int:
    """Return the first look that so many pairs have not passed, or the last one."""
    return next((n for n in looks if n > done), looks[-1])


def futility_limit(pairs: int, cap: int) -> float:
    """Return the z value at which a test stops as hopeless: from -0.5 at a fifth to 1.5 at the end.

    The boundaries ignore it, so that overruling it never breaks the error.
    """
    return 2.5 * pairs / cap - 1
