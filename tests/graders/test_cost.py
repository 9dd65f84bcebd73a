"""Cost shaping: cheaper correct answers earn more, and no correct one less than a wrong one."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.errors import ConfigError
from learnloop.graders.cost import CostGrader, CostShape, cost_of
from learnloop.graders.numeric import NumericGrader
from learnloop.message import ToolCall
from learnloop.task import Task
from learnloop.trace import CallRecord, Score, Trace, Turn

TASK = Task(id="t1", split="train", group="g", messages=(), tools=(), item={"answer": 12})


def trace_with(calls: int, text: str = "12") -> Trace:
    call = ToolCall(id="c", name="cat", arguments="{}")
    return Trace(
        id="x",
        task_id="t1",
        candidate_id="c",
        attempt=0,
        seed=0,
        turns=(Turn(text=text, tokens_in=90, tokens_out=10),),
        calls=tuple(CallRecord(call=call, round=i // 2, output="") for i in range(calls)),
    )


def shaped(calls: int, text: str = "12") -> Score:
    grader = CostGrader(NumericGrader(), CostShape(weight=0.2, free=1, full=6))
    return anyio.run(grader.grade, TASK, trace_with(calls, text))


def test_reward_falls_between_free_and_full_and_stays_there() -> None:
    assert [shaped(n).value for n in (0, 1, 6, 60)] == [1.0, 1.0, 0.8, 0.8]
    assert shaped(3).value == pytest.approx(1 - 0.2 * 2 / 5)


def test_correctness_and_the_pieces_stay_visible() -> None:
    score = shaped(6)
    assert score.correct == 1.0
    assert score.parts == {"valid": 1.0, "cost": 6.0, "cost_factor": 0.8}


def test_a_cheap_wrong_answer_earns_nothing() -> None:
    assert shaped(0, "13").value == 0.0


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0, 0.2), st.floats(0, 50))
def test_no_correct_rollout_ranks_below_a_wrong_one(
    dear: int, cheap: int, weight: float, free: float
) -> None:
    shape = CostShape(weight=weight, free=free, full=free + 1)
    assert 1.0 * shape.factor(dear) > 0.0 * shape.factor(cheap)
    assert 0.8 - 1e-12 <= shape.factor(dear) <= 1.0


def test_each_unit_measures_its_own_cost() -> None:
    trace = trace_with(3)
    assert [cost_of(trace, u) for u in ("calls", "rounds", "tokens")] == [3.0, 2.0, 100.0]


def test_calls_that_never_ran_cost_nothing() -> None:
    trace = trace_with(3)
    refused = replace(trace, calls=(*trace.calls[:2], replace(trace.calls[2], ran=False)))
    assert [cost_of(refused, u) for u in ("calls", "rounds")] == [2.0, 1.0]


def test_shapes_that_could_reorder_answers_are_refused() -> None:
    for weight, free, full in ((0.3, 1, 6), (-0.1, 1, 6), (0.1, 6, 6), (0.1, -1, 6)):
        with pytest.raises(ConfigError):
            CostShape(weight=weight, free=free, full=full)


def test_the_version_covers_shape_and_inner_grader() -> None:
    graders = (
        CostGrader(NumericGrader(), CostShape(weight=0.1)),
        CostGrader(NumericGrader(), CostShape(weight=0.2)),
        CostGrader(NumericGrader(abs_tol=1), CostShape(weight=0.1)),
    )
    assert len({g.version for g in graders}) == 3
