"""A project is found, opened, locked, and makes its own data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from tests.tiny_project import edit, make_project

from learnloop.errors import ConfigError, UserError
from learnloop.message import ToolCall
from learnloop.project import Parts, Project
from learnloop.tool import ToolContext
from learnloop.trace import Trace, Turn

MAKER = """
import pathlib, sys
out = pathlib.Path("data/tasks.jsonl"); out.parent.mkdir(exist_ok=True)
out.write_text('{"messages": [{"role": "user", "content": "x"}], "answer": 1}\\n')
sys.exit(int(sys.argv[1]) and "no more paper")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path / "tiny")


def with_maker(root: Path, code: int) -> Project:
    (root / "data" / "tasks.jsonl").unlink()
    (root / "make.py").write_text(MAKER)
    section = f'[data]\nmake = ["{{python}}", "make.py", "{code}"]\n\n[network]'
    edit(root, "[network]", section)
    return Project.open(root)


def test_a_project_is_found_upward_from_the_working_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(root / "data")
    assert Project.open().root == root


def test_a_folder_without_a_project_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match=r"holds no learnloop.toml. `learnloop init "):
        Project.open(tmp_path)
    with pytest.raises(ConfigError, match="is not a folder"):
        Project.open(tmp_path / "none")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no learnloop.toml here or in any folder above"):
        Project.open()


def test_flags_and_environment_reach_the_configuration(root: Path):
    project = Project.open(root, environ={"LEARNLOOP_TRAIN__SEED": "5"}, flags={"train.steps": 2})
    assert (project.config.train.seed, project.config.train.steps) == (5, 2)
    assert project.config_hash != Project.open(root, environ={}).config_hash


def test_the_candidate_is_model_and_prompt(root: Path):
    project = Project.open(root)
    candidate = project.candidate()
    assert candidate.files == {"prompts/system.md": "Answer with a number."}
    (root / "prompts" / "system.md").write_text("Think first.")
    assert project.candidate().id != candidate.id
    assert project.tasks()[0].messages[0].content == "Think first."


def test_a_missing_or_empty_prompt_is_one_line(root: Path):
    prompt = root / "prompts" / "system.md"
    prompt.write_text("\n")
    with pytest.raises(ConfigError, match="the system prompt is empty"):
        Project.open(root).tasks()
    prompt.unlink()
    with pytest.raises(ConfigError, match=r"prompts/system.md: the system prompt cannot be read"):
        Project.open(root).candidate()


def test_tools_and_grader_work_against_the_real_service(root: Path):
    async def go() -> tuple[str, float]:
        async with project.open_parts() as parts:
            return await call(parts), await grade(parts)

    async def call(parts: Parts) -> str:
        context = ToolContext(trace_id="trace_1", item=task.item)
        made = ToolCall(id="call_1", name="search", arguments="{}")
        return (await parts.tools["search"].call(made, context)).text

    async def grade(parts: Parts) -> float:
        trace = Trace(
            id="t", task_id=task.id, candidate_id="c", attempt=0, seed=0,
            turns=(Turn(text=f"Answer: {task.item['answer']}"),),
        )  # fmt: skip
        return (await parts.grader.grade(task, trace)).value

    project = Project.open(root)
    task = project.tasks()[1]
    assert anyio.run(go) == ("found", 1.0)


def test_one_process_at_a_time_and_the_lock_of_a_dead_one_is_taken_over(root: Path):
    holder = (
        "import sys, time; from pathlib import Path; from learnloop.project import Project\n"
        "with Project.open(Path(sys.argv[1])).lock():\n"
        "    print('held', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", holder, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "held\n"
    project = Project.open(root)
    with pytest.raises(UserError, match=rf"\(process {process.pid}\)") as caught, project.lock():
        pass
    assert caught.value.exit_code == 1
    process.kill()
    process.wait()
    with project.lock():
        assert (root / ".learnloop" / "lock").read_text() == str(os.getpid())
    with project.lock():
        pass
    assert (root / ".learnloop" / ".gitignore").read_text() == "*\n"


def test_missing_data_is_made_once(root: Path):
    project = with_maker(root, 0)
    assert anyio.run(project.ensure_data) == ["data/tasks.jsonl"]
    assert len(project.tasks()) == 1
    assert anyio.run(project.ensure_data) == []


def test_a_maker_that_fails_leaves_no_half_file(root: Path):
    project = with_maker(root, 1)
    with pytest.raises(ConfigError, match=r"`data\.make` ended with code 1: no more paper"):
        anyio.run(project.ensure_data)
    assert not (root / "data" / "tasks.jsonl").exists()


def test_data_that_an_interrupted_maker_left_is_made_anew(root: Path):
    project = with_maker(root, 0)
    (root / "data" / "tasks.jsonl").write_text("half")
    (project.prepare_state() / "making-data.make").touch()
    assert anyio.run(project.ensure_data) == ["data/tasks.jsonl"]
    assert len(project.tasks()) == 1


def test_missing_data_without_a_maker_is_one_line(root: Path):
    (root / "data" / "tasks.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"data/tasks.jsonl: no such file. Put the file there"):
        anyio.run(Project.open(root).ensure_data)


def test_a_maker_whose_program_is_missing_is_one_line(root: Path):
    with_maker(root, 0)
    edit(root, '"{python}", "make.py", "0"', '"no-such-program"')
    with pytest.raises(ConfigError, match="program `no-such-program` not found"):
        anyio.run(Project.open(root).ensure_data)
