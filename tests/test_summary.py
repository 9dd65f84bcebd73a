"""What reports say of arms, comparisons, steps and the tool mix."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from learnloop.config import PricesConfig
from learnloop.message import ToolCall, ToolSchema
from learnloop.summary import (
    Comparison,
    compare,
    learnable_share,
    sentence,
    step_record,
    summarize,
    tool_mix_shift,
)
from learnloop.task import Task
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn


def near(value: float | None, wanted: float, tolerance: float = 1e-9) -> bool:
    return value is not None and math.isclose(value, wanted, rel_tol=0, abs_tol=tolerance)


def make_tasks(n: int, *, group_size: int = 1, kinds: Sequence[str] = ("",)) -> dict[str, Task]:
    tools = tuple(
        ToolSchema(name=name, description="", parameters_json="{}") for name in ("search", "cat")
    )
    return {
        f"t{i:03}": Task(
            id=f"t{i:03}",
            split="confirm",
            group=f"g{i // group_size}",
            messages=(),
            tools=tools,
            kind=kinds[i % len(kinds)],
        )
        for i in range(n)
    }


def graded(
    task_id: str,
    correct: float,
    *,
    attempt: int = 0,
    tools: Sequence[str] = ("search",),
    tokens: int = 100,
    latency_s: float = 1.0,
    parts: Mapping[str, float] | None = None,
    asked: Sequence[str] = (),
) -> Trace:
    calls = tuple(
        CallRecord(call=ToolCall(id=str(i), name=name, arguments="{}"), round=i, output="")
        for i, name in enumerate(tools)
    )
    wanted = tuple(ToolCall(id="x", name=name, arguments="{}") for name in asked)
    return Trace(
        id=f"trace_{task_id}_{attempt}",
        task_id=task_id,
        candidate_id="cand",
        attempt=attempt,
        seed=0,
        turns=(Turn(text="a", tokens_in=tokens - 10, tokens_out=10, tool_calls=wanted),),
        calls=calls,
        score=Score(value=correct * 0.9, correct=correct, parts=parts or {}),
        latency_s=latency_s,
    )


def lost(task_id: str, *, attempt: int = 0, kind: str = "timeout") -> Trace:
    return Trace(
        id=f"lost_{task_id}_{attempt}",
        task_id=task_id,
        candidate_id="cand",
        attempt=attempt,
        seed=0,
        outcome="infra_fault",
        finish_reason="infra",
        failure=Failure(boundary="tool", kind=kind, message="no answer"),
    )


def arm(tasks: Mapping[str, Task], right: Sequence[int], *, attempts: int = 1) -> list[Trace]:
    """Every task `attempts` times; task i is right in its first right[i] attempts."""
    return [
        graded(task_id, float(a < right[i]), attempt=a)
        for i, task_id in enumerate(tasks)
        for a in range(attempts)
    ]


def test_lost_rollouts_are_counted_by_kind_and_never_become_zeros_in_the_graded_mean() -> None:
    tasks = make_tasks(4)
    traces = [graded("t000", 1), graded("t001", 1), lost("t002"), lost("t003", kind="http_500")]
    found = summarize(traces, tasks)
    assert (found.planned, found.graded) == (4, 2)
    assert found.lost == {"http_500": 1, "timeout": 1}
    assert found.correct is not None
    assert found.correct.value == 1.0
    assert found.correct_planned is not None
    assert found.correct_planned.value == 0.5
    assert found.coverage == 0.5


def test_calls_that_never_ran_are_counted_apart() -> None:
    tasks = make_tasks(1)
    trace = graded("t000", 1, tools=("search", "cat", "cat"))
    first, second, third = trace.calls
    refused = replace(trace, calls=(first, replace(second, ran=False), replace(third, ran=False)))
    found = summarize([refused], tasks)
    assert found.costs["calls"].mean.value == found.costs["rounds"].mean.value == 1
    assert (found.calls_per_tool, found.tool_shares) == ({"search": 1.0}, {"search": 1.0})
    assert found.calls_not_run == 2
    assert summarize([trace], tasks).calls_not_run == 0


def test_an_agent_fault_without_a_score_is_a_graded_failure() -> None:
    tasks = make_tasks(2)
    fault = Trace(
        id="f", task_id="t001", candidate_id="c", attempt=0, seed=0, outcome="agent_fault"
    )
    found = summarize([graded("t000", 1), fault], tasks)
    assert (found.graded, found.agent_faults) == (2, 1)
    assert found.correct is not None
    assert found.correct.value == 0.5
    assert found.valid is not None
    assert found.valid.value == 0.5


def test_planned_rollouts_that_left_no_trace_are_lost_as_not_run() -> None:
    found = summarize([graded("t000", 1)], make_tasks(2), attempts=2)
    assert (found.planned, found.lost) == (4, {"not_run": 3})


def test_a_retry_replaces_the_lost_attempt_it_repeats() -> None:
    found = summarize([lost("t000"), graded("t000", 1)], make_tasks(1))
    assert (found.planned, found.graded, found.lost) == (1, 1, {})


def test_pass_at_k_and_pass_hat_k_come_with_several_attempts_only() -> None:
    tasks = make_tasks(2)
    once = summarize(arm(tasks, [1, 0]), tasks)
    assert once.pass_at_k is None
    found = summarize(arm(tasks, [2, 1], attempts=2), tasks)
    assert found.k == 2
    assert found.pass_at_1 is not None
    assert found.pass_at_k is not None
    assert found.pass_hat_k is not None
    assert found.pass_at_1.value == 0.75
    assert found.pass_at_k.value == 1.0
    assert found.pass_hat_k.value == 0.5


def test_costs_among_correct_and_per_solved_task_differ_as_they_should() -> None:
    tasks = make_tasks(3)
    traces = [
        graded("t000", 1, tools=["search", "cat"]),
        graded("t001", 1, tools=["search", "cat", "cat", "cat"]),
        graded("t002", 0, tools=["cat"] * 6),
    ]
    calls = summarize(traces, tasks).costs["calls"]
    assert calls.mean.value == 4.0
    assert calls.correct_mean is not None
    assert calls.correct_mean.value == 3.0
    assert calls.per_solved is not None
    assert calls.per_solved.value == 6.0
    assert calls.correct_p50 == 3.0
    assert calls.correct_p95 == 3.9


def test_the_slow_tail_of_latency_has_a_change_and_an_interval_of_its_own() -> None:
    tasks = make_tasks(60)
    before = [graded(t, 1, latency_s=1.0 if i % 4 else 9.0) for i, t in enumerate(tasks)]
    after = [graded(t, 1, latency_s=1.0 if i % 4 else 3.0) for i, t in enumerate(tasks)]
    found = compare(before, after, tasks).costs["latency_s"]
    assert found.p50_correct is not None
    assert found.p50_correct.value == 0
    assert found.p95_correct is not None
    assert found.p95_correct.value == pytest.approx(1 / 3 - 1)
    assert found.p95_correct.below_zero
    assert compare(before, after, tasks).costs["calls"].p95_correct is None


def test_an_arm_whose_rollouts_are_all_lost_is_compared_with_prices_too() -> None:
    tasks = make_tasks(3)
    before = [graded(t, 1) for t in tasks]
    after = [lost(t) for t in tasks]
    for gone in (after, []):
        found = compare(before, gone, tasks, prices=PricesConfig(call_usd=1.0))
        assert found.refused
        assert found.costs["usd"].all_rollouts is None


def test_money_is_a_cost_where_there_are_prices() -> None:
    tasks = make_tasks(2)
    before = [graded("t000", 1, tokens=1010), graded("t001", 1, tokens=1010)]
    after = [graded("t000", 1, tokens=510, tools=()), graded("t001", 1, tokens=510, tools=())]
    assert "usd" not in compare(before, after, tasks).costs
    assert "usd" not in compare(before, after, tasks, prices=PricesConfig()).costs
    prices = PricesConfig(tokens_in_usd=0.5, tokens_out_usd=1.0, call_usd=0.25)
    found = compare(before, after, tasks, prices=prices)
    # 1,000 tokens in, 10 out, one call; 500 in, 10 out, none.
    assert found.before.costs["usd"].mean.value == pytest.approx(0.5 + 0.01 + 0.25)
    assert found.after.costs["usd"].mean.value == pytest.approx(0.25 + 0.01)
    change = found.costs["usd"].all_rollouts
    assert change is not None
    assert change.value == pytest.approx(0.26 / 0.76 - 1)


def test_calls_per_tool_bad_calls_and_valid_answers_are_shares_of_rollouts() -> None:
    tasks = make_tasks(2)
    traces = [
        graded("t000", 1, tools=["search", "cat", "cat"]),
        graded("t001", 0, tools=["search"], asked=["serach"], parts={"valid": 0.0}),
    ]
    found = summarize(traces, tasks)
    assert found.calls_per_tool == {"cat": 1.0, "search": 1.0}
    assert found.bad_calls is not None
    assert found.bad_calls.value == 0.5
    assert found.valid is not None
    assert found.valid.value == 0.5
    assert found.correct_given_valid is not None
    assert found.correct_given_valid.value == 1.0


def test_kinds_are_slices_of_the_same_summary() -> None:
    tasks = make_tasks(4, kinds=("lookup", "sum"))
    found = summarize(arm(tasks, [1, 0, 1, 0]), tasks)
    assert sorted(found.kinds) == ["lookup", "sum"]
    assert found.kinds["lookup"].correct is not None
    assert found.kinds["lookup"].correct.value == 1.0
    assert found.kinds["lookup"].kinds == {}


def test_an_arm_without_graded_rollouts_has_nothing_to_measure() -> None:
    found = summarize([lost("t000")], make_tasks(1))
    assert found.correct is None
    assert found.costs == {}
    assert summarize([], {}).planned == 0


def test_tasks_of_one_group_are_one_unit() -> None:
    tasks = make_tasks(40, group_size=10)
    found = compare(arm(tasks, [0] * 40), arm(tasks, [1] * 10 + [0] * 30), tasks)
    assert found.tasks == 40
    assert found.units == 4
    assert found.correct is not None
    assert found.correct.difference.n == 4
    assert not found.correct.decisive


def big_gain() -> Comparison:
    tasks = make_tasks(60)
    rng = random.Random(1)
    before = [int(rng.random() < 0.3) for _ in range(60)]
    after = [int(rng.random() < 0.8) for _ in range(60)]
    return compare(arm(tasks, before), arm(tasks, after), tasks)


def test_a_clear_gain_beats_the_baseline_in_words() -> None:
    found = big_gain()
    words = sentence(found)
    assert words.startswith("beats the baseline by +")
    assert "60 tasks; p < 0.001" in words
    assert f"{len(found.losses)} tasks got worse" in words


def test_a_clear_loss_falls_behind_the_baseline() -> None:
    tasks = make_tasks(40)
    words = sentence(compare(arm(tasks, [1] * 40), arm(tasks, [0] * 40), tasks))
    assert words.startswith("falls behind the baseline by -100.0 points")
    assert words.endswith("no task got better")


def test_a_small_difference_says_how_many_more_tasks_would_decide_it() -> None:
    tasks = make_tasks(40)
    after = [1] * 23 + [0] * 17
    words = sentence(compare(arm(tasks, [1, 0] * 20), arm(tasks, after), tasks))
    assert words.startswith("not decisive: +7.5 points")
    assert "more tasks for 80 % power" in words


def test_equal_arms_say_what_they_could_have_shown() -> None:
    tasks = make_tasks(40)
    words = sentence(compare(arm(tasks, [1, 0] * 20), arm(tasks, [1, 0] * 20), tasks))
    assert words.startswith("not decisive: +0.0 points")
    assert "80 % power" in words


def test_the_headline_is_refused_below_95_percent_coverage() -> None:
    tasks = make_tasks(10)
    traces = [lost("t000"), *(graded(t, 1) for t in list(tasks)[1:])]
    found = compare(arm(tasks, [0] * 10), traces, tasks)
    assert found.refused
    assert sentence(found).startswith("no headline: only 90%")


def test_arms_without_a_common_task_are_refused() -> None:
    tasks = make_tasks(2)
    found = compare([graded("t000", 1)], [graded("t001", 1)], tasks)
    assert sentence(found) == "no headline: no task has a score in both arms"


def test_costs_change_by_ratio_with_an_interval() -> None:
    tasks = make_tasks(30)
    rng = random.Random(2)
    before = [
        graded(t, 1, tools=["cat"] * rng.choice([4, 5, 6]), tokens=rng.randint(450, 550))
        for t in tasks
    ]
    after = [
        graded(t, 1, tools=["cat"] * rng.choice([2, 3]), tokens=rng.randint(280, 320))
        for t in tasks
    ]
    found = compare(before, after, tasks).costs
    for change in (found["calls"].all_rollouts, found["calls"].both_correct):
        assert change is not None
        assert near(change.value, -0.5, 0.06)
        assert change.below_zero
    among = found["tokens"].among_correct
    assert among is not None
    assert near(among.value, -0.4, 0.03)
    assert among.below_zero
    assert found["tokens"].per_solved == among


def test_costs_among_correct_ignore_what_failed_rollouts_spent() -> None:
    tasks = make_tasks(20)
    before = [graded(t, float(i % 2), tokens=100 if i % 2 else 900) for i, t in enumerate(tasks)]
    after = [graded(t, 1, tokens=100) for t in tasks]
    tokens = compare(before, after, tasks).costs["tokens"]
    assert tokens.among_correct is not None
    assert tokens.among_correct.value == 0.0
    assert tokens.both_correct is not None
    assert tokens.both_correct.value == 0.0
    assert tokens.per_solved is not None
    assert near(tokens.per_solved.value, -0.9)


def test_kinds_carry_holm_corrected_p_values() -> None:
    tasks = make_tasks(60, kinds=("a", "b"))
    found = compare(arm(tasks, [0] * 60), arm(tasks, [1, 0] * 30), tasks)
    a, b = found.kinds["a"].correct, found.kinds["b"].correct
    assert a is not None
    assert b is not None
    assert a.p_holm is not None
    assert a.p < a.p_holm <= 2 * a.p
    assert b.p_holm == 1.0
    assert "Holm-corrected" in sentence(found.kinds["a"])


def test_the_gain_splits_into_readable_answers_and_better_answers() -> None:
    tasks = make_tasks(20)
    before = [graded(t, float(i < 4), parts={"valid": float(i < 8)}) for i, t in enumerate(tasks)]
    after = [graded(t, float(i < 10)) for i, t in enumerate(tasks)]
    found = compare(before, after, tasks)
    assert found.correct is not None
    assert near(found.gain_by_answers, 0.0)
    assert near(found.gain_by_format, found.correct.difference.value)


def test_the_two_parts_of_a_gain_add_up_to_the_headline_where_groups_differ_in_size() -> None:
    tasks = {
        t.id: replace(t, group="big" if t.id > "t002" else t.id) for t in make_tasks(9).values()
    }
    before = [graded(t, float(i < 4), parts={"valid": float(i < 6)}) for i, t in enumerate(tasks)]
    after = [graded(t, float(i != 1), parts={"valid": float(i < 8)}) for i, t in enumerate(tasks)]
    found = compare(before, after, tasks)
    assert found.correct is not None
    assert found.gain_by_format is not None
    assert found.gain_by_answers is not None
    assert found.units == 4
    assert near(found.gain_by_format + found.gain_by_answers, found.correct.difference.value)


def test_a_step_counts_what_was_lost_and_what_can_teach() -> None:
    tasks = make_tasks(3)
    groups = [
        [graded("t000", 1, attempt=0), graded("t000", 0, attempt=1)],
        [graded("t001", 1, attempt=0), graded("t001", 1, attempt=1)],
        [graded("t002", 0, attempt=0), lost("t002", attempt=1)],
    ]
    found = step_record(3, groups, tasks, planned=8)
    assert (found.step, found.planned, found.graded) == (3, 8, 5)
    assert found.lost == {"not_run": 2, "timeout": 1}
    assert near(found.learnable_share, 1 / 3)
    assert found.calls_per_tool == {"search": 1.0}
    assert found.correct_mean == 0.6
    assert found.reward_low is not None
    assert found.reward_mean is not None
    assert found.reward_low < found.reward_mean
    assert near(found.reward_mean, 0.45)


def test_rewards_that_differ_by_less_than_an_update_sees_teach_nothing() -> None:
    assert learnable_share([[0.5, 0.5 + 1e-7], [0.5, 0.5 + 1e-5]]) == 0.5


def test_a_task_drawn_twice_in_a_step_keeps_two_groups() -> None:
    group = [graded("t000", 1, attempt=0), graded("t000", 0, attempt=1)]
    assert step_record(1, [group, group], make_tasks(1)).graded == 4


def test_a_step_with_nothing_graded_says_none() -> None:
    found = step_record(1, [[lost("t000")]], make_tasks(1))
    assert found.reward_mean is None
    assert found.learnable_share is None


def test_a_changed_tool_mix_leaves_the_noise_band() -> None:
    tasks, rng = make_tasks(40), random.Random(0)
    before = [graded(t, 1, tools=rng.choices(["cat", "search"], [4, 1], k=5)) for t in tasks]
    after = [graded(t, 1, tools=rng.choices(["cat", "search"], [1, 4], k=5)) for t in tasks]
    shift = tool_mix_shift(before, after, tasks)
    assert shift is not None
    assert near(shift.distance, 0.6, 0.1)
    assert shift.beyond_noise
    assert shift == tool_mix_shift(before, after, tasks)


def test_two_runs_of_one_agent_stay_inside_the_noise_band_95_times_in_100() -> None:
    tasks, rng, beyond = make_tasks(30), random.Random(5), 0
    for _ in range(40):
        arms = [
            [graded(t, 1, tools=rng.choices(["cat", "search"], k=4)) for t in tasks]
            for _ in range(2)
        ]
        shift = tool_mix_shift(arms[0], arms[1], tasks)
        assert shift is not None
        beyond += shift.beyond_noise
    assert beyond <= 6


def test_an_arm_without_calls_has_no_tool_mix() -> None:
    tasks = make_tasks(1)
    assert tool_mix_shift([graded("t000", 1, tools=[])], [graded("t000", 1)], tasks) is None
