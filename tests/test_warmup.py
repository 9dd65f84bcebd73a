"""Which kinds of task are weak after a round of the warm-up, and what a further round is made of."""

from __future__ import annotations

from tests.test_summary import graded

from learnloop.codec import Demo
from learnloop.message import Message
from learnloop.task import Task
from learnloop.warmup import again, solved_by_kind, weak_kinds

OPENING = (Message(role="user", content="?"),)
TASKS = {
    name: Task(id=name, split="train", group=name, kind=name[0], messages=OPENING, tools=())
    for name in ("a1", "a2", "b1", "b2", "c1")
}
DEMOS = [Demo(id=f"{task}-{n}", task_id=task, messages=OPENING) for task in TASKS for n in range(4)]


def test_a_kind_is_weak_when_too_few_of_its_tried_tasks_are_solved() -> None:
    traces = [graded("a1", 1.0), graded("a2", 0.0), graded("b1", 0.0), graded("b2", 0.0)]
    solved = solved_by_kind(traces, TASKS)
    assert solved == {"a": 0.5, "b": 0.0}
    assert weak_kinds(solved, 0.1) == ["b"]
    assert weak_kinds(solved, 0.6) == ["a", "b"]
    assert weak_kinds(solved, 0.0) == []


def test_a_further_round_has_all_demonstrations_of_weak_kinds_and_as_many_others() -> None:
    found = again(DEMOS, TASKS, ["b"], seed=1)
    weak = [d for d in found if d.task_id.startswith("b")]
    assert len(weak) == 8
    assert len(found) == 16
    assert len({d.id for d in found}) == 16
    assert found == again(DEMOS, TASKS, ["b"], seed=1) != again(DEMOS, TASKS, ["b"], seed=2)
    assert len(again(DEMOS, TASKS, ["a", "b", "c"], seed=1)) == len(DEMOS)
    assert again(DEMOS, TASKS, [], seed=1) == []
