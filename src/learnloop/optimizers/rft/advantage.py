"""Advantages: how much better a rollout was than the others of its group."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from learnloop.summary import teaches

DEVIATION_FLOOR = 1e-3
"""Keeps the quotient bounded when all rewards but one agree."""


def advantages(rewards: Sequence[float], method: Literal["mean", "mean_std"]) -> list[float]:
    """Return one advantage a rollout of a group.

    `mean` is r - mean(r) (Dr. GRPO, arXiv 2503.20783); `mean_std` divides by the group's standard
    deviation plus a floor (GRPO, arXiv 2402.03300). A group that teaches nothing gives zeros.
    """
    if not teaches(rewards):
        return [0.0] * len(rewards)
    mean = fmean(rewards)
    centred = [r - mean for r in rewards]
    if method == "mean":
        return centred
    deviation = fmean([c**2 for c in centred]) ** 0.5
    return [c / (deviation + DEVIATION_FLOOR) for c in centred]


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
