"""What happens around the gate: the A/A run before it, and the regression check after it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.idle_run import idle_run

from learnloop.errors import ConfigError, GraderError, StoppedEarly
from learnloop.gate import GateResult, PairResult
from learnloop.graders.numeric import NumericGrader
from learnloop.judging import (
    AA_STAGE,
    incumbent_tries,
    measure_noise,
    next_trial,
    refuse_regressions,
    refuse_underpowered,
)
from learnloop.learn import evaluate, measure_one
from learnloop.message import Message, ToolSchema
from learnloop.models.policy import PolicyProcess
from learnloop.models.scripted import Played, ScriptedModel
from learnloop.project import Parts, Project
from learnloop.run import UNTRAINED, Run
from learnloop.task import Task
from learnloop.trace import Score, Trace

Right = Callable[[int, int], bool]
"""Whether an agent answers right, from the question's number and the rollout's seed."""

CANDIDATE = "step-1"


class Weights:
    """Weights by name; in place of the policy process, each a script."""

    def __init__(self, agents: Mapping[str, Right]) -> None:
        self._agents = agents

    def model(self, weights: str) -> ScriptedModel:
        def play(messages: Sequence[Message], _: Sequence[ToolSchema], seed: int) -> Played:
            number = int(re.findall(r"\d+", messages[-1].content)[0])
            right = self._agents[weights](number, seed)
            return f"Answer: {2 * number if right else -1}"

        return ScriptedModel(play)

    async def load(self, weights: str, folder: Path) -> None:
        """Do nothing: scripts are there already."""


def with_agents(run: Run, untrained: Right, trained: Right | None = None) -> Run:
    agents = {UNTRAINED: untrained, CANDIDATE: trained or untrained}
    policy = cast("PolicyProcess", Weights(agents))
    bare = {name: replace(task, tools=()) for name, task in run.tasks.items()}
    return replace(run, tasks=bare, policy=policy, parts=Parts(tools={}, grader=NumericGrader()))


def always(number: int, seed: int) -> bool:
    return True


def tossing(number: int, seed: int) -> bool:
    return seed // 7 % 2 == 0


def test_an_a_a_run_shows_noise_and_gives_its_first_arm_to_the_evaluation(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"train.eval_tasks": 0}) as (session, run):
        run = with_agents(run, tossing)
        anyio.run(measure_noise, run)
        noise = session.history.noise
        assert noise is not None
        assert (noise.planned, noise.tasks, noise.lost) == (4, 4, 0)
        assert noise.share > 0
        anyio.run(measure_noise, run)
        assert len(run.store.events(run.id, "noise")) == 1
        made = {row.trace_id for row in run.store.rows(run.id)}
        anyio.run(evaluate, run, UNTRAINED, 0)
        rows = run.store.rows(run.id)
        assert {row.trace_id for row in rows} == made
        assert sorted(row.stage for row in rows) == [AA_STAGE] * 4 + ["screen"] * 4


def test_a_task_is_tried_once_where_the_agent_never_answers_otherwise(tmp_path: Path):
    with idle_run(tmp_path / "steady", flags={"gate.looks": [2, 8]}) as (_, run):
        run = with_agents(run, always)
        assert next_trial(run).looks == (2, 8)
        anyio.run(measure_noise, run)
        assert next_trial(run).looks == (2, 4)
    with idle_run(tmp_path / "noisy", flags={"gate.looks": [2, 8]}) as (_, run):
        run = with_agents(run, tossing)
        anyio.run(measure_noise, run)
        assert next_trial(run).looks == (2, 8)


def test_a_gain_that_would_hardly_show_stops_the_run_unless_that_is_accepted(tmp_path: Path):
    flags = {"gate.looks": [80, 400], "gate.target": 0.01}
    with idle_run(tmp_path / "small", flags=flags) as (_, run):
        run = with_agents(run, tossing)
        with pytest.raises(StoppedEarly, match=r"a gain of 1 points needs about \d+ pairs.*accept"):
            anyio.run(measure_noise, run)
    for accepted in ({"gate.accept_underpowered": True}, {"gate.target": 0.9}, {"gate.target": 0}):
        with idle_run(tmp_path / "small", flags={**flags, **accepted}) as (_, run):
            anyio.run(measure_noise, with_agents(run, tossing))
    with pytest.raises(ConfigError, match="is set without an A/A run"):
        Project.open(tmp_path / "small", environ={}, flags={**flags, "gate.aa_tasks": 0})


def test_eval_measures_twice_on_request(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        run = with_agents(run, tossing)

        async def main() -> None:
            await measure_one(run, weights=UNTRAINED, split="confirm", attempts=3, twice=True)

        anyio.run(main)
        assert session.history.noise
        # As many tasks as a report takes at most.
        assert (session.history.noise.pairs, session.history.noise.tasks) == (9, 3)


def results_of(run: Run, right: Right, passes: int = 2) -> list[PairResult]:
    """Return pairs of a gate in which the candidate was always right."""
    confirm = [t for t in run.tasks.values() if t.split == "confirm"]
    return [
        PairResult(task_id=t.id, incumbent=float(right(int(t.id.split("-")[1]), n)), candidate=1.0)
        for n in range(passes)
        for t in confirm
    ]


def checked(run: Run, *, passes: int = 2) -> GateResult:
    verdict = GateResult(outcome="adopt", words="better", label="here", carries_over=True)
    tries = incumbent_tries(results_of(run, lambda number, _: number != 4, passes))
    told = {name: [one.passed, one.tried] for name, one in tries.items()}
    run.emit_once("verdict", tries=told, **asdict(verdict))

    async def main() -> GateResult:
        return await refuse_regressions(run, CANDIDATE, verdict)

    return anyio.run(main)


def test_a_protected_task_that_breaks_is_a_veto_that_names_it(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"gate.protect": 10}) as (_, run):
        run = with_agents(run, always, lambda number, _: number != 10)
        found = checked(run)
        assert (found.outcome, found.label, found.carries_over) == ("reject", "", False)
        assert found.words.startswith("1 protected task got worse, twice: task-10 passed 5 of 5")
        [event] = run.store.events(run.id, "regressions")
        # task-4 failed in the gate, so nobody promised that it passes.
        assert event.data["protected"] == ["task-10", "task-16", "task-22"]
        assert event.data["found"] == event.data["confirmed"] == ["task-10"]


def test_a_candidate_that_breaks_nothing_is_adopted_and_that_is_said(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"gate.protect": 2}) as (_, run):
        run = with_agents(run, always)
        found = checked(run)
        assert (found.outcome, found.carries_over) == ("adopt", True)
        assert found.words.startswith(
            "better; no loss was confirmed on 2 protected tasks in 5 tries each"
        )
        # Two of five tries came from the gate, three more chose them; five of each arm tested them.
        stages = [row.stage for row in run.store.rows(run.id)]
        assert (stages.count("protect-pick"), stages.count("protect-test")) == (6, 20)
        assert "protect-again" not in stages


def test_tries_of_the_gate_are_enough_where_there_are_many(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"gate.protect": 10}) as (_, run):
        run = with_agents(run, always)
        assert checked(run, passes=6).outcome == "adopt"
        assert "protect-pick" not in {row.stage for row in run.store.rows(run.id)}


def test_where_nothing_always_passes_nothing_can_be_protected(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"gate.protect": 3}) as (_, run):
        found = checked(with_agents(run, lambda number, seed: False))
        assert found.words == "better; no task could be protected"
        assert found.outcome == "adopt"


class Flaky(NumericGrader):
    """A grader that is away when the candidate answers one task."""

    async def grade(self, task: Task, trace: Trace) -> Score:
        if task.id == "task-10" and trace.candidate_id == self.candidate:
            raise GraderError("away", kind="5xx")
        return await super().grade(task, trace)

    candidate = ""


def test_a_protected_task_whose_tries_are_lost_is_named_as_not_tested(tmp_path: Path):
    with idle_run(tmp_path / "small", flags={"gate.protect": 10}) as (_, run):
        run = with_agents(run, always)
        grader = Flaky()
        grader.candidate = run.candidate(CANDIDATE).id
        found = checked(replace(run, parts=Parts(tools={}, grader=grader)))
        assert "no loss was confirmed on 2 protected tasks" in found.words
        assert found.words.endswith("not tested, their tries were lost: task-10")
        # When the run goes on and they are made anew, the record follows.
        worse = with_agents(run, always, lambda number, seed: number != 10)
        assert checked(replace(worse, given_up=set())).outcome == "reject"
        events = [e.data["confirmed"] for e in run.store.events(run.id, "regressions")]
        assert events == [[], ["task-10"]]


def test_both_arms_of_the_a_a_run_are_made_at_once_with_and_without_a_warm_up(tmp_path: Path):
    """Made after the evaluation, its second arm alone would show what has changed since."""
    with idle_run(tmp_path / "small") as (session, run):
        run = with_agents(run, tossing)
        anyio.run(evaluate, run, UNTRAINED, 0)
        anyio.run(measure_noise, run)
        assert session.history.noise is None
        assert AA_STAGE not in {row.stage for row in run.store.rows(run.id)}


def test_an_agent_that_never_differs_is_no_deterministic_one_while_it_samples(tmp_path: Path):
    flags = {"model.temperature": 0.7, "gate.looks": [80, 400], "gate.target": 0.1}
    with idle_run(tmp_path / "small", flags=flags) as (_, run):
        run = with_agents(run, lambda number, seed: False)
        anyio.run(measure_noise, run)
        assert next_trial(run).looks == (80, 400)
        [event] = run.store.events(run.id, "noise")
        assert "with this noise 400 pairs adopt" in event.data["words"]
        assert "each confirm task once" not in event.data["words"]


def test_what_was_accepted_stays_accepted_and_training_under_way_is_not_stopped(tmp_path: Path):
    flags = {"gate.looks": [80, 400], "gate.target": 0.01}
    folder = tmp_path / "small"
    with idle_run(folder, flags={**flags, "gate.accept_underpowered": True}) as (_, run):
        anyio.run(measure_noise, with_agents(run, tossing))
        project = Project.open(folder, environ={}, flags=flags)
        refuse_underpowered(replace(run, project=project))
    with idle_run(folder, flags=flags) as (_, run):
        with pytest.raises(StoppedEarly, match="--accept-underpowered`"):
            anyio.run(measure_noise, with_agents(run, tossing))
        with pytest.raises(StoppedEarly):
            anyio.run(measure_noise, with_agents(run, tossing))
        run.emit("step", step=1)
        anyio.run(measure_noise, with_agents(run, tossing))
