"""The runner: many at once, results as planned, and no rollout disturbs another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from learnloop.config import AgentConfig
from learnloop.errors import ConfigError, ModelError
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedModel
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import OnTrace, Roll, run_many
from learnloop.task import Task
from learnloop.trace import Failure, Trace, trace_id


def planned(number: int) -> Planned:
    item = {"answer": number}
    task = Task(
        id=f"t{number}",
        split="train",
        group="g",
        messages=(Message(role="user", content=str(number)),),
        tools=(),
        item=item,
    )
    return Planned(task=task, candidate_id="c", attempt=0, seed=number)


PLAN = [planned(n) for n in range(12)]


def trace_of(planned: Planned, retry: int, *, lost: bool = False) -> Trace:
    return Trace(
        id=trace_id("run", planned.candidate_id, planned.task.id, planned.attempt, retry),
        task_id=planned.task.id,
        candidate_id=planned.candidate_id,
        attempt=planned.attempt,
        seed=planned.seed,
        outcome="infra_fault" if lost else "graded",
        failure=Failure(boundary="tool", kind="5xx", message="x") if lost else None,
    )


def ignore(trace: Trace) -> None:
    """Listen to nothing."""


def run(
    roll: Roll[Planned],
    *,
    plan: Sequence[Planned] = PLAN,
    at_once: int = 4,
    on_trace: OnTrace = ignore,
    retries: int = 1,
) -> list[Trace]:
    main = partial(
        run_many, plan, roll, max_concurrency=at_once, on_trace=on_trace, infra_retries=retries
    )
    return anyio.run(main)


def test_results_come_in_the_order_of_the_plan_whatever_finishes_first() -> None:
    finished: list[str] = []

    async def roll(planned: Planned, retry: int) -> Trace:
        await anyio.sleep(0.05 - planned.seed * 0.004)
        finished.append(planned.task.id)
        return trace_of(planned, retry)

    traces = run(roll, at_once=12)
    assert [t.task_id for t in traces] == [p.task.id for p in PLAN]
    assert finished[0] == "t11"


def test_never_more_than_allowed_are_in_flight() -> None:
    running, most = [0], [0]

    async def roll(planned: Planned, retry: int) -> Trace:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await anyio.sleep(0.002)
        running[0] -= 1
        return trace_of(planned, retry)

    run(roll, at_once=3)
    assert most[0] == 3


def test_a_lost_rollout_is_tried_again_under_a_new_id_and_the_others_go_on() -> None:
    async def roll(planned: Planned, retry: int) -> Trace:
        return trace_of(planned, retry, lost=planned.seed == 3 and retry == 0)

    seen: list[Trace] = []
    traces = run(roll, on_trace=seen.append)
    assert {t.outcome for t in traces} == {"graded"}
    assert len(seen) == 13
    assert len({t.id for t in seen}) == 13
    assert Counter(t.outcome for t in seen)["infra_fault"] == 1


def test_what_stays_lost_is_returned_as_lost() -> None:
    async def roll(planned: Planned, retry: int) -> Trace:
        return trace_of(planned, retry, lost=planned.seed == 3)

    seen: list[Trace] = []
    traces = run(roll, on_trace=seen.append, retries=2)
    assert [t.outcome for t in traces].count("infra_fault") == 1
    assert len(traces) == 12
    assert len(seen) == 14


def test_a_mistake_of_the_user_stops_the_run_with_one_error() -> None:
    async def roll(planned: Planned, retry: int) -> Trace:
        await anyio.sleep(0.001 * planned.seed)
        if planned.seed == 2:
            raise ConfigError("wrong")
        return trace_of(planned, retry)

    with pytest.raises(ConfigError, match="wrong"):
        run(roll)


def test_cancelling_stops_every_rollout_and_keeps_what_was_reported() -> None:
    seen: list[Trace] = []

    async def roll(planned: Planned, retry: int) -> Trace:
        await anyio.sleep(0.0 if planned.seed < 2 else 30)
        return trace_of(planned, retry)

    async def main() -> bool:
        with anyio.CancelScope() as scope:

            def note(trace: Trace) -> None:
                seen.append(trace)
                if len(seen) == 2:
                    scope.cancel()

            await run_many(PLAN, roll, max_concurrency=4, on_trace=note)
        return scope.cancelled_caught

    assert anyio.run(main)
    assert [t.task_id for t in seen] == ["t0", "t1"]


def test_an_empty_plan_yields_nothing() -> None:
    async def roll(planned: Planned, retry: int) -> Trace:
        raise AssertionError("nothing was planned")

    assert run(roll, plan=[]) == []


def test_real_rollouts_with_a_model_that_fails_now_and_then() -> None:
    def shaky(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        if seed % 5 == 0:
            raise ModelError("gone", kind="gone")
        return messages[0].content

    model = ScriptedModel(shaky, latency_s=0.001)
    setup = Setup(
        label="run",
        model=model,
        tools={},
        grader=NumericGrader(),
        limits=AgentConfig(),
        sampling=Sampling(),
    )
    traces = run(lambda p, n: roll_out(p, setup, n), at_once=100)
    lost = [t.task_id for t in traces if t.outcome == "infra_fault"]
    assert lost == ["t0", "t5", "t10"]
    assert all(t.score and t.score.value == 1.0 for t in traces if t.outcome == "graded")
    assert model.open_sessions == 0
