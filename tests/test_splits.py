"""Splits: stable, sampled evenly, and leaks between them found."""

from __future__ import annotations

from collections import Counter

import pytest

from learnloop.config import SplitsConfig
from learnloop.errors import ConfigError
from learnloop.message import Message
from learnloop.splits import assign_splits, find_leaks, in_split, sample_tasks
from learnloop.task import SPLITS, Split, Task


def task(
    task_id: str,
    *,
    split: Split = "train",
    group: str = "",
    kind: str = "",
    question: str = "",
) -> Task:
    return Task(
        id=task_id,
        split=split,
        group=group or task_id,
        messages=(
            Message(role="system", content="Answer."),
            Message(role="user", content=question or task_id),
        ),
        tools=(),
        kind=kind,
    )


def test_shares_are_met_on_average_and_a_group_never_moves() -> None:
    groups = [f"g{i}" for i in range(4000)]
    found = assign_splits(groups, SplitsConfig())
    counts = Counter(found.values())
    for split, share in zip(SPLITS, (0.4, 0.15, 0.25, 0.2), strict=True):
        assert abs(counts[split] / 4000 - share) < 0.03
    again = assign_splits(groups[:10], SplitsConfig())
    assert all(found[group] == again[group] for group in again)


def test_a_share_of_zero_gets_nothing() -> None:
    shares = SplitsConfig(train=0.0, screen=0.5, confirm=0.5, test=0.0)
    found = assign_splits([f"g{i}" for i in range(500)], shares)
    assert set(found.values()) == {"screen", "confirm"}


@pytest.mark.parametrize("train", [-0.1, 0.0])
def test_shares_that_make_no_sense_are_refused(train: float) -> None:
    with pytest.raises(ConfigError):
        assign_splits(["g"], SplitsConfig(train=train, screen=0.0, confirm=0.0, test=0.0))


def test_a_missing_split_is_an_error_and_never_another_split() -> None:
    tasks = [task("a"), task("b", split="test")]
    assert [t.id for t in in_split(tasks, "test")] == ["b"]
    with pytest.raises(ConfigError, match="no task in split confirm"):
        in_split(tasks, "confirm")


def test_a_sample_is_even_over_kinds_and_groups() -> None:
    tasks = [
        task(f"{kind}-{g}-{i}", kind=kind, group=f"g{g}")
        for kind in ("lookup", "sum", "compare")
        for g in range(10)
        for i in range(5)
    ]
    found = sample_tasks(tasks, 30, seed=1)
    assert Counter(t.kind for t in found) == {"lookup": 10, "sum": 10, "compare": 10}
    assert set(Counter(t.group for t in found).values()) == {3}


def test_a_sample_depends_on_the_seed_and_not_on_the_order_of_tasks() -> None:
    tasks = [task(f"t{i}", group=f"g{i % 5}") for i in range(40)]
    found = sample_tasks(tasks, 10, seed=1)
    assert found == sample_tasks(tasks[::-1], 10, seed=1)
    assert found == sample_tasks(tasks, 20, seed=1)[:10]
    assert found != sample_tasks(tasks, 10, seed=2)


def test_a_kind_that_runs_out_is_filled_from_the_others() -> None:
    tasks = [task("a", kind="rare"), *(task(f"t{i}", kind="common") for i in range(9))]
    assert len(sample_tasks(tasks, 6)) == 6


def test_zero_or_too_many_takes_every_task_once() -> None:
    tasks = [task(f"t{i}") for i in range(7)]
    for n in (0, 7, 100):
        assert sorted(t.id for t in sample_tasks(tasks, n)) == [t.id for t in tasks]
    assert sample_tasks([], 5) == []


def test_a_group_in_two_splits_is_found() -> None:
    found = find_leaks([task("a", group="g"), task("b", group="g", split="test"), task("c")])
    assert [(leak.kind, leak.task_ids, leak.splits) for leak in found] == [
        ("group", ("a", "b"), ("train", "test"))
    ]
    assert found[0].words == "group 'g' is in train (a) and test (b)"


def test_the_same_question_in_two_splits_is_found_whatever_its_spacing() -> None:
    found = find_leaks(
        [
            task("a", question="What is  the revenue?"),
            task("b", question="what is the revenue? ", split="confirm"),
            task("c", question="What is the revenue?"),
        ]
    )
    assert [(leak.kind, leak.task_ids) for leak in found] == [("question", ("a", "b", "c"))]


def test_clean_splits_have_no_leak() -> None:
    assert find_leaks([task("a"), task("b", split="test"), task("a2", question="a")]) == []
