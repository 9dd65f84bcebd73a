"""The example project `examples/http-tools`: endpoints as a team with hosted fine-tuning has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.check import CheckReport, check
from learnloop.cli.init import copy_template
from learnloop.codec import load_tasks
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, Script, ScriptedCall, ScriptedModel
from learnloop.project import Project
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.task import SPLITS
from learnloop.trace import Trace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the project as `learnloop init --template http-tools` makes it."""
    copy_template("http-tools", tmp_path / "shop")
    return tmp_path / "shop"


def checked(root: Path) -> CheckReport:
    async def run() -> CheckReport:
        return await check(Project.open(root), needs_model=False)

    return anyio.run(run)


def test_the_project_passes_the_check_without_a_warning(root: Path):
    report = checked(root)
    assert [f.line() for f in report.findings if f.level != "ok"] == []
    assert report.ok


def test_rows_carry_schemas_and_groups_and_every_split_has_enough(root: Path):
    checked(root)
    rows = [json.loads(line) for line in (root / "data" / "tasks.jsonl").read_text().splitlines()]
    assert all(
        [t["function"]["name"] for t in row["tools"]] == ["search", "lookup"] for row in rows
    )
    assert all(row["messages"][-1]["role"] == "user" for row in rows)
    tasks = load_tasks(root / "data" / "tasks.jsonl", Project.open(root).config)
    assert len({(t.group, t.split) for t in tasks}) == len({t.group for t in tasks})
    assert {t.split for t in tasks} == {*SPLITS}


def test_a_name_in_the_project_that_rows_do_not_have_is_caught(root: Path):
    path = root / "learnloop.toml"
    path.write_text(path.read_text().replace('name = "lookup"', 'name = "look_up"'))
    report = checked(root)
    assert report.exit_code == 4
    (error,) = [
        f.line() for f in report.findings if f.level == "error" and "names a tool" in f.what
    ]
    assert "data/tasks.jsonl:1: names a tool `lookup` that the project does not have" in error


def play(root: Path, task_id: str, answer: str) -> Trace:
    """Look up every product of a task, then answer."""
    project = Project.open(root)

    async def run() -> Trace:
        await project.ensure_data()
        (task,) = (t for t in project.tasks() if t.id == task_id)
        async with project.open_parts() as parts:
            setup = Setup(
                label="test",
                model=ScriptedModel(script(task.item, answer)),
                tools=parts.tools,
                grader=parts.grader,
                limits=project.config.agent,
                sampling=Sampling(temperature=0.0, max_tokens=48),
            )
            return await roll_out(Planned(task=task, candidate_id="cand", attempt=0, seed=0), setup)

    return anyio.run(run)


def script(item: Mapping[str, Any], answer: str) -> Script:
    def turn(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        if messages[-1].role == "user":
            return [ScriptedCall(name="lookup", arguments={"sku": s}) for s in item["skus"]]
        return answer

    return turn


def test_a_rollout_through_tools_and_grader_gets_what_it_deserves(root: Path):
    wrong = play(root, "oak-lamp-3", "Answer: {}")  # no number at all
    assert wrong.score is not None
    assert (wrong.score.value, wrong.score.parts["looked_up"]) == (0, 1)
    prices = [float(c.output.partition("price ")[2].partition(",")[0]) for c in wrong.calls]
    right = play(root, "oak-lamp-3", f"Answer: {abs(prices[1] - prices[0]):g}")
    assert right.outcome == "graded"
    assert right.score is not None
    assert right.score.value == 1
