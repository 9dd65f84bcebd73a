"""Beginning, finding and going on with runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.idle_run import idle_run
from tests.tiny_project import edit

from learnloop.arms import Arm, differing_settings, find_arm, find_weights, shared_split
from learnloop.errors import ConfigError, UsageError
from learnloop.project import Project
from learnloop.provenance import given_settings, repeating_command
from learnloop.reporting import tasks_of_run
from learnloop.session import project_as_begun, project_store, refuse_changes, training_run


def test_latest_names_the_latest_training_run(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        store = session.store
        store.create_run(session.project.config, command="eval", seed=0)
        assert training_run(store, "latest").id == run.id
        assert training_run(store, run.id[:18]).id == run.id
        with pytest.raises(UsageError, match="there are 1 training runs"):
            training_run(store, "latest~1")
        with pytest.raises(UsageError, match="trained nothing"):
            training_run(store, store.runs()[0].id)


def test_flags_and_variables_of_the_beginning_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "small"
    with idle_run(folder, flags={"train.steps": 7, "budget.minutes": 1.0}):
        pass
    project, record = project_as_begun(folder, "latest", {})
    assert project.config.train.steps == 7
    refuse_changes(project, record)
    monkeypatch.setenv("LEARNLOOP_BUDGET__MINUTES", "9")
    project, _ = project_as_begun(folder, "latest", {"train.max_concurrency": 2})
    assert (project.config.budget.minutes, project.config.train.max_concurrency) == (9, 2)
    refuse_changes(project, record)


def test_what_decides_results_may_not_change_and_is_named(tmp_path: Path):
    folder = tmp_path / "small"
    with idle_run(folder):
        pass
    edit(folder, "eval_tasks = 3", "eval_tasks = 4")
    edit(folder, "How many are 3 and 3?", "How many are 3 or 3?", file="data/tasks.jsonl")
    project, record = project_as_begun(folder, "latest", {"train.steps": 9})
    with pytest.raises(ConfigError) as told:
        refuse_changes(project, record)
    assert "`train.eval_tasks`, `train.steps`, the dataset" in told.value.what


def test_a_run_that_was_killed_is_marked_stopped_by_the_next_one(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        assert session.store.run(run.id).status == "running"
    with project_store(Project.open(tmp_path / "small")) as store:
        assert store.run(run.id).status == "stopped"


def test_a_record_says_what_a_run_is_made_of_and_how_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with idle_run(tmp_path / "small", flags={"train.steps": 7}) as (session, _):
        meta = session.record.meta
    assert meta["command"] == "learnloop train --steps 7"
    assert meta["model"].startswith("model, sha256 ")
    assert str(tmp_path) not in str(meta)
    assert meta["settings"] == {"train.steps": 7}


def test_weights_are_found_by_run_and_checkpoint(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        project = session.project
        assert find_weights(project, "untrained") == ""
        with pytest.raises(UsageError, match="no checkpoint is chosen yet"):
            find_weights(project, "latest")
        kept = run.weights_folder(run.checkpoint(2))
        kept.mkdir(parents=True)
        (kept / "config.json").write_text("{}")
        assert find_weights(project, "latest/step-2") == f"{run.id}/step-2"
        with pytest.raises(UsageError, match="There are: step-2"):
            find_weights(project, "latest/step-5")
        run.emit("checkpoint", weights=run.checkpoint(2), arms={})
        assert find_weights(project, run.id) == f"{run.id}/step-2"


def test_arms_of_a_run_that_is_not_that_far_are_refused(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        with pytest.raises(UsageError, match="has not been measured yet"):
            find_arm(session.store, "latest")
        run.emit("checkpoint", weights="x", arms={"baseline": "a", "final": "b"})
        with pytest.raises(UsageError, match="had no warm-up"):
            find_arm(session.store, "latest:warm")
        with pytest.raises(UsageError, match="Arms: untrained, warm, final"):
            find_arm(session.store, "latest:best")
        arm = find_arm(session.store, "latest")
    assert arm.name == f"{run.id}:final"
    with pytest.raises(UsageError, match="no split has rollouts of both"):
        shared_split([arm, arm])


def test_the_most_telling_shared_split_is_compared(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        one = Arm(name="a", run=session.record, splits={"screen": (), "confirm": (), "test": ()})
    other = replace(one, splits={"screen": (), "confirm": ()})
    assert shared_split([one, other]) == "confirm"


def test_texts_of_the_environment_are_named_and_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with idle_run(tmp_path / "small"):
        pass
    monkeypatch.setenv("LEARNLOOP_GRADER__URL", "https://x.example/?key=sk-314")
    monkeypatch.setenv("LEARNLOOP_TRAIN__STEPS", "7")
    project = Project.open(tmp_path / "small")
    command = repeating_command(project, "train", ["--candidate", "a b"])
    assert command == (
        'LEARNLOOP_GRADER__URL="$LEARNLOOP_GRADER__URL" LEARNLOOP_TRAIN__STEPS=7 '
        "learnloop train --candidate 'a b'"
    )
    assert given_settings(project) == {"train.steps": 7}


def test_arms_of_different_graders_are_refused_and_other_settings_named(tmp_path: Path):
    folder = tmp_path / "small"

    def arm() -> Arm:
        with idle_run(folder) as (session, _):
            return Arm(name=session.record.id, run=session.record, splits={})

    arm()  # makes the project
    edit(folder, 'type = "endpoint"\nurl = "{service:box}/grade"', "abs_tol = 0.0")
    first = arm()
    assert differing_settings(first, arm()) == []
    edit(folder, "abs_tol = 0.0", "abs_tol = 0.0\ncost_weight = 0.1")
    (folder / "prompts" / "system.md").write_text("Answer shortly.")
    assert differing_settings(first, arm()) == ["grader.cost_weight", "the system prompt"]
    edit(folder, "abs_tol = 0.0", "abs_tol = 0.1")
    with pytest.raises(ConfigError, match="judged by different graders"):
        differing_settings(first, arm())


def test_a_dataset_that_is_gone_is_a_mistake_in_the_data(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        (tmp_path / "small" / "data" / "tasks.jsonl").unlink()
        with pytest.raises(ConfigError, match=r"data/tasks\.jsonl: cannot be read"):
            tasks_of_run(session.project, session.record)
