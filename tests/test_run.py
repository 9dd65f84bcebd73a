"""Rollouts of a run on a real policy process: filed by batch, never made twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.e2e.small_project import make_small_project
from tests.idle_run import idle_run

from learnloop.batch import attempts_on, interleaved
from learnloop.errors import EndpointError, StoppedEarly
from learnloop.event import Event
from learnloop.judging import measure
from learnloop.project import Project
from learnloop.run import UNTRAINED, Run
from learnloop.session import Session, at_work, begin, checked_tasks, project_store


class Listener:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)


@asynccontextmanager
async def a_run(folder: Path, **settings: object) -> AsyncGenerator[tuple[Run, Listener]]:
    flags = {key.replace("__", "."): value for key, value in settings.items()}
    project = Project.open(make_small_project(folder, warmup=False), flags=flags)
    listener = Listener()
    with project_store(project) as store:
        tasks = await checked_tasks(project)
        record = begin(project, store, "train", tasks)
        session = Session(
            project=project, store=store, record=record, tasks=tasks, sinks=[listener]
        )
        async with at_work(session) as run:
            yield run, listener


def test_a_task_that_comes_twice_in_a_step_goes_on_counting_its_attempts(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        first, second = list(session.tasks.values())[:2]
    attempts = attempts_on([first, second, first], times=2)
    assert [(task.id, n) for task, n in attempts] == [
        (first.id, 0), (first.id, 1), (second.id, 0), (second.id, 1), (first.id, 2), (first.id, 3),
    ]  # fmt: skip


def test_batches_of_one_candidate_are_kept_apart_and_nothing_is_made_twice(tmp_path: Path):
    async def main() -> None:
        async with a_run(tmp_path / "small") as (run, listener):
            tried = attempts_on(run.sample("confirm", 2))
            one = run.batch("confirm", UNTRAINED, tried)
            other = run.batch("confirm again", UNTRAINED, tried)
            mine, theirs = await run.roll(one, other)
            assert {t.id for t in mine}.isdisjoint({t.id for t in theirs})
            assert [t.task_id for t in mine] == [task.id for task, _ in tried]
            rows = run.store.rows(run.id)
            assert sorted(r.stage for r in rows) == ["confirm"] * 2 + ["confirm again"] * 2
            made = sum(e.kind == "progress" for e in listener.events)
            assert made == 4
            again, _ = await run.roll(one, other)
            assert again == mine
            assert sum(e.kind == "progress" for e in listener.events) == made
            with pytest.raises(ValueError, match="stages of their own"):
                await run.roll(one, one)

    anyio.run(main)


def test_both_arms_of_a_comparison_get_equal_seeds(tmp_path: Path):
    with idle_run(tmp_path / "small") as (_, run):
        tried = attempts_on(run.sample("confirm", 3), times=2)
        old, new = (run.batch("confirm", w, tried) for w in (UNTRAINED, f"{run.id}/step-1"))
    assert old.candidate.id != new.candidate.id
    assert [p.seed for p in old.plan] == [p.seed for p in new.plan]
    assert len({p.seed for p in old.plan}) == 6


def test_named_weights_are_read_once_and_can_be_forgotten(tmp_path: Path):
    async def main() -> None:
        async with a_run(tmp_path / "small") as (run, _):
            await run.policy.start_training({"max_context": 400})
            name = run.checkpoint(1)
            await run.keep(name)
            assert run.loaded == {name}
            await run.forget()
            tried = attempts_on(run.sample("confirm", 1))
            [[trace]] = await run.roll(run.batch("confirm", name, tried))
            assert trace.outcome != "infra_fault"
            assert run.loaded == {name}
            # Its folder is gone; what is in memory is enough.
            (run.weights_folder(name) / "model.safetensors").unlink()
            await run.roll(run.batch("confirm", name, tried, step=1))

    anyio.run(main)


def test_a_stage_that_loses_most_of_its_rollouts_stops_the_run(tmp_path: Path):
    async def main() -> None:
        async with a_run(tmp_path / "small") as (run, _):
            batch = run.batch("confirm", f"{run.id}/nowhere", attempts_on(run.sample("confirm", 2)))
            run.loaded.add(batch.weights)
            with pytest.raises(EndpointError, match=r"2 of 2|4 of 4") as told:
                await run.roll(batch)
            assert f"--resume {run.id}" in told.value.line()
            # What was lost is tried again when the run goes on.
            [traces] = await run.roll(replace(batch, weights=UNTRAINED))
            assert [t.outcome for t in traces] != ["infra_fault"] * 2

    anyio.run(main)


def test_a_row_that_always_faults_neither_stops_a_resumed_run_nor_is_tried_twice_in_one_session(
    tmp_path: Path,
):
    async def main() -> None:
        async with a_run(tmp_path / "small") as (run, listener):
            broken = f"{run.id}/nowhere"
            run.loaded.add(broken)
            tried = attempts_on(run.sample("confirm", 2))
            arms = [run.batch("confirm", weights, tried) for weights in (UNTRAINED, broken)]

            def made() -> int:
                return sum(e.kind == "progress" for e in listener.events)

            _, lost = await run.roll(*arms)
            assert [t.outcome for t in lost] == ["infra_fault"] * 2
            assert made() == 2 + 2 * 2
            # A later stage on the same rollouts takes them as they are.
            await measure(run, broken, "confirm", [task for task, _ in tried])
            assert made() == 6
            # After a resume the stage tries them anew; all that is made is lost, half of the plan.
            resumed = replace(run, given_up=set())
            assert [t.outcome for t in (await resumed.roll(*arms))[1]] == ["infra_fault"] * 2
            assert made() == 10

    anyio.run(main)


def test_which_arm_of_a_pair_begins_is_drawn(tmp_path: Path):
    with idle_run(tmp_path / "small") as (_, run):
        tried = attempts_on(run.sample("confirm", 2), times=10)
        arms = [run.batch("confirm", w, tried) for w in (UNTRAINED, f"{run.id}/step-1")]
        order = list(interleaved(arms, [{}, {}]))
    firsts = [job.batch is arms[0] for job in order[::2]]
    assert all(
        a.planned.seed == b.planned.seed for a, b in zip(order[::2], order[1::2], strict=True)
    )
    assert 3 <= sum(firsts) <= 17
    assert firsts != [True, False] * 10


def test_a_budget_of_rollouts_is_kept_to_the_last_one(tmp_path: Path):
    async def main() -> None:
        async with a_run(tmp_path / "small", budget__rollouts=3) as (run, _):
            tried = attempts_on(run.sample("train", 5))
            with pytest.raises(StoppedEarly, match="budget of 3 rollouts"):
                await run.roll(run.batch("train", UNTRAINED, tried))
            assert len(run.store.rows(run.id)) == 3

    anyio.run(main)
