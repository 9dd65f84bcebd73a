"""What can be wrong before a run begins; whole runs are in `tests/e2e`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Learnloop
from tests.tiny_project import edit

from learnloop.project import Project


def runs_in(root: Path) -> int:
    with Project.open(root).open_store() as store:
        return len(store.runs())


@pytest.mark.parametrize("verb", ["train", "probe", "eval"])
def test_what_check_calls_an_error_stops_a_run_before_it_begins(
    learnloop: Learnloop, root: Path, verb: str
):
    edit(root, 'ref = "model"', 'ref = "smollm2-135m"')
    done = learnloop(verb, root, "--json")
    assert (done.code, done.out) == (4, "")
    assert "Run `learnloop models pull smollm2-135m`" in done.line
    assert runs_in(root) == 0


def test_a_tool_that_is_down_ends_with_5(learnloop: Learnloop, root: Path):
    edit(root, '{service:box}/call"\ndescription = "Opens."', 'http://127.0.0.1:9/"')
    done = learnloop("train", root)
    assert (done.code, done.out) == (5, "")
    assert done.line.startswith("error: tool `cat`: ")
    assert runs_in(root) == 0


def test_flags_are_settings_and_wrong_ones_are_told_as_flags(learnloop: Learnloop, root: Path):
    done = learnloop("train", root, "--rollouts", "3")
    assert done.code == 4
    assert "`train.rollouts` is 3, fewer than one group of 16" in done.line
    done = learnloop("train", root, "--rollouts", "20")
    assert done.code == 4
    assert "`train.rollouts` is 20, no multiple of `train.group_size`, which is 16" in done.line
    done = learnloop("eval", root, "--tasks", "-1")
    assert (done.code, done.line) == (2, "error: --tasks: cannot be -1. 0 takes all tasks.")
    assert learnloop("train", root, "--steps", "many").code == 2
    assert learnloop("train", root, "--optimizer", "magic").code == 2
    assert learnloop("eval", root, "--split", "exam").code == 2
    assert learnloop("eval", root, "--attempts", "0").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("report",), ("report", "latest", "--open-test"), ("compare", "latest", "latest~1"),
        ("train", "--resume", "latest"),
    ],
)  # fmt: skip
def test_verbs_on_runs_say_when_there_are_none(
    learnloop: Learnloop, root: Path, words: tuple[str, ...]
):
    done = learnloop(*words, cwd=root)
    assert (done.code, done.out) == (2, "")
    assert done.line == "error: this project has no runs yet. `learnloop train` makes one."
    assert not (root / ".learnloop").exists()


def test_a_report_is_written_as_a_page_only(learnloop: Learnloop, root: Path):
    done = learnloop("report", "latest", "-o", "report.pdf", cwd=root)
    assert done.code == 2
    assert done.line == "error: -o report.pdf: the report is a page. Name it FILE.html."


def test_the_package_runs_as_a_module(tmp_path: Path):
    command = [sys.executable, "-m", "learnloop", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0
    for verb in ("eval", "probe", "train", "report", "compare"):
        assert verb in done.stdout
