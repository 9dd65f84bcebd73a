"""RAFT: right rollouts only, the best first, and earlier ones where a kind has too few."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from learnloop.message import Message
from learnloop.optimizers.rft.raft import best_right, weights, with_replay
from learnloop.task import Task
from learnloop.trace import Score, Trace, Turn

OPENING = (Message(role="user", content="?"),)
TASKS = {
    name: Task(id=name, split="train", group=name, kind=name[0], messages=OPENING, tools=())
    for name in ("a1", "a2", "b1", "c1")
}


def rollout(task: str, number: int, reward: float, *, tokens: int = 1) -> Trace:
    return Trace(
        id=f"{task}-{number}",
        task_id=task,
        candidate_id="c",
        attempt=number,
        seed=number,
        messages=OPENING,
        turns=(Turn(text="x", token_ids=(1,) * tokens, logprobs=(0.0,) * tokens),),
        score=Score(value=reward, correct=float(reward > 0)),
    )


def names(rows: list[list[Trace]]) -> list[list[str]]:
    return [[trace.id for trace in row] for row in rows]


def test_right_rollouts_are_taken_best_reward_first() -> None:
    rewards = [0.0, 0.8, 1.0, 0.0, 0.9]
    group = [rollout("a1", n, r) for n, r in enumerate(rewards)]
    assert [t.attempt for t in best_right(group, 2)] == [2, 4]
    assert [t.attempt for t in best_right(group, 0)] == [2, 4, 1]
    assert best_right(group[:1], 2) == []
    assert best_right([rollout("a1", 0, 1.0, tokens=0)], 2) == []  # nothing to train on


def test_better_ones_weigh_more_and_the_mean_weight_is_one() -> None:
    some = [rollout("a1", n, r) for n, r in enumerate([1.0, 0.9, 0.9])]
    assert weights(some, 0.0) == [1.0, 1.0, 1.0]
    found = weights(some, 10.0)
    assert found[0] / found[1] == pytest.approx(math.e)
    assert sum(found) == pytest.approx(3)
    assert weights(some, 5000.0) == pytest.approx([3, 0, 0])
    assert weights([], 10.0) == []


def test_equals_are_drawn_and_the_draw_is_repeated() -> None:
    drawn = Counter(
        best_right([rollout(f"a{g}", n, 1.0) for n in range(4)], 1)[0].attempt for g in range(200)
    )
    assert set(drawn) == {0, 1, 2, 3}
    assert min(drawn.values()) > 20
    group = [rollout("a1", n, 1.0) for n in range(4)]
    assert best_right(group, 2) == best_right(group, 2)


def test_every_kind_gets_about_the_same_number_with_earlier_ones_filling_up() -> None:
    groups = [
        [rollout("a1", n, 1.0 - n / 10) for n in range(3)],
        [rollout("a2", n, 0.95) for n in range(1)],
        [rollout("b1", 0, 0.9)],
    ]
    earlier = [
        rollout("a2", 9, 1.0),
        rollout("b1", 7, 1.0),
        rollout("b1", 8, 0.8),
        rollout("b1", 9, 0.8),
        rollout("c1", 9, 0.0),  # wrong
    ]
    found = with_replay(groups, earlier, TASKS, least=3)
    assert names(found) == [["a1-0", "a2-0", "a1-1", "a1-2"], ["b1-0", "b1-7", "b1-9"]]
    assert names(with_replay([], earlier, TASKS, least=1)) == [["a2-9"], ["b1-7"]]
    assert names(with_replay(groups, [], TASKS, least=1)) == [["a1-0", "a2-0"], ["b1-0"]]
