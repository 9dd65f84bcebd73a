"""The order of training tasks: fixed by the seed, fair to kinds, the same whatever its length."""

from __future__ import annotations

from collections import Counter

import pytest

from learnloop.errors import ConfigError
from learnloop.message import Message
from learnloop.optimizers.rft.curriculum import sequence
from learnloop.task import Task


def make_tasks(**counts: int) -> list[Task]:
    return [
        Task(
            id=f"{kind}-{i}",
            split="train",
            group=f"{kind}-{i}",
            kind=kind,
            messages=(Message(role="user", content="?"),),
            tools=(),
        )
        for kind, count in counts.items()
        for i in range(count)
    ]


def names(tasks: list[Task]) -> list[str]:
    return [t.id for t in tasks]


TASKS = make_tasks(easy=7, hard=3, odd=20)


@pytest.mark.parametrize("weights", [{}, {"easy": 2.0, "hard": 1.0}])
def test_a_longer_sequence_begins_with_the_shorter_one(weights: dict[str, float]) -> None:
    long = names(sequence(TASKS, weights, 60, seed=3))
    for count in (0, 1, 7, 31):
        assert names(sequence(TASKS, weights, count, seed=3)) == long[:count]
    assert names(sequence(TASKS[::-1], weights, 60, seed=3)) == long
    assert names(sequence(TASKS, weights, 60, seed=4)) != long


def test_without_weights_every_task_comes_once_before_any_comes_again() -> None:
    order = names(sequence(TASKS, {}, 65, seed=0))
    assert len(set(order[:30])) == 30
    assert len(set(order[30:60])) == 30
    assert order[:30] != order[30:60]


def test_shares_of_kinds_follow_the_weights_at_every_point() -> None:
    weights = {"easy": 1.0, "hard": 3.0, "odd": 2.0}
    order = sequence(TASKS, weights, 300, seed=1)
    for n in range(1, 301):
        seen = Counter(t.kind for t in order[:n])
        for kind, weight in weights.items():
            assert abs(seen[kind] - n * weight / 6) < 2
    hard = [t.id for t in order if t.kind == "hard"]
    assert all(len(set(hard[i : i + 3])) == 3 for i in range(0, 30, 3))


def test_kinds_without_weight_are_left_out() -> None:
    order = sequence(TASKS, {"easy": 1.0, "odd": 0.0}, 20, seed=1)
    assert {t.kind for t in order} == {"easy"}


@pytest.mark.parametrize(
    ("tasks", "weights", "words"),
    [
        (TASKS, {"easy": 1.0, "esay": 1.0}, "no training task has kind `esay`"),
        (TASKS, {"easy": 0.0}, "nothing to train on"),
        ([], {}, "nothing to train on"),
    ],
)
def test_a_curriculum_that_cannot_be_followed_is_named(
    tasks: list[Task], weights: dict[str, float], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        sequence(tasks, weights, 5, seed=0)
