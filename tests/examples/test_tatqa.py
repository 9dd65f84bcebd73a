"""The example project `examples/tatqa`: its loader, its comparison of answers, its server.

The data set is not part of the repository. What needs it runs where TATQA_FILE names the file.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.check import CheckReport, check
from learnloop.project import Project

SOURCE = Path(__file__).parents[2] / "examples" / "tatqa"
THINGS = [
    "lamps",
    "boats",
    "shoes",
    "drills",
    "pianos",
    "wagons",
    "mirrors",
    "kettles",
    "saddles",
    "lenses",
]
TOWNS = ["Leeds", "Porto", "Turin", "Oslo"]


@pytest.fixture(scope="module")
def answers() -> Iterator[Any]:
    sys.path.insert(0, str(SOURCE))
    yield importlib.import_module("answers")
    sys.path.remove(str(SOURCE))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    left_out = shutil.ignore_patterns("data", ".learnloop", "__pycache__")
    return Path(shutil.copytree(SOURCE, tmp_path / "tatqa", ignore=left_out))


def a_question(uid: str, text: str, kind: str, answer: Any, scale: str = "") -> dict[str, Any]:
    return {"uid": uid, "order": 1, "question": text, "answer": answer, "derivation": "",
            "answer_type": kind, "answer_from": "table", "rel_paragraphs": [],
            "req_comparison": False, "scale": scale}  # fmt: skip


def an_entry(number: int) -> dict[str, Any]:
    """Return one document in the form of the data set, with questions of every kind."""
    who = f"{THINGS[number % 10]} of {TOWNS[number // 10]}"
    this, last = 400 + number, 320 - number
    return {
        "table": {
            "uid": f"{number:08d}-aaaa",
            "table": [["", "2019", "2018"], [f"Sales, {who}", f"$ {this}.5", f"({last})"]],
        },
        "paragraphs": [
            {"uid": "p2", "order": 2, "text": "The table is in millions."},
            {"uid": "p1", "order": 1, "text": f"We make {who} by hand."},
        ],
        "questions": [
            a_question(f"{number}-a", f"Sales of {who}, 2019?", "span", [f"$ {this}.5"], "million"),
            a_question(f"{number}-b", f"How are {who} made?", "span", ["by hand"]),
            a_question(f"{number}-c", f"Both sales of {who}?", "multi-span",
                       [f"${this}.5", f"({last})"], "million"),
            a_question(f"{number}-d", f"Change of {who} in percent?", "arithmetic",
                       -12.25 - number, "percent"),
            a_question(f"{number}-e", f"How many years of {who}?", "count", "2"),
        ],
    }  # fmt: skip


def prepared(root: Path, entries: list[dict[str, Any]]) -> str:
    """Run the loader as a user would; return what it printed."""
    file = root / "dataset.json"
    file.write_text(json.dumps(entries))
    command = [sys.executable, "prepare.py", "--data", str(file), "--out", "data"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows_of(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "data" / "tasks.jsonl").read_text().splitlines()]


def checked(root: Path) -> CheckReport:
    async def run() -> CheckReport:
        return await check(Project.open(root), needs_model=False)

    return anyio.run(run)


# --- the loader ----------------------------------------------------------------------------------


def test_the_loader_makes_tasks_grouped_by_document_and_says_how_the_grader_did(root: Path):
    said = prepared(root, [an_entry(n) for n in range(40)])
    assert said.splitlines() == [
        "40 documents, 200 questions: arithmetic 40, count 40, multi-span 40, span 80",
        "gold answers accepted: 200 of 200",
        "answers of other questions accepted: 0 of 160, mean score 0.000",
    ]
    rows = rows_of(root)
    assert len({row["group"] for row in rows}) == 40
    assert [row["answer"] for row in rows[:5]] == [
        "$ 400.5 million",
        "by hand",
        "$400.5 million; (320) million",
        "-12.25%",
        "2",
    ]
    assert all([m["role"] for m in row["messages"]] == ["user"] for row in rows)


def test_questions_that_cannot_be_judged_or_told_apart_are_left_out_and_counted(root: Path):
    entries = [an_entry(n) for n in range(3)]
    entries[0]["questions"].append(a_question("x", "Empty?", "multi-span", ["a", ""]))
    entries[1]["questions"].append(a_question("y", "Odd?", "span", ["5"], "dozen"))
    for entry in entries:
        entry["questions"].append(a_question(entry["table"]["uid"], "Total  SALES?", "span", ["1"]))
    said = prepared(root, entries)
    assert "left out: 1 (the answer is empty)" in said
    assert "left out: 1 (the scale 'dozen' is unknown)" in said
    assert "left out: 3 (several documents are asked the same)" in said
    assert len(rows_of(root)) == 15


@pytest.mark.parametrize("text", ["{}", "[]", "[1]", '[{"table": 1}]', "not json", '{"a": 1}'])
def test_a_file_of_another_kind_is_one_line_and_writes_nothing(root: Path, text: str):
    (root / "dataset.json").write_text(text)
    command = [sys.executable, "prepare.py", "--data", "dataset.json", "--out", "data"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("dataset.json: is no TAT-QA file with answers")
    assert len(done.stderr.splitlines()) == 1
    assert not (root / "data").exists()


def test_a_project_without_its_data_says_what_to_run(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TATQA_FILE", raising=False)
    report = checked(root)
    assert report.exit_code == 4
    assert "python prepare.py --data FILE --out data" in report.findings[1].what


def test_the_project_passes_the_check(root: Path):
    prepared(root, [an_entry(n) for n in range(40)])
    report = checked(root)
    assert [f.line() for f in report.findings if f.level == "error"] == []
    graded = [f.what for f in report.findings if f.where.startswith("grader on")]
    assert len(graded) == 6
    assert all(what.startswith("right answer 1, empty 0") for what in graded[::2])
    assert all("none fooled by an answer without merit" in what for what in graded[1::2])


# --- the comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gold", "scale", "kind", "answer", "score"),
    [
        (-22.22, "percent", "arithmetic", "-22.22%", 1),
        (-22.22, "percent", "arithmetic", "-22.22 percent", 1),
        (-22.22, "percent", "arithmetic", "-22.2169 %", 1),
        (-22.22, "percent", "arithmetic", "\u221222.22", 1),
        (-22.22, "percent", "arithmetic", "(22.22)%", 1),
        (-22.22, "percent", "arithmetic", "-22.3%", 0),
        (-22.22, "percent", "arithmetic", "22.22%", 0),
        (-22.22, "percent", "arithmetic", "-0.2222", 0),
        (-22.22, "percent", "arithmetic", "-22.22 million", 0),
        (-12.6, "million", "arithmetic", "-$12.6 million", 1),
        (-12.6, "million", "arithmetic", "$(12.6)m", 1),
        (-12.6, "million", "arithmetic", "-12,600 thousand", 1),
        (-12.6, "million", "arithmetic", "-12,600,000", 1),
        (-12.6, "million", "arithmetic", "-12.6 thousand", 0),
        (-12.6, "million", "arithmetic", "-12.6%", 0),
        (-12.6, "million", "arithmetic", "it fell by 12.6 million", 0),
        (["$1,496.5"], "million", "span", "1496.5 million USD", 1),
        (["$1,496.5"], "million", "span", "1.4965 billion", 1),
        (["$1,496.5"], "million", "span", "1,496.4 million", 0),
        (["2.5%"], "", "span", "2.5 %", 1),
        (["2.5%"], "", "span", "0.025", 0),
        (["2019"], "", "span", "2019", 1),
        (["2019"], "", "span", "in 2019", 0),
        ("4", "", "count", "4", 1),
        ("4", "", "count", "4.4", 0),
        (["our Allowable costs."], "", "span", "Our allowable costs", 1),
        (["our allowable costs"], "", "span", "allowable costs", 0.8),
        (["our allowable costs"], "", "span", "costs allowable our", 0.99),
        (["our allowable costs"], "", "span", "", 0),
        (["23%", "77%"], "", "multi-span", "77%; 23%", 1),
        (["23%", "77%"], "", "multi-span", "23% and 77%", 1),
        (["23%", "77%"], "", "multi-span", "\n- 23%\n- 77%", 1),
        (["23%", "77%"], "", "multi-span", "23%", 2 / 3),
        (["23%", "77%"], "", "multi-span", "23%; 77%; 5%; 6%", 2 / 3),
        (["$3,795", "$3,795"], "thousand", "multi-span", "3,795 thousand", 2 / 3),
        (["a, b", "c and d"], "", "multi-span", "a, b; c and d", 1),
    ],
)
def test_an_answer_is_compared_by_amount_words_or_pairs(
    answers: Any, gold: Any, scale: str, kind: str, answer: str, score: float
):
    meant = answers.Gold.of({"answer": gold, "scale": scale, "answer_type": kind})
    said = f"Let me see.\nAnswer: {answer}"
    assert answers.score(said, meant) == pytest.approx(score)


@pytest.mark.parametrize(
    "text", ["", "\n", "1" * 5000, "9" * 400 + "e9", "-", "%", "((((", "\ud800"]
)
def test_no_text_breaks_the_comparison(answers: Any, text: str):
    for gold in ({"answer": -1.5, "scale": "percent"}, {"answer": ["-"]}, {"answer": ["a", "7"]}):
        assert 0 <= answers.score(text, answers.Gold.of(gold)) <= 1


# --- the data set itself -------------------------------------------------------------------------


def test_on_the_data_set_gold_is_accepted_and_other_answers_are_refused(root: Path):
    file = os.environ.get("TATQA_FILE")
    if not file:
        pytest.skip("TATQA_FILE names no TAT-QA file")
    said = prepared(root, json.loads(Path(file).read_text(encoding="utf-8")))
    lines = said.splitlines()
    accepted, judged = (int(n) for n in lines[1].partition(": ")[2].split(" of "))
    assert accepted == judged > 1000
    wrong = lines[2].partition(": ")[2].partition(",")[0].split(" of ")
    assert int(wrong[0]) / int(wrong[1]) < 0.01
    assert not [f.line() for f in checked(root).findings if f.level == "error"]
