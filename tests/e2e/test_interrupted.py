"""A run that is killed, interrupted and robbed of its parts ends as one that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.e2e.conftest import (
    Done,
    Moment,
    Small,
    children_of,
    event,
    is_policy,
    kinds,
    rollouts,
)
from tests.e2e.small_project import make_small_project

# A busy machine makes every start of a process slow.
pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, kw_only=True)
class Blow:
    """What is done to a running run, and when; `how` is a signal, to the run or its policy."""

    when: Moment
    how: signal.Signals
    to_policy: bool = False


# Each moment lies after the one before, whatever a blow lets be stored yet.
BLOWS = {
    "killed in the first evaluation": Blow(when=rollouts("screen", 2, -1), how=signal.SIGKILL),
    "killed after the warm-up": Blow(when=event("warmup"), how=signal.SIGKILL),
    "interrupted": Blow(when=rollouts("probe", 2), how=signal.SIGINT),
    "killed after an evaluation": Blow(when=event("evaluation", 0), how=signal.SIGKILL),
    "killed in a step": Blow(when=rollouts("train", 3, 1), how=signal.SIGKILL),
    "terminated": Blow(when=rollouts("train", 2, 2), how=signal.SIGTERM),
    "killed after a step": Blow(when=event("step", 2), how=signal.SIGKILL),
    "without policy": Blow(when=rollouts("train", 1, 3), how=signal.SIGKILL, to_policy=True),
    "killed after the choice": Blow(when=event("checkpoint"), how=signal.SIGKILL),
}
CODES = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run that was struck again and again: each time how it ended, then its end in peace.

    `poor` is its beginning with a budget that is spent at once, `second` a run beside it.
    """

    small: Small
    struck: dict[str, Done]
    statuses: dict[str, str]
    left: dict[str, list[int]]
    page: dict[str, str]
    poor: Done
    second: Done
    end: Done


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Return a run that went through every blow."""
    small = Small(make_small_project(tmp_path_factory.mktemp("struck") / "small"))
    struck: dict[str, Done] = {}
    statuses: dict[str, str] = {}
    left: dict[str, list[int]] = {}
    page: dict[str, str] = {}
    second = Done(code=0, out="", err="")
    poor = small.run("train", LEARNLOOP_BUDGET__MINUTES="0.0001")
    words = ("train", "--resume", "latest")
    enough = {"LEARNLOOP_BUDGET__MINUTES": "60"}
    for name, blow in BLOWS.items():
        deaf = blow.how == signal.SIGTERM  # a background job must be stoppable too
        with small.start(*words, deaf=deaf, **enough) as process:
            small.wait(blow.when, process)
            left[name] = children_of(process.pid)
            if name == "interrupted":
                process.send_signal(signal.SIGSTOP)  # or the moment would pass meanwhile
                second = small.read("train")
                process.send_signal(signal.SIGCONT)
            strike(blow, process, left[name])
            out, err = process.communicate(timeout=100)
        struck[name] = Done(code=process.returncode, out=out, err=err)
        run = small.record()
        statuses[name] = run.status
        page[name] = (small.root / ".learnloop/runs" / run.id / "report.html").read_text()
    end = small.run(*words, "--json", **enough)
    return Story(
        small=small, struck=struck, statuses=statuses, left=left, page=page,
        poor=poor, second=second, end=end,
    )  # fmt: skip


def strike(blow: Blow, process: subprocess.Popen[str], children: list[int]) -> None:
    if blow.to_policy:
        [policy] = [child for child in children if is_policy(child)]
        os.kill(policy, blow.how)
    else:
        process.send_signal(blow.how)


def test_every_blow_ends_the_run_with_its_own_exit_code(story: Story):
    for name, done in story.struck.items():
        blow = BLOWS[name]
        wanted = 5 if blow.to_policy else CODES[blow.how]
        assert done.code == wanted, f"{name}: {done.err}"
        assert done.out == "", name


def test_a_struck_run_ends_as_one_that_was_left_alone(
    undisturbed: tuple[Small, Done], story: Story
):
    calm, calm_end = undisturbed
    assert story.end.code == 0, story.end.err
    assert story.small.record().status == "done"
    # Places, seeds and sampled tokens: nothing is missing, nothing was made twice or differently.
    assert story.small.rollouts() == calm.rollouts()
    assert kinds(story.small.events()) == kinds(calm.events())
    for key in ("gain", "gate", "steps", "rollouts"):
        assert story.end.json[key] == calm_end.json[key]
    for key in ("score", "tool_calls_mean", "tokens_mean"):
        assert story.end.json["final"][key] == calm_end.json["final"][key]


def test_a_struck_run_trains_the_same_weights(undisturbed: tuple[Small, Done], story: Story):
    mine, other = (final_weights(small) for small in (undisturbed[0], story.small))
    assert mine.keys() == other.keys()
    # Which rollouts share a batch depends on timing, and with it the last digits of a gradient; Adam
    # makes a whole step of a gradient near nothing. Weights trained on other rollouts differ nearly all.
    apart = sum(int(((t - other[name]).abs() > 1e-5).sum()) for name, t in mine.items())
    assert apart < 0.01 * sum(t.numel() for t in mine.values())


def final_weights(small: Small) -> dict[str, torch.Tensor]:
    """Return the fp32 master weights after the last step."""
    file = small.root / ".learnloop/runs" / small.record().id / "state.pt"
    return torch.load(file, weights_only=True)["parameters"]


def test_the_time_of_all_sessions_adds_up(story: Story):
    events = story.small.events()
    clock = [e.data["spent_s"] for e in events]
    assert clock == sorted(clock)
    started = [e.data["resumed"] for e in events if e.kind == "run_started"]
    assert started == [False] + [True] * (len(BLOWS) + 1)


def test_nothing_is_left_running(story: Story):
    for name, children in story.left.items():
        assert len(children) == 2, f"{name}: service and policy"
        assert not any(Path(f"/proc/{child}").exists() for child in children), name


@pytest.mark.parametrize("name", ["interrupted", "terminated", "without policy"])
def test_a_run_that_could_speak_says_how_to_go_on(story: Story, name: str):
    run = story.small.record()
    assert story.statuses[name] == "stopped"
    assert f"go on with: learnloop train --resume {run.id} --project" in story.struck[name].err
    assert "not finished" in story.page[name]


def test_a_dead_policy_process_is_named_and_takes_no_rollouts_along(story: Story):
    done = story.struck["without policy"]
    assert done.err.splitlines()[-1].startswith("error: the policy process: ")
    lost = story.small.rows("select count(*) from rollouts where outcome = 'infra_fault'")
    assert lost == [(0,)]


def test_only_one_run_works_on_a_project(story: Story):
    assert story.second.code == 1
    assert "another learnloop (process" in story.second.err
    assert story.small.rows("select count(*) from runs") == [(1,)]


def test_a_spent_budget_ends_with_6_and_a_raised_one_goes_on(story: Story):
    assert story.poor.code == 6, story.poor.err
    assert story.poor.out == ""
    assert "budget.minutes: the budget of 0.0001 minutes is spent. Raise it" in story.poor.err
    assert story.end.code == 0


def test_an_interrupted_probe_says_that_it_starts_anew(tmp_path: Path):
    small = Small(make_small_project(tmp_path / "small", warmup=False))
    with small.start("probe", "--attempts", "200") as process:
        small.wait(rollouts("probe", 2), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 130
    [(run, status)] = small.rows("select id, status from runs")
    assert status == "stopped"
    assert f"run {run} keeps the rollouts it has; only training goes on" in err
