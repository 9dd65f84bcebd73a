"""The rft optimiser: warm-up and steps on the policy process, resumable after each of them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from learnloop.codec import Demo
from learnloop.config import Config
from learnloop.models.policy import PolicyProcess, TrainRow
from learnloop.optimizers.rft.advantage import advantages, most_telling
from learnloop.optimizers.rft.raft import best_right, weights, with_replay
from learnloop.summary import teaches
from learnloop.task import Task
from learnloop.trace import Trace, Turn


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands: `step` updates are done (0 after the warm-up, -1 before it)."""

    step: int


class Tuner:
    """Turns groups of traces into updates of the current weights."""

    def __init__(self, policy: PolicyProcess, config: Config, folder: Path) -> None:
        self._policy, self._config, self._folder = policy, config, folder
        self._updates = 0  # of the training proper; a step without usable groups makes none

    @property
    def _state(self) -> Path:
        return self._folder / "state.pt"

    async def start(self) -> Progress:
        """Prepare training, from the last saved state where there is one."""
        rft, model = self._config.train.rft, self._config.model
        await self._policy.start_training(
            {
                "method": rft.method,
                "learning_rate": rft.learning_rate,
                "lora_rank": rft.lora_rank,
                "lora_alpha": rft.lora_alpha,
                "clip_low": rft.clip_low,
                "clip_high": rft.clip_high,
                "max_grad_norm": rft.max_grad_norm,
                "micro_batch_tokens": rft.micro_batch_tokens,
                "max_context": model.max_context,
                "seed": self._config.train.seed,
            }
        )
        if not self._state.exists():
            return Progress(step=-1)
        saved = await self._policy.load_state(self._state)
        self._updates = int(saved["updates"])
        return Progress(step=int(saved["step"]))

    async def save(self, progress: Progress) -> None:
        """Write the training state, whole or not at all."""
        extra = {"step": progress.step, "updates": self._updates}
        await self._policy.save_state(self._state, extra)

    async def warm_up(self, rows: Sequence[TrainRow]) -> Mapping[str, float]:
        """Learn from demonstrations; returns loss at the first and the last update."""
        warmup = self._config.warmup
        order = list(rows)
        rng = random.Random(self._config.train.seed)
        batches: list[list[TrainRow]] = []
        for _ in range(warmup.epochs):
            rng.shuffle(order)
            starts = range(0, len(order), warmup.batch_size)
            batches += [order[start : start + warmup.batch_size] for start in starts]
        losses: list[float] = []
        for number, batch in enumerate(batches, start=1):
            rising = max(2, len(batches) // 10)
            rate = warmup.learning_rate * rise_and_fall(number, len(batches), rising=rising)
            metrics = await self._policy.train(batch, algorithm="supervised", learning_rate=rate)
            losses.append(metrics["loss"])
        await self._policy.reset_optimizer()
        return (
            {"updates": len(losses), "first_loss": losses[0], "last_loss": losses[-1]}
            if losses
            else {}
        )

    async def update(
        self,
        step: int,
        groups: Sequence[Sequence[Trace]],
        tasks: Mapping[str, Task],
        earlier: Sequence[Trace] = (),
    ) -> dict[str, Any]:
        """Make the updates of a step (from 1) from the groups that teach; returns their metrics.

        Rollouts lost to faults are left out, and with them groups that have fewer than two graded
        ones. When no group teaches, the weights stay as they are. `earlier` rollouts are replayed
        where `train.rft.replay` asks for it.
        """
        train = self._config.train
        began = time.monotonic()
        if train.rft.advantage == "raft":
            kept, used = self._right(groups, tasks, earlier)
        else:
            kept = used = [rows for group in groups if (rows := self._compared(group, tasks))]
        metrics: dict[str, Any] = {
            "groups_kept": len(kept),
            "groups_dropped": len(groups) - len(kept),
        }
        if used:
            rising = train.rft.rate_warmup
            share = rise_and_fall(step, train.steps, rising=rising, made=self._updates)
            rate = train.rft.learning_rate * share
            made: list[Mapping[str, float]] = []
            for rows in dealt(used, train.rft.updates_per_step):
                made.append(
                    await self._policy.train(
                        rows, algorithm=train.rft.algorithm, learning_rate=rate
                    )
                )
            metrics |= in_all(made) | {"learning_rate": rate}
            self._updates += 1
        metrics["train_s"] = time.monotonic() - began
        return metrics

    def _compared(self, group: Sequence[Trace], tasks: Mapping[str, Task]) -> list[TrainRow]:
        """Return the rows of a group with their advantages; none when it teaches nothing."""
        rft = self._config.train.rft
        assert rft.advantage != "raft"
        graded = [t for t in group if t.score and any(turn.token_ids for turn in t.turns)]
        rewards = [t.score.value for t in graded if t.score]
        if not teaches(rewards):
            return []
        chosen = most_telling(rewards, rft.trained_per_group, graded[0].id)
        found = advantages([rewards[i] for i in chosen], rft.advantage)
        return [self._row(graded[i], tasks, a) for i, a in zip(chosen, found, strict=True)]

    def _right(
        self, groups: Sequence[Sequence[Trace]], tasks: Mapping[str, Task], earlier: Sequence[Trace]
    ) -> tuple[list[list[Trace]], list[list[TrainRow]]]:
        """Return the right rollouts of the groups that have some, and the rows made of them."""
        rft = self._config.train.rft
        kept = [best for group in groups if (best := best_right(group, rft.trained_per_group))]
        used = with_replay(kept, earlier, tasks, least=rft.replay) if rft.replay else kept
        rows = [
            [
                self._row(t, tasks, w)
                for t, w in zip(some, weights(some, rft.sharpness), strict=True)
            ]
            for some in used
        ]
        return kept, rows

    def _row(self, trace: Trace, tasks: Mapping[str, Task], advantage: float) -> TrainRow:
        tools = tasks[trace.task_id].tools
        return TrainRow.of(trace, tools, advantage, self._config.train.temperature)


def dealt(groups: Sequence[Sequence[TrainRow]], parts: int) -> list[list[TrainRow]]:
    """Deal the rows of all groups out to at most `parts` updates; every group has a share in each."""
    order = [row for group in groups for row in group]
    return [part for i in range(parts) if (part := order[i::parts])]


def in_all(updates: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of a step: sums of tokens and seconds, the last version, means of the rest."""
    totals = {"tokens_trained", "tokens_packed", "tokens_unpacked", "seconds"}
    last = {"version", "skipped"}
    return {
        name: sum(values) if name in totals else values[-1] if name in last else fmean(values)
        for name in updates[0]
        if (values := [metrics[name] for metrics in updates])
    }


def rise_and_fall(number: int, count: int, *, rising: int, made: int | None = None) -> float:
    """Return the share of the learning rate for step `number` of `count`, counted from 1.

    It rises over the first `rising` updates, at most half of them, and then falls in a straight
    line. `made` says how many updates there were before, where not every step made one. Adam's first
    update would move every weight by the whole rate, however small its gradient; the last ones are
    averaged out by none that follow.
    """
    rising = max(1, min(rising, count // 2))
    before = number - 1 if made is None else made
    return min(1.0, (before + 1) / rising, (count + 1 - number) / (count + 1 - rising))


def demo_rows(demos: Sequence[Demo], limit: int, seed: int) -> list[TrainRow]:
    """Return the first `limit` demonstrations as rows of weight 1, in an order drawn by seed.

    The first ones and not any: a file balances its kinds of task in its own order.
    """
    order = list(demos[:limit])
    random.Random(seed).shuffle(order)
    return [
        TrainRow(
            messages=d.messages,
            turns=tuple(Turn(text=m.content) for m in d.messages if m.role == "assistant"),
            tools=d.tools,
            advantage=1.0,
            temperature=1.0,
        )
        for d in order
    ]
