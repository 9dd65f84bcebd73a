"""Signs in the numbers of a run: told when they are there, and not when a run just learns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.idle_run import idle_run
from tests.test_summary import graded

from learnloop.errors import StoppedEarly
from learnloop.guards.statistic import StepSeen, alarms
from learnloop.watching import step_seen, watch


def steps(*rewards: float, **last: float) -> list[StepSeen]:
    made = [StepSeen(step=n, reward=r, reward_se=0.05) for n, r in enumerate(rewards, start=1)]
    if last:
        made[-1] = StepSeen(step=len(rewards), reward=rewards[-1], reward_se=0.05, **last)
    return made


def names(seen: list[StepSeen]) -> set[str]:
    return {alarm.guard for alarm in alarms(seen)}


def test_a_run_that_learns_step_by_step_raises_no_alarm():
    assert names(steps(0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6)) == set()
    assert names([]) == set()
    rng = random.Random(1)
    runs = [
        [min(1.0, max(0.0, 0.3 + 0.03 * n + rng.gauss(0, 0.05))) for n in range(10)]
        for _ in range(200)
    ]
    alarmed = sum(any(names(steps(*run[:k])) for k in range(1, 11)) for run in runs)
    assert alarmed <= 0.05 * len(runs)


def test_a_reward_that_jumps_is_told_at_the_step_of_the_jump():
    assert names(steps(0.3, 0.32, 0.95)) == {"reward_jump"}
    assert names(steps(0.3, 0.32, 0.95, 0.96)) == set()


def test_train_above_held_out_is_told_and_far_above_it_stops():
    [near] = alarms(steps(0.5, 0.6, held_out=0.42))
    assert (near.guard, near.stops) == ("train_gap", False)
    [far] = alarms(steps(0.5, 0.6, held_out=0.3))
    assert (far.guard, far.stops) == ("train_gap", True)
    assert names(steps(0.5, 0.6, held_out=0.55)) == set()
    assert names(steps(0.5, 0.6, held_out=0.8)) == set()


def test_perfection_blindness_to_tools_and_sameness_are_told():
    first = StepSeen(
        step=1, reward=0.3, reward_se=0.05, held_out=0.3, rewarded_without_tools=0.1, distinct=0.9
    )
    last = StepSeen(
        step=2,
        reward=0.4,
        reward_se=0.05,
        held_out=0.99,
        rewarded_without_tools=0.8,
        distinct=0.2,
        blocked=0.1,
    )
    assert names([first, last]) == {"perfect_score", "no_tool_call", "narrow_answers", "guard_hits"}


def test_a_step_is_seen_from_its_rollouts():
    traces = [graded(f"t{n}", float(n < 3), tools=() if n == 0 else ("search",)) for n in range(4)]
    seen = step_seen(3, traces, 0.5)
    assert (seen.reward, seen.held_out, seen.distinct) == (0.75, 0.5, 0.25)
    assert seen.rewarded_without_tools == pytest.approx(1 / 3)
    assert seen.reward_se == pytest.approx(0.25)
    assert step_seen(1, []).distinct is None


def test_a_run_is_watched_once_a_step_and_paused_where_that_is_wanted(tmp_path: Path):
    traces = [graded(f"t{n}", 1.0) for n in range(8)]
    with idle_run(tmp_path / "small") as (_, run):
        run.emit("evaluation", step=0, accuracy=0.2)
        watch(run, 1, traces)
        watch(run, 1, traces)
        assert len(run.store.events(run.id, "watch")) == 1
        [alarm] = run.store.events(run.id, "alarm")
        assert (alarm.data["guard"], alarm.data["stops"]) == ("train_gap", True)
    with idle_run(tmp_path / "small", flags={"guards.stop": True}) as (_, run):
        run.emit("evaluation", step=0, accuracy=0.2)
        with pytest.raises(StoppedEarly, match="train_gap at step 1: accuracy is 80 points higher"):
            watch(run, 1, traces)
        watch(run, 1, traces)  # gone on with, it does not stop there again
