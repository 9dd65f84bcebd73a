"""The original tried again: a gain that reruns would buy is told from one that they would not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.test_summary import graded

from learnloop.message import Message
from learnloop.summary import compare
from learnloop.task import Task
from learnloop.trace import Content, Trace

OPENING = (Message(role="user", content="?"),)
TASKS = {
    f"t{n}": Task(id=f"t{n}", split="test", group=f"g{n}", messages=OPENING, tools=())
    for n in range(200)
}


def arm(share: float, attempts: int, *, seed: int, tokens: int = 100) -> list[Trace]:
    rng = random.Random(seed)
    return [
        graded(task, float(rng.random() < share), attempt=n, tokens=tokens)
        for task in TASKS
        for n in range(attempts)
    ]


def test_a_gain_beyond_two_tries_is_told_from_one_that_they_buy() -> None:
    before = arm(0.5, 4, seed=1)
    far = compare(before, arm(0.95, 1, seed=2), TASKS).rerun
    near = compare(before, arm(0.6, 1, seed=3), TASKS).rerun
    same = compare(before, arm(0.75, 1, seed=4), TASKS).rerun
    assert far
    assert near
    assert same
    assert far.k == near.k == same.k == 2
    assert far.best.value == pytest.approx(0.75, abs=0.05)
    assert far.best == near.best
    assert far.beyond.above_zero
    assert far.words.startswith("The gain is beyond what best of 2 reruns of the original")
    assert near.beyond.below_zero
    assert "would reach more" in near.words
    assert not same.beyond.above_zero
    assert not same.beyond.below_zero
    assert "would do about as well" in same.words


def test_the_budget_is_that_of_the_candidate() -> None:
    before = arm(0.3, 5, seed=1)
    found = compare(before, arm(0.6, 1, seed=2, tokens=310), TASKS).rerun
    assert found
    assert (found.k, found.tasks) == (3, 200)
    assert found.cost == pytest.approx(3.1)
    assert found.best.value == pytest.approx(1 - 0.7**3, abs=0.05)
    assert compare(before, arm(0.6, 1, seed=2, tokens=900), TASKS).rerun is None


def test_tasks_that_were_tried_too_rarely_do_not_count() -> None:
    often = [t for t in arm(0.5, 2, seed=1) if t.attempt == 0 or t.task_id in ("t1", "t2")]
    found = compare(often, arm(0.5, 1, seed=2), TASKS).rerun
    assert found
    assert found.tasks == 2
    assert compare(arm(0.5, 1, seed=1), arm(0.5, 1, seed=2), TASKS).rerun is None
    assert compare([], arm(0.5, 1, seed=2), TASKS).rerun is None


def said(
    task: str, words: str, attempt: int, *, right: bool = True, content: Content = "full"
) -> Trace:
    made = graded(task, float(right), attempt=attempt, tokens=100)
    turns = (*made.turns[:-1], replace(made.turns[-1], text=words))
    return replace(made, turns=turns, content=content)


def test_a_vote_takes_the_commonest_last_line() -> None:
    """On even tasks two of three say the right answer, on odd ones two say the same wrong one."""
    before = list[Trace]()
    for n, task in enumerate(TASKS):
        wrong, right = ("7", "8") if n % 2 else ("7", " 8  ")
        for attempt, votes in enumerate((right, wrong, wrong if n % 2 else "8")):
            words = f"Thinking {attempt}.\nAnswer: {votes}"
            before.append(said(task, words, attempt, right=votes.strip() == "8"))
    after = [said(task, "Answer: 8", 0) for task in TASKS]
    found = compare(before, after, TASKS).majority
    assert found
    assert (found.k, found.tasks, found.reached.value) == (3, 200, 0.5)
    assert found.beyond.value == pytest.approx(0.5)
    assert found.words.startswith(
        "a vote of 3 runs of the original, by equal last lines and for 3.0 times"
    )
    assert "reaches 50.0 %" in found.words
    twice = [replace(t, attempt=t.attempt + 3, id=f"{t.id}b") for t in before]
    again = compare([*before, *twice], after, TASKS).majority
    assert again == found


def test_without_texts_or_tries_enough_there_is_no_vote() -> None:
    after = [said(task, "Answer: 8", 0) for task in TASKS]
    cases: list[tuple[Content, int]] = [("none", 3), ("masked", 3), ("hash", 3), ("full", 2)]
    for content, tries in cases:
        before = [
            said(task, "Answer: 8", n, content=content) for task in TASKS for n in range(tries)
        ]
        assert compare(before, after, TASKS).majority is None
