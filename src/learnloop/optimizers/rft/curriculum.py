"""Which tasks a training step uses: a fixed sequence drawn from the seed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from learnloop.errors import ConfigError
from learnloop.task import Task


def sequence(
    tasks: Sequence[Task], weights: Mapping[str, float], count: int, seed: int
) -> list[Task]:
    """Return `count` tasks in training order; the first n are the same whatever `count` is.

    Each task is used once before any is used again, within its kind. With weights, kinds are drawn
    so that their shares follow them as closely as possible at every point of the sequence.

    Raises:
        ConfigError: no task is left, or a weight names a kind that no task has.
    """
    by_kind: dict[str, list[Task]] = defaultdict(list)
    for task in sorted(tasks, key=lambda t: t.id):
        by_kind[task.kind if weights else ""].append(task)
    unknown = sorted(set(weights) - set(by_kind))
    if unknown:
        kinds = ", ".join(sorted(filter(None, by_kind)))
        raise ConfigError(
            f"no training task has kind `{unknown[0]}`",
            where="[curriculum] weights",
            fix=f"Kinds: {kinds}." if kinds else "The rows have no `kind`: write one into each.",
        )
    shares = {k: w for k, w in weights.items() if w > 0} if weights else {"": 1.0}
    if not shares or not by_kind:
        raise ConfigError(
            "there is nothing to train on",
            where="[curriculum] weights",
            fix="Give a weight above 0.",
        )
    queues = {kind: _endless(by_kind[kind], f"{seed}:{kind}") for kind in sorted(shares)}
    given = dict.fromkeys(queues, 0)
    out: list[Task] = []
    for _ in range(count):
        kind = min(queues, key=lambda k: ((given[k] + 1) / shares[k], k))
        given[kind] += 1
        out.append(next(queues[kind]))
    return out


def _endless(tasks: Sequence[Task], seed: str) -> Iterator[Task]:
    rng = random.Random(seed)
    while True:
        order = list(tasks)
        rng.shuffle(order)
        yield from order
