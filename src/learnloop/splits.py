"""Splits: which tasks may be learned from and which decide, and whether the two are kept apart."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from learnloop.config import SplitsConfig
from learnloop.errors import ConfigError
from learnloop.message import Message
from learnloop.task import SPLITS, Split, Task


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Tasks of different splits that belong together, so that learning one gives away the other.

    `kind` is `group` (one group in several splits) or `question` (the same question text).
    """

    kind: Literal["group", "question"]
    task_ids: tuple[str, ...]
    splits: tuple[Split, ...]
    words: str

    @property
    def decides(self) -> bool:
        """Return whether what is learned from meets what decides, so that a gain proves nothing."""
        return bool({"train", "screen"} & {*self.splits}) and bool(
            {"confirm", "test"} & {*self.splits}
        )


def assign_splits(groups: Iterable[str], shares: SplitsConfig) -> dict[str, Split]:
    """Return the split of each group, by the hash of its name.

    A group keeps its split whatever else the dataset holds; the shares are met on average, so a
    dataset of few groups may miss them.

    Raises:
        ConfigError: shares are negative or all zero.
    """
    sizes = [shares.train, shares.screen, shares.confirm, shares.test]
    if min(sizes) < 0 or sum(sizes) <= 0:
        raise ConfigError("shares must be zero or more, one of them above zero", where="splits")
    return {group: _split_at(_unit_hash("split", group) * sum(sizes), sizes) for group in groups}


FEWEST_TESTED = 100
"""With fewer groups held out, a sealed test would say too little to be worth its tasks."""


def divide_held_out(groups: Iterable[str]) -> dict[str, Split]:
    """Return the split of each group of a validation file: screen, confirm or test as 20 to 50 to 30.

    Under a hundred groups there is no test, and the rest is divided as 20 to 50.
    """
    names = set(groups)
    test = 0.3 if len(names) >= FEWEST_TESTED else 0.0
    return assign_splits(names, SplitsConfig(train=0.0, screen=0.2, confirm=0.5, test=test))


def _split_at(place: float, sizes: Sequence[float]) -> Split:
    chosen: Split = "train"
    for split, size in zip(SPLITS, sizes, strict=True):
        if size > 0:
            chosen = split
            if place < size:
                return split
        place -= size
    return chosen  # rounding left the place a hair beyond the last share


def _unit_hash(*parts: str) -> float:
    """Return a number in [0, 1) that depends on nothing but `parts`, on every machine."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def in_split(tasks: Iterable[Task], split: Split) -> list[Task]:
    """Return the tasks of one split, in order.

    Raises:
        ConfigError: there are none; another split is never taken instead.
    """
    found = [task for task in tasks if task.split == split]
    if not found:
        raise ConfigError(
            f"the dataset has no task in split {split}",
            where="data",
            fix="Add rows with this split or raise its share in [splits].",
        )
    return found


def sample_tasks(tasks: Sequence[Task], n: int, *, seed: int = 0) -> list[Task]:
    """Return `n` tasks spread evenly over kinds, and within them over groups; 0 takes all.

    Kinds take turns; each turn takes the task whose group was used least, ties by a hash of the
    seed. A smaller sample is the beginning of a larger one, and the order of `tasks` does not
    matter.
    """
    used = Counter[str]()
    queues = {kind: _queue(tasks, kind, seed) for kind in sorted({t.kind for t in tasks})}
    chosen = list[Task]()
    wanted = min(n, len(tasks)) if n else len(tasks)
    while len(chosen) < wanted:
        for queue in queues.values():
            if queue and len(chosen) < wanted:
                task = _least_used(queue, used)
                used[task.group] += 1
                chosen.append(task)
    return chosen


_Queue = list[tuple[int, float, str, Task]]


def _queue(tasks: Sequence[Task], kind: str, seed: int) -> _Queue:
    entries = [(0, _unit_hash(str(seed), t.id), t.id, t) for t in tasks if t.kind == kind]
    heapq.heapify(entries)
    return entries


def _least_used(queue: _Queue, used: Counter[str]) -> Task:
    """Pop the task of the least used group; entries that went stale are put back with new keys."""
    while True:
        uses, tie, task_id, task = heapq.heappop(queue)
        if uses == used[task.group]:
            return task
        heapq.heappush(queue, (used[task.group], tie, task_id, task))


def find_leaks(tasks: Sequence[Task]) -> list[Leak]:
    """Return groups and question texts that occur in more than one split."""
    groups = _across_splits(tasks, lambda task: task.group)
    questions = _across_splits(tasks, question_text)
    found = [_leak("group", f"group {name!r}", group) for name, group in groups]
    return found + [_leak("question", "the same question text", same) for _, same in questions]


def question_text(task: Task) -> str:
    """Return what the user asks, spaces and letter case evened out; empty when nobody asks."""
    return asked_text(task.messages)


def asked_text(messages: Iterable[Message]) -> str:
    """Return what the user says in a conversation, spaces and letter case evened out."""
    asked = " ".join(m.content for m in messages if m.role == "user")
    return " ".join(asked.split()).casefold()


def _across_splits(
    tasks: Sequence[Task], key: Callable[[Task], str]
) -> list[tuple[str, list[Task]]]:
    same = defaultdict[str, list[Task]](list)
    for task in tasks:
        same[key(task)].append(task)
    return [
        (name, group)
        for name, group in sorted(same.items())
        if name and len({task.split for task in group}) > 1
    ]


def _leak(kind: Literal["group", "question"], what: str, tasks: Sequence[Task]) -> Leak:
    splits: tuple[Split, ...] = tuple(
        split for split in SPLITS if any(task.split == split for task in tasks)
    )
    examples = [next(task.id for task in tasks if task.split == split) for split in splits]
    places = " and ".join(f"{split} ({task})" for split, task in zip(splits, examples, strict=True))
    return Leak(
        kind=kind,
        task_ids=tuple(task.id for task in tasks),
        splits=splits,
        words=f"{what} is in {places}",
    )
