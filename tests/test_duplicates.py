"""Near-duplicates across splits: found whatever the template, and not invented."""

from __future__ import annotations

import random
import time

from tests.test_splits import task

from learnloop.duplicates import near_duplicates
from learnloop.task import SPLITS, Task

WORDS = [f"word{i}" for i in range(3000)]


def questions(count: int, *, length: int = 30, template: str = "") -> list[Task]:
    rng = random.Random(1)
    return [
        task(
            f"t{i:05}",
            split=SPLITS[i % 4],
            question=f"{template} {' '.join(rng.choices(WORDS, k=length))}".strip(),
        )
        for i in range(count)
    ]


def test_a_question_with_one_word_changed_is_found_across_splits():
    tasks = questions(200)
    words = tasks[0].messages[1].content.split()
    words[-1] = "other"
    twin = task("twin", split="confirm", question=" ".join(words))
    found = near_duplicates([*tasks, twin])
    assert [x.task_ids for x in found] == [("t00000", "twin")]
    assert found[0].decides
    assert "t00000 (train) and twin (confirm) are 93% alike" in found[0].words


def test_the_same_change_within_a_split_is_nobodys_business():
    tasks = questions(50)
    words = tasks[0].messages[1].content.split()
    twin = task("twin", split="train", question=" ".join([*words[:-1], "other"]))
    assert near_duplicates([*tasks, twin]) == []


def test_a_template_that_all_questions_share_makes_no_duplicates():
    template = " ".join(f"please read the report on page {i} with care" for i in range(20))
    assert near_duplicates(questions(200, length=12, template=template)) == []


def test_equal_questions_are_told_elsewhere_and_short_ones_not_at_all():
    same = "one two three four five six seven eight"
    tasks = [task("a", question=same), task("b", split="test", question=same)]
    assert near_duplicates(tasks) == []
    short = [task("a", question="how much"), task("b", split="test", question="how many")]
    assert near_duplicates(short) == []


def test_what_spoils_a_verdict_comes_first():
    base = [f"w{i}" for i in range(40)]
    tasks = [
        task("a", split="train", question=" ".join(base)),
        task("b", split="screen", question=" ".join([*base[:-1], "x"])),
        task("c", split="test", question=" ".join([*base[:-2], "y", "z"])),
        *questions(30),
    ]
    found = near_duplicates(tasks)
    assert [x.decides for x in found] == [True, True, False]


def test_thousands_of_questions_take_seconds():
    tasks = questions(3000, length=20)
    began_s = time.process_time()
    assert near_duplicates(tasks) == []
    assert time.process_time() - began_s < 10
