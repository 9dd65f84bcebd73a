"""Lost attempts: when too many are lost, or too unevenly, for a verdict to mean anything."""

from __future__ import annotations

import math

LEAST_COVERAGE = 0.9
IMBALANCE_P = 0.05


def low_coverage(pairs: int, incumbent_lost: int, candidate_lost: int) -> str:
    """Say which arm lost more than a tenth of its attempts; empty when neither did."""
    for arm, lost in (("incumbent", incumbent_lost), ("candidate", candidate_lost)):
        if pairs - lost < LEAST_COVERAGE * pairs:
            share = 1 - lost / pairs
            return f"only {share:.0%} of the {arm}'s attempts have a score; 90 % are needed"
    return ""


def uneven_loss(incumbent_lost: int, candidate_lost: int) -> str:
    """Say that the incumbent lost more attempts than chance explains, which fakes a gain.

    One-sided on purpose: a candidate that loses more only hurts itself, because its losses count
    as failures.
    """
    total = incumbent_lost + candidate_lost
    tail = sum(math.comb(total, x) for x in range(incumbent_lost, total + 1)) / 2**total
    if total and tail < IMBALANCE_P:
        return (
            f"the incumbent lost {incumbent_lost} attempts to faults and the candidate "
            f"{candidate_lost}; that alone could make the gain"
        )
    return ""
