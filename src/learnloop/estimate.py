"""The estimate: how many rollouts a training run will make, and roughly how long they take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.config import Config
from learnloop.models.registry import EMBEDDED
from learnloop.peak import in_flight
from learnloop.task import Task

# Seconds for each rollout of the embedded model on two idle cores: sampling one of three turns,
# and training on it. They only serve the estimate.
_SAMPLED_S, _TRAINED_S = 0.25, 0.35
_TURNS = 3


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a training run will do: rollouts by stage, the most tool calls, and rough minutes.

    `minutes` is None for models whose speed is not known beforehand.
    """

    probe: int
    evaluation: int
    training: int
    max_calls: int
    minutes: float | None

    @property
    def rollouts(self) -> int:
        """Return the rollouts of all stages."""
        return self.probe + self.evaluation + self.training


def turn_seconds(config: Config) -> float:
    """Return roughly how long a turn takes when a whole step is in flight; 0 when unknown."""
    if config.model.ref not in EMBEDDED:
        return 0.0
    return in_flight(config) * _SAMPLED_S / _TURNS


def estimate_run(config: Config, tasks: Sequence[Task]) -> Estimate:
    """Return how many rollouts `learnloop train` will make with these settings.

    The gate is counted up to its first look: a clear gain ends there, a close call goes on.
    """
    sizes = Counter(t.split for t in tasks)
    train = config.train
    screened = min(sizes["screen"], train.eval_tasks or sizes["screen"])
    # Before training, once more before a warm-up, every few steps, and after the last one.
    looks = 1 + bool(config.warmup.path) + math.ceil(train.steps / train.eval_every)
    gated = config.gate.looks[0] if sizes["confirm"] else 0
    arms = 3 if config.warmup.path else 2
    again = min(screened, config.gate.aa_tasks)
    # After an adoption: up to five tries choose a task, and five of each arm test it.
    again += 15 * min(config.gate.protect, sizes["confirm"])
    evaluation = looks * screened + again + 2 * gated + (arms - 2) * min(gated, sizes["confirm"])
    probed = min(sizes["train"], config.probe.tasks or sizes["train"])
    probe = config.probe.attempts * probed * (2 if config.probe.after else 1)
    training = train.steps * train.rollouts_per_step
    rollouts = probe + evaluation + training
    seconds = rollouts * _SAMPLED_S + training * _TRAINED_S
    return Estimate(
        probe=probe,
        evaluation=evaluation,
        training=training,
        max_calls=rollouts * config.agent.max_calls,
        minutes=round(seconds / 60, 1) if config.model.ref in EMBEDDED else None,
    )
