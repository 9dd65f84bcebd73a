"""`runs` and `show` on a real store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import PROGRAM, Learnloop

from learnloop.message import Message, ToolCall
from learnloop.project import Project
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn, trace_id

CALL = ToolCall(id="call_1", name="search", arguments='{"query": "x"}')


def a_trace(run: str, attempt: int, value: float | None) -> Trace:
    failure = Failure(boundary="tool", kind="5xx", message="HTTP 502")
    return Trace(
        id=trace_id(run, "cand_1", "task-0", attempt),
        task_id="task-0",
        candidate_id="cand_1",
        attempt=attempt,
        seed=attempt,
        messages=(
            Message(role="user", content="How many?"),
            Message(role="assistant", content="", tool_calls=(CALL,)),
            Message(role="tool", content="\x1b[2J\ud800seven", tool_call_id="call_1"),
            Message(role="assistant", content="Answer: 7"),
        ),
        turns=(Turn(text="Answer: 7", tokens_out=3, logprobs=(-0.5, -0.25, -0.125)),),
        calls=(CallRecord(call=CALL, round=0, output="seven"),),
        outcome="infra_fault" if value is None else "graded",
        failure=failure if value is None else None,
        score=None if value is None else Score(value=value, correct=value, explanation="fine"),
    )


@pytest.fixture
def run_ids(root: Path) -> list[str]:
    """Return the ids of two stored runs, the oldest first; the first holds three rollouts."""
    project = Project.open(root)
    with project.open_store() as store:
        ids = [
            store.create_run(project.config, command=command, seed=3).id
            for command in ("train", "eval")
        ]
        for attempt, value in enumerate((1.0, 0.5, None)):
            store.save_trace(ids[0], "probe", 0, a_trace(ids[0], attempt, value))
        store.set_status(ids[0], "done")
    return ids


def test_a_project_without_runs_says_how_to_make_one(learnloop: Learnloop, root: Path):
    done = learnloop("runs", cwd=root)
    assert (done.code, done.out) == (0, "")
    assert done.err == "no runs yet\nnext: learnloop train\n"
    assert learnloop("runs", "--json", cwd=root).json == {"schema_version": 1, "runs": []}
    assert not (root / ".learnloop").exists()
    done = learnloop("show", "latest", cwd=root)
    assert done.code == 2
    assert done.line == "error: this project has no runs yet. `learnloop train` makes one."


def test_runs_are_listed_newest_first(learnloop: Learnloop, root: Path, run_ids: list[str]):
    data = learnloop("runs", "--json", cwd=root).json
    assert {r["id"] for r in data["runs"]} == set(run_ids)
    assert data["runs"][0]["created_at"] >= data["runs"][1]["created_at"]
    done = learnloop("runs", cwd=root)
    assert done.out.count("\n") == 3
    assert done.line == "next: learnloop show latest"


def test_a_run_whose_process_was_killed_is_stopped(
    learnloop: Learnloop, root: Path, run_ids: list[str]
):
    def statuses() -> list[str]:
        runs = learnloop("runs", "--json", cwd=root).json["runs"]
        shown = learnloop("show", run_ids[1], "--json", cwd=root).json["run"]["status"]
        return [shown, *(r["status"] for r in runs if r["id"] == run_ids[1])]

    holding = (
        "import sys, time; from pathlib import Path; from learnloop.project import Project\n"
        "with Project.open(Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, root], stdout=subprocess.PIPE, text=True
    ) as at_work:
        assert at_work.stdout is not None
        assert at_work.stdout.readline() == "held\n"
        assert statuses() == ["running", "running"]
        at_work.kill()
    assert statuses() == ["stopped", "stopped"]


def test_a_run_is_shown_in_numbers_and_counts_what_was_lost(
    learnloop: Learnloop, root: Path, run_ids: list[str]
):
    data = learnloop("show", run_ids[0], "--json", cwd=root).json
    assert data["run"]["status"] == "done"
    assert data["stages"] == [
        {
            "stage": "probe",
            "step": 0,
            "rollouts": 3,
            "lost": 1,
            "score": 0.75,
            "correct": 0.75,
            "calls": 1.0,
        }
    ]
    done = learnloop("show", "latest~1", "--project", root)
    assert done.out.splitlines()[-1].split() == ["probe", "0", "3", "1", "0.750", "0.750", "1.000"]
    assert done.line.startswith(f"next: learnloop report {run_ids[0]}")


def test_a_rollout_is_shown_word_for_word_but_cannot_steer_the_terminal(
    learnloop: Learnloop, root: Path, run_ids: list[str]
):
    name = trace_id(run_ids[0], "cand_1", "task-0", 0)
    done = learnloop("show", name, cwd=root)
    assert done.code == 0
    assert '> search {"query": "x"}' in done.out
    assert "Answer: 7" in done.out
    assert "\x1b" not in done.out
    data = learnloop("show", name[:20], "--json", cwd=root).json
    assert data["trace"]["turns"][0]["logprobs"] == [-0.5, -0.25, -0.125]
    lost = learnloop("show", trace_id(run_ids[0], "cand_1", "task-0", 2), cwd=root)
    assert "lost: tool 5xx: HTTP 502" in lost.out


def test_an_unknown_run_is_one_line(learnloop: Learnloop, root: Path, run_ids: list[str]):
    assert run_ids
    for name in ("latest~7", "nope", "trace_nope"):
        done = learnloop("show", name, cwd=root)
        assert (done.code, done.out) == (2, "")
        assert done.line.startswith("error: ")


def test_a_reader_that_leaves_early_is_no_error(root: Path, run_ids: list[str]):
    command = [sys.executable, "-c", PROGRAM, "show", run_ids[0], "--project", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Error" not in process.stderr.read()
    assert process.returncode == 0
