"""The variance probe: buckets, expected signal and advice."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from learnloop.message import ToolCall
from learnloop.probe import BUCKETS, ProbeResult, probe
from learnloop.task import Task
from learnloop.trace import CallRecord, Failure, Score, Trace


def make_tasks(n: int) -> dict[str, Task]:
    return {
        f"t{i:03}": Task(id=f"t{i:03}", split="train", group=f"g{i}", messages=(), tools=())
        for i in range(n)
    }


def attempt(
    task_id: str, number: int, result: float | None, *, valid: float = 1.0, failing: int = 0
) -> Trace:
    score, failure = None, Failure(boundary="tool", kind="http_500", message="boom")
    if result is not None:
        score, failure = Score(value=result, correct=result, parts={"valid": valid}), None
    call = ToolCall(id="c", name="search", arguments="{}")
    return Trace(
        id=f"{task_id}-{number}",
        task_id=task_id,
        candidate_id="c",
        attempt=number,
        seed=0,
        outcome="graded" if score else "infra_fault",
        score=score,
        failure=failure,
        calls=(CallRecord(call=call, round=0, output="", is_error=True),) * failing,
    )


def run(results: Sequence[Sequence[float | None]], *, valid: float = 1.0) -> ProbeResult:
    tasks = make_tasks(len(results))
    traces = [
        attempt(task_id, number, result, valid=valid)
        for task_id, row in zip(tasks, results, strict=True)
        for number, result in enumerate(row)
    ]
    return probe(traces, tasks, attempts=len(results[0]))


def test_buckets_are_named_by_what_was_seen_and_sum_to_the_tasks() -> None:
    found = run([(0, 0, 0), (1, 0, 1), (1, 1, 1), (None, None, 1), (0, 1, None)])
    assert found.buckets == {
        "never_passed": 1,
        "mixed": 2,
        "always_passed": 1,
        "grader_unstable": 0,
        "infra_flaky": 1,
    }
    assert sum(found.buckets.values()) == len(found.tasks) == 5
    assert (found.planned, found.graded, found.lost) == (15, 12, {"http_500": 3})


def test_rows_for_the_chart_have_mean_sd_and_best_and_come_by_bucket() -> None:
    found = run([(1, 1, 1), (1, 0, 0), (0, 0, 0)])
    assert [t.bucket for t in found.tasks] == ["never_passed", "mixed", "always_passed"]
    mixed = found.tasks[1]
    assert mixed.mean is not None
    assert mixed.sd is not None
    assert (mixed.passed, mixed.graded, mixed.best) == (1, 3, 1.0)
    assert abs(mixed.mean - 1 / 3) < 1e-9
    assert abs(mixed.sd - 0.57735) < 1e-4


def test_graded_scores_that_differ_can_teach_although_none_is_a_full_pass() -> None:
    found = run([(0.2, 0.6, 0.2), (0.5, 0.5, 0.5)])
    assert [t.bucket for t in found.tasks] == ["never_passed", "mixed"]


def test_a_second_score_that_differs_makes_the_task_unstable_whatever_it_passed() -> None:
    tasks = make_tasks(2)
    traces = [attempt(t, k, 1.0) for t in tasks for k in range(3)]
    found = probe(traces, tasks, attempts=3, regraded={"t000-1": 0.0, "t001-1": 1.0})
    assert {t.task_id: t.bucket for t in found.tasks} == {
        "t000": "grader_unstable",
        "t001": "always_passed",
    }
    assert found.advice.code == "grader_unstable"


def test_a_task_that_never_ran_is_flaky_and_not_failed() -> None:
    found = probe([], make_tasks(1), attempts=3)
    assert found.buckets["infra_flaky"] == 1
    assert found.lost == {"not_run": 3}
    assert found.signals == ()
    assert found.advice.code == "tools_broken"


def test_expected_signal_is_exact_up_to_k_and_fitted_above() -> None:
    tasks = make_tasks(30)
    rows = [(1, 0, 1, 0, 1), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1)] * 10
    traces = [
        attempt(t, k, x) for t, row in zip(tasks, rows, strict=True) for k, x in enumerate(row)
    ]
    found = probe(traces, tasks, attempts=5, group_sizes=(2, 5, 8, 16))
    two, five, eight, sixteen = found.signals
    assert abs(two.share - 0.6 / 3) < 1e-9
    assert abs(five.share - 1 / 3) < 1e-9
    assert five.low is None
    assert eight.low is not None
    assert eight.high is not None
    assert eight.low <= eight.share <= eight.high
    assert not eight.extrapolated
    assert sixteen.extrapolated
    assert sixteen.other_fit is not None
    assert list(found.expected_signal) == [2, 5, 8, 16]


def test_the_verdict_and_its_limit_are_sentences() -> None:
    found = run([(1, 0, 0, 1, 0), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1)])
    assert found.sentence == "1 of 3 tasks can teach; 1 never passed in 5; 1 always passed in 5"
    assert "pass rate of up to 0.45" in found.limit
    assert "miss 59%" in found.limit


@pytest.mark.parametrize(
    ("results", "valid", "code"),
    [
        ([(1, 0, 0), (0, 0, 0)], 1.0, "go"),
        ([(1, 1, 1), (1, 1, 1)], 1.0, "nothing_to_learn"),
        ([(1, 1, 1), (0, 0, 0)], 1.0, "nothing_to_learn"),
        ([(0, 0, 0), (0, 0, 0)], 0.0, "too_hard"),
        ([(0, 0, 0), (0, 0, 0)], 1.0, "grader_too_harsh"),
        ([(None, None, 0), (0, 1, 0)], 1.0, "tools_broken"),
    ],
)
def test_advice_follows_from_what_was_seen(
    results: list[tuple[float | None, ...]], valid: float, code: str
) -> None:
    found = run(results, valid=valid)
    assert found.advice.code == code
    assert found.advice.words


def test_a_tool_whose_calls_all_fail_is_named() -> None:
    tasks = make_tasks(2)
    traces = [attempt(t, k, float(k), failing=5) for t in tasks for k in range(2)]
    found = probe(traces, tasks, attempts=2)
    assert found.advice.code == "tools_broken"
    assert "20 of 20 calls to search" in found.advice.words


def test_a_probe_of_nothing_has_empty_buckets() -> None:
    found = probe([], {}, attempts=3)
    assert found.buckets == dict.fromkeys(BUCKETS, 0)
    assert found.advice.code == "nothing_to_learn"


def test_a_task_without_a_score_has_no_mean_and_stands_last() -> None:
    found = run([(None, None, None), (None, None, 0), (0, 0, 0)])
    assert [(t.task_id, t.mean) for t in found.tasks] == [("t002", 0), ("t001", 0), ("t000", None)]
    assert (found.tasks[-1].sd, found.tasks[-1].best) == (None, None)
