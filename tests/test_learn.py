"""Decisions of the loop that need no model; whole runs are in `tests/e2e`."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

from tests.idle_run import idle_run
from tests.sample_run import make_tasks, sample_gate
from tests.test_summary import graded

from learnloop.history import checkpoint_rows
from learnloop.judging import arms_of, leaks_of
from learnloop.learn import choose, is_evaluated, lessons
from learnloop.report import Evaluation
from learnloop.run import UNTRAINED
from learnloop.task import Split


def test_a_longer_run_begins_with_the_lessons_of_a_shorter_one(tmp_path: Path):
    folder = tmp_path / "small"
    with idle_run(folder, flags={"train.steps": 2}) as (_, run):
        short = lessons(run)
    with idle_run(folder, flags={"train.steps": 5}) as (_, run):
        long = lessons(run)
    with idle_run(folder, flags={"train.steps": 5, "train.seed": 1}) as (_, run):
        other = lessons(run)
    assert [len(step) for step in long] == [2] * 5
    assert all(task.split == "train" for step in long for task in step)
    assert long[:2] == short
    assert other != long


def test_a_curriculum_draws_kinds_by_their_weights(tmp_path: Path):
    flags = {"train.steps": 6, "curriculum.weights": {"easy": 2, "hard": 1}}
    with idle_run(tmp_path / "small", flags=flags) as (_, run):
        drawn = Counter(task.kind for step in lessons(run) for task in step)
    assert drawn == {"easy": 8, "hard": 4}


def test_the_last_step_is_always_looked_at(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"train.steps": 5, "train.eval_every": 3}) as (_, run):
        assert [step for step in range(1, 6) if is_evaluated(run, step)] == [3, 5]


def test_only_what_training_has_seen_leaks_into_confirm(tmp_path: Path):
    with idle_run(tmp_path / "small") as (_, run):
        assert leaks_of(run) == []
        confirm = next(t for t in run.tasks.values() if t.split == "confirm")

        def leaks(split: Split) -> list[str]:
            twin = replace(confirm, id="twin", split=split)
            return leaks_of(replace(run, tasks={**run.tasks, "twin": twin}))

        assert leaks("test") == []
        assert leaks("train")
        assert leaks("screen")


def test_without_a_warm_up_training_starts_from_the_untrained_model(tmp_path: Path):
    with idle_run(tmp_path / "cold") as (_, run):
        assert run.checkpoint(0) == UNTRAINED
        assert arms_of(run, "x/step-5") == {"baseline": UNTRAINED, "final": "x/step-5"}
    with idle_run(tmp_path / "warm", warmup=True) as (_, run):
        assert run.checkpoint(0) == f"{run.id}/warm"
        assert list(arms_of(run, "x/step-5")) == ["baseline", "warm", "final"]


def look(step: int, right: int, calls: int) -> Evaluation:
    """Return an evaluation on four tasks."""
    traces = [graded(f"task-{i}", float(i < right), tools=("search",) * calls) for i in range(4)]
    return Evaluation(step=step, traces=tuple(traces))


def test_the_best_checkpoint_is_accurate_then_cheap_then_late(tmp_path: Path):
    with idle_run(tmp_path / "small") as (_, run):

        def best(*looks: Evaluation) -> int:
            rows = checkpoint_rows(looks, run.tasks)
            assert sum(row.chosen for row in rows) == 1
            assert all(row.reason for row in rows)
            return next(row.step for row in rows if row.chosen)

        assert best(look(0, 4, 0), look(5, 1, 1), look(10, 3, 9)) == 10
        assert best(look(5, 3, 2), look(10, 3, 4)) == 5
        assert best(look(5, 3, 2), look(10, 3, 2)) == 10
        assert checkpoint_rows([look(0, 4, 0)], run.tasks) == ()


def test_the_choice_is_made_once_and_names_what_will_be_compared(tmp_path: Path):
    with idle_run(tmp_path / "small", warmup=True) as (session, run):
        for trace in look(2, 1, 1).traces:
            run.store.save_trace(run.id, "screen", 2, trace)
        run.emit("evaluation", step=2)
        assert choose(run) == choose(run) == f"{run.id}/step-2"
        assert len(run.store.events(run.id, "checkpoint")) == 1
        assert session.history.arms == {
            "baseline": run.candidate(UNTRAINED).id,
            "warm": run.candidate(run.base).id,
            "final": run.candidate(f"{run.id}/step-2").id,
        }


def test_a_gate_result_comes_back_from_the_store_as_it_was(tmp_path: Path):
    verdict = sample_gate(make_tasks("confirm", 120))
    with idle_run(tmp_path / "small") as (session, run):
        assert session.history.gate is None
        run.emit("gate", weights="x", **asdict(verdict))
        assert session.history.gate == verdict


def test_an_event_is_stored_once_for_each_step(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        for step in (1, 2, 1):
            run.emit_once("step", step=step)
        assert [e.data["step"] for e in run.store.events(run.id, "step")] == [1, 2]
        assert session.history.done("step", 2)
        assert not session.history.done("step", 3)


def test_arms_are_compared_on_tasks_that_all_of_them_tried(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        arms = {arm: f"cand_{arm}" for arm in ("baseline", "final")}
        run.emit("checkpoint", weights="x", arms=arms)
        for arm, tasks in (("baseline", 2), ("final", 3)):
            for i in range(tasks):
                made = graded(f"task-{i}", 1.0)
                made = replace(made, id=f"{made.id}{arm}", candidate_id=f"cand_{arm}")
                run.store.save_trace(run.id, "confirm", 0, made)
        found = session.history.compared("confirm")
        assert {arm: [t.task_id for t in traces] for arm, traces in found.items()} == {
            "baseline": ["task-0", "task-1"],
            "final": ["task-0", "task-1"],
        }
        assert session.history.compared("test") == {}
