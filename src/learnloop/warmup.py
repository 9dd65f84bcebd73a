"""The warm-up: a supervised start from demonstrations, in rounds, until every kind of task is done right at times.

Event: warmup {demonstrations, seconds, updates, first_loss, last_loss, rounds: [{demonstrations,
solved: {kind: share}, weak: [kind]}]}; what was tried after a round is filed under the stage `warmup`,
its number as the step.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from learnloop.batch import attempts_on
from learnloop.codec import Demo
from learnloop.optimizers.rft.curriculum import sequence
from learnloop.optimizers.rft.tuner import Progress, Tuner, demo_rows
from learnloop.run import CURRENT, Run
from learnloop.splits import in_split
from learnloop.task import Task
from learnloop.trace import Trace


async def warm_up(run: Run, tuner: Tuner, progress: Progress) -> Progress:
    """Teach what the demonstrations show, if there are any and it was not done yet."""
    if progress.step >= 0:
        return progress
    if run.has_warmup:
        run.begin_stage("warm-up")
        began_s = time.monotonic()
        told = await _rounds(run, tuner)
        await run.keep(run.base)
        run.emit_once("warmup", seconds=time.monotonic() - began_s, **told)
    progress = Progress(step=0)
    await tuner.save(progress)
    return progress


async def _rounds(run: Run, tuner: Tuner) -> dict[str, Any]:
    """Go through the demonstrations, and again through those of weak kinds while there are such."""
    config, seed = run.config.warmup, run.config.train.seed
    demos = list(run.project.demos()[: config.limit])
    made: list[Mapping[str, float]] = []
    rounds: list[dict[str, Any]] = []
    for number in range(1, config.rounds + 1):
        made.append(await tuner.warm_up(demo_rows(demos, len(demos), seed + number - 1)))
        rounds.append({"demonstrations": len(demos)})
        if number == config.rounds:
            break
        solved = await _solved_by_kind(run, number)
        weak = weak_kinds(solved, config.enough)
        rounds[-1] |= {"solved": solved, "weak": weak}
        demos = again(run.project.demos()[: config.limit], run.tasks, weak, seed + number)
        if not demos:
            break
    return {
        "demonstrations": rounds[0]["demonstrations"],
        "updates": sum(int(m.get("updates", 0)) for m in made),
        "first_loss": made[0].get("first_loss"),
        "last_loss": made[-1].get("last_loss"),
        "rounds": rounds,
    }


async def _solved_by_kind(run: Run, number: int) -> dict[str, float]:
    """Try training tasks as training will, and return the solved share of each kind's."""
    train, config = run.config.train, run.config.warmup
    pool = in_split(run.tasks.values(), "train")
    tasks = sequence(pool, run.config.curriculum.weights, config.tried_tasks, train.seed)
    await run.forget()
    attempts = attempts_on(tasks)
    batch = run.batch("warmup", run.base, attempts, step=number, temperature=train.temperature)
    [traces] = await run.roll(replace(batch, weights=CURRENT))
    return solved_by_kind(traces, run.tasks)


def solved_by_kind(traces: Sequence[Trace], tasks: Mapping[str, Task]) -> dict[str, float]:
    """Return the share of right rollouts among the graded ones of each kind of task."""
    right: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        if trace.score:
            right[tasks[trace.task_id].kind].append(float(trace.score.is_right))
    return {kind: fmean(shares) for kind, shares in sorted(right.items())}


def weak_kinds(solved: Mapping[str, float], enough: float) -> list[str]:
    """Return the kinds of which less than the wanted share is solved."""
    return [kind for kind, share in solved.items() if share < enough]


def again(
    demos: Sequence[Demo], tasks: Mapping[str, Task], weak: Sequence[str], seed: int
) -> list[Demo]:
    """Return the demonstrations of weak kinds and as many others, so that these are not unlearned."""
    kinds = [tasks[d.task_id].kind if d.task_id in tasks else "" for d in demos]
    wanted = [d for d, kind in zip(demos, kinds, strict=True) if kind in weak]
    others = [d for d, kind in zip(demos, kinds, strict=True) if kind not in weak]
    random.Random(seed).shuffle(others)
    return wanted + others[: len(wanted)]
