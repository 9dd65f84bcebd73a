"""The grader is tried with answers without merit before anything is trained on it."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from tests.tiny_project import CONFIG, make_project

from learnloop.check import check
from learnloop.errors import ConfigError
from learnloop.finding import Finding
from learnloop.gradercheck import bad_replies, read_anchors
from learnloop.message import Message
from learnloop.project import Project
from learnloop.task import Task

FIXTURE = Path(__file__).parent / "fixtures" / "foolable"
OPENING = (Message(role="user", content="How many?"),)


def findings(root: Path) -> list[Finding]:
    report = anyio.run(check, Project.open(root, environ={}))
    return [f for f in report.findings if f.where.startswith(("grader", "anchors"))]


def project(folder: Path, grader: str) -> Path:
    return make_project(
        folder, config=CONFIG.replace("[network]", f"[grader]\n{grader}\n\n[network]")
    )


def test_a_grader_that_looks_for_the_answer_anywhere_is_fooled_by_all_of_them():
    errors = [f for f in findings(FIXTURE) if f.level == "error"]
    assert {error.exit_code for error in errors} == {3}
    assert errors[-1].what.startswith('fooled by `all_at_once`: "Answer: ')
    assert 'grader.tolerate = ["all_at_once"]' in errors[-1].fix
    # 110 stands in 1100, too.
    assert [error.what.split("`")[1] for error in errors] == ["ten_times", "all_at_once"]


PYTHON = """
type = "multi"
calculate_output = "it"
[grader.graders.it]
type = "python"
source = '''
def grade(sample, item):
    text = sample["output_text"]
    if {hole}:
        return 1.0
    return float(text.removeprefix("Answer: ") == str(item["answer"]))
'''
"""


@pytest.mark.parametrize(
    ("hole", "reply"),
    [
        ('text.startswith("Answer:") and len(text) < 8', "form_only"),
        ('"best grader" in text', "flattery"),
        ('"previous instructions" in text', "order_to_judge"),
        ('text == ":"', "master_key"),
        ('"Solution" in text', "master_word"),
        ("'NaN' in text", "not_a_number"),
        ('"How many are" in text', "echo"),
        ('text.endswith("0")', "ten_times"),
        ('text.removeprefix("Answer: ").isdigit()', "another_rows"),
        ('text.count("Answer") > 5', "all_at_once"),
    ],
)
def test_every_hole_is_found_by_the_answer_that_goes_through_it(
    tmp_path: Path, hole: str, reply: str
):
    found = findings(project(tmp_path / "p", PYTHON.format(hole=hole)))
    fooled = [f.what.split("`")[1] for f in found if f.level == "error" and "fooled by" in f.what]
    assert reply in fooled


def test_a_grader_without_holes_passes_and_its_speed_is_told(tmp_path: Path):
    found = findings(project(tmp_path / "p", PYTHON.format(hole="False")))
    assert {f.level for f in found} == {"ok"}
    assert any("none fooled by an answer without merit; p95" in f.what for f in found)


def test_what_is_tolerated_is_told_and_does_not_stop_a_run(tmp_path: Path):
    hole = PYTHON.format(hole="'NaN' in text or 'Solution' in text")
    for tolerated, level in (
        ('["all"]', "warning"),
        ('["not_a_number", "master_word"]', "warning"),
        ('["master_word"]', "error"),
    ):
        found = findings(
            project(tmp_path / f"p{len(tolerated)}", f"tolerate = {tolerated}\n{hole}")
        )
        fooled = {f.level for f in found if "`not_a_number`" in f.what}
        assert fooled == {level}


def test_a_grader_that_contradicts_itself_or_breaks_is_told(tmp_path: Path):
    fickle = "(0.5 + ord(__import__('os').urandom(1)) / 999) * float(text"
    moody = PYTHON.format(hole="False").replace("float(text", fickle)
    found = findings(project(tmp_path / "moody", f'tolerate = ["all"]\n{moody}'))
    assert any("in 5 gradings" in f.what and f.level == "warning" for f in found)
    broken = PYTHON.format(hole="text == ':' and 1 / 0")
    [error] = [f for f in findings(project(tmp_path / "broken", broken)) if f.level == "error"]
    assert "makes the grader fail" in error.what
    assert error.exit_code == 5


def test_anchors_hold_the_grader_to_known_verdicts(tmp_path: Path):
    root = project(tmp_path / "p", 'anchors = "anchors.jsonl"')
    good = {"task_id": "task-3", "output": "Answer: 6", "correct": True}
    bad = {"task_id": "task-3", "output": "six", "correct": False}
    (root / "anchors.jsonl").write_text(f"{json.dumps(good)}\n\n{json.dumps(bad)}\n")
    assert "2 anchors" in [f.what for f in findings(root)]
    (root / "anchors.jsonl").write_text(
        f"{json.dumps(good)}\n{json.dumps({**bad, 'correct': True})}\n"
    )
    [error] = [f for f in findings(root) if f.level == "error"]
    assert (error.where, error.exit_code) == ("anchors.jsonl:2", 3)
    assert "an output that is right scores 0" in error.what
    (root / "anchors.jsonl").write_text(json.dumps({**good, "task_id": "task-99"}))
    [error] = [f for f in findings(root) if f.level == "error"]
    assert "task `task-99` is not in the dataset" in error.what


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        '{"task_id": "a", "output": "b"}',
        '{"task_id": "a", "output": "b", "correct": 1}',
    ],
)
def test_a_line_that_is_no_anchor_is_named(tmp_path: Path, line: str):
    path = tmp_path / "anchors.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match=r"anchors.jsonl:2: is no anchor"):
        read_anchors(path, "anchors.jsonl")


def test_replies_that_need_the_expected_answer_are_left_out_without_it():
    task = Task(id="t", split="train", group="g", messages=OPENING, tools=())
    names = {r.name for r in bad_replies(task, [1, 2], None)}
    assert {"another_rows", "all_at_once", "ten_times"}.isdisjoint(names)
    with_gold = {r.name: r.text for r in bad_replies(task, ["7 %", "1.02"], 1)}
    assert with_gold["another_rows"] == "Answer: 7 %", "1.02 may be near enough to count as right"
    assert "ten_times" not in {r.name for r in bad_replies(task, [], 0)}
