"""Advantages: how much better a rollout was than the others of its group."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import Literal

from learnloop.summary import teaches

DEVIATION_FLOOR = 1e-3
"""Keeps the quotient bounded when all rewards but one agree."""


def advantages(
    rewards: Sequence[float], method: Literal["mean", "mean_std"], *, bonus: float = 0.0
) -> list[float]:
    """Return one advantage a rollout of a group.

    `mean` is r - mean(r) (Dr. GRPO, arXiv 2503.20783); `mean_std` divides by the group's standard
    deviation plus a floor (GRPO, arXiv 2402.03300). A group that teaches nothing gives zeros.

    `bonus` is added to each: for a group in which everything is right, whose centred advantages say
    nothing of what the other groups of an update may undo. Reinforcing what is solved everywhere
    follows RL-ZVP (arXiv 2509.21880), here by a constant.
    """
    if not teaches(rewards):
        return [bonus] * len(rewards)
    mean = fmean(rewards)
    centred = [r - mean for r in rewards]
    if method == "mean":
        return [c + bonus for c in centred]
    deviation = fmean([c**2 for c in centred]) ** 0.5
    return [c / (deviation + DEVIATION_FLOOR) + bonus for c in centred]


def thrift(costs: Sequence[float | None], weight: float) -> list[float]:
    """Return what is added to the advantages of a group for being cheaper than its other solutions.

    `costs` has None for rollouts that are not right: they get nothing, whatever they cost. The others
    get `weight` for each standard deviation below their mean cost, two at most, so that the pull is
    the same for tasks of two calls and of ten (rewards normalised apart, as in GDPO, arXiv
    2601.05242). With a weight of at most a quarter a right rollout stays above a wrong one, as long
    as right and wrong differ by 1.
    """
    found = [cost for cost in costs if cost is not None]
    deviation = pstdev(found) if found else 0.0
    if deviation <= 0:
        return [0.0] * len(costs)
    mean = fmean(found)
    return [
        0.0 if c is None else weight * max(-2.0, min(2.0, (mean - c) / deviation)) for c in costs
    ]


def most_telling(rewards: Sequence[float], most: int, seed: str) -> list[int]:
    """Return which rollouts of a group to train on when all of them would take too long.

    Takes the `most // 2` lowest rewards and the highest ones: of all subsets of that size whose
    rewards come from both ends, this one has the largest spread (max-variance down-sampling, arXiv
    2504.13818, with the halves fixed). Ties are drawn by `seed`: choosing the shorter of two failed
    rollouts would punish short failures only, and teach the agent to wander. Indices come back in
    their old order; `most` 0 takes all.
    """
    everyone = list(range(len(rewards)))
    if most <= 0 or len(rewards) <= most:
        return everyone
    random.Random(seed).shuffle(everyone)
    everyone.sort(key=lambda i: rewards[i])
    low = most // 2
    return sorted(everyone[:low] + everyone[len(everyone) - (most - low) :])
