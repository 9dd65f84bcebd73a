"""RAFT: learn from right rollouts only, the best of each group, and from earlier ones of rare kinds.

How much better one right rollout is than another, say by calls saved, may weigh too: exp(reward / t) is
reward-weighted regression (RWR, Peters and Schaal 2007; t is 1 / `sharpness` here).

Reward-ranked fine-tuning (arXiv 2304.06767) with the clipped ratio of the policy loss is RAFT++ in
arXiv 2504.11343. What is wrong is not pushed away from but left out: with few rollouts a step, what
is common to wrong ones (a tool, a format) is common to right ones of another kind too, and pushing it
away unlearns both.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from learnloop.task import Task
from learnloop.trace import Trace


def best_right(group: Sequence[Trace], most: int) -> list[Trace]:
    """Return the right rollouts of a group, best reward first, at most `most` of them (0: all).

    Among equal rewards the order is drawn, with the first trace's id as the seed.
    """
    right = [t for t in group if t.score and t.score.is_right and any(x.token_ids for x in t.turns)]
    if not right:
        return []
    random.Random(right[0].id).shuffle(right)
    right.sort(key=_reward, reverse=True)
    return right[: most or len(right)]


def with_replay(
    groups: Sequence[Sequence[Trace]],
    earlier: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    least: int,
) -> list[list[Trace]]:
    """Return what a step trains on, one list a kind of task, every kind with about the same weight.

    Of each kind `least` + 1 rollouts at most are taken from `groups`, best reward first; where there are
    fewer than `least`, right ones of `earlier` (newest last) fill up, best reward first, newer before
    older. A kind that was solved neither now nor earlier is left out.
    """
    new: dict[str, list[Trace]] = defaultdict(list)
    for group in groups:
        for trace in group:
            new[tasks[trace.task_id].kind].append(trace)
    old: dict[str, list[Trace]] = defaultdict(list)
    for trace in reversed(earlier):
        if best_right([trace], 1):
            old[tasks[trace.task_id].kind].append(trace)
    chosen: list[list[Trace]] = []
    for kind in sorted({*new, *old}):
        now = sorted(new[kind], key=_reward, reverse=True)[: least + 1]
        before = sorted(old[kind], key=_reward, reverse=True)
        chosen.append([*now, *before[: max(0, least - len(now))]])
    return chosen


def weights(traces: Sequence[Trace], sharpness: float) -> list[float]:
    """Return weights, 1 on average, that grow as exp(`sharpness` * reward); 0 makes all alike."""
    best = max(map(_reward, traces), default=0.0)
    found = [math.exp(sharpness * (_reward(trace) - best)) for trace in traces]
    return [len(found) * weight / sum(found) for weight in found]


def _reward(trace: Trace) -> float:
    return trace.score.value if trace.score else 0.0
