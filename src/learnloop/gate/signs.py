"""The exact sign test of 0/1 results: how many wins the candidate has, and how many it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from learnloop.bounds import boundaries
from learnloop.gate.result import Tally
from learnloop.gate.rules import GateRules


def sign_tallies(differences: Sequence[float], rules: GateRules) -> Iterator[Tally]:
    """Yield the tally at each look that so many differences (1, 0, -1) reach."""
    reached = [n for n in rules.looks if n <= len(differences)]
    wins = [sum(d > 0 for d in differences[:n]) for n in reached]
    losses = [sum(d < 0 for d in differences[:n]) for n in reached]
    share = Fraction(rules.alpha).limit_denominator(1_000_000)
    needed = boundaries(
        (w + x for w, x in zip(wins, losses, strict=True)),
        (share.numerator * n * n for n in reached),
        share.denominator * rules.looks[-1] ** 2,
    )
    for won, lost, least in zip(wins, losses, needed, strict=True):
        z = (won - lost) / math.sqrt(won + lost) if won + lost else 0.0
        yield Tally(wins=won, losses=lost, boundary=least, z=z)
