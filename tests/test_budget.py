"""Budgets: every limit of a rollout and of a run is kept, named, and never means the opposite."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import anyio
import anyio.to_thread
import pytest
from tests.fault_server import FaultServer, fault_server
from tests.idle_run import idle_run
from tests.loopback import Answer, serving

from learnloop.batch import attempts_on
from learnloop.budget import Spend, reached
from learnloop.config import AgentConfig, BudgetConfig, PricesConfig, ToolConfig, TrainConfig
from learnloop.errors import EndpointError, StoppedEarly
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.models.policy import PolicyProcess
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import BreakerRules, Outbound, Retry
from learnloop.project import Parts
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.run import UNTRAINED, Run, policy_failed
from learnloop.task import Task
from learnloop.tools import http_tools
from learnloop.tools.episode import EpisodeEnd
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn

FAST = Retry(retries=1, first_delay_s=0.001)
TASK = Task(
    id="t1",
    split="train",
    group="g",
    messages=(Message(role="user", content="how much"),),
    tools=(),
    item={"answer": 7},
)
PLANNED = Planned(task=TASK, candidate_id="c", attempt=0, seed=0)


def forever(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    """Call two tools in every turn, and answer only when there are none."""
    if not tools:
        return "7"
    return [ScriptedCall(name="cat", arguments={}), ScriptedCall(name="cat", arguments={})]


def roll(limits: AgentConfig, model: ScriptedModel | None = None) -> Trace:
    async def main(server: FaultServer) -> Trace:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            setup = Setup(
                label="run",
                model=model or ScriptedModel(forever),
                tools=http_tools([ToolConfig(name="cat", server_url=server.url("cat"))], outbound),
                grader=NumericGrader(),
                limits=limits,
                sampling=Sampling(),
            )
            return await roll_out(PLANNED, setup)

    with fault_server(rate=0.0) as server:
        return anyio.run(main, server)


WIDE = AgentConfig(max_calls=1000, max_rounds=1000, max_turns=1000, max_tokens_total=10**6)


@pytest.mark.parametrize(
    ("limits", "reason", "turns", "calls"),
    [
        (replace(WIDE, max_calls=4), "calls", 3, 4),
        (replace(WIDE, max_calls=4, at_call_limit="end"), "calls", 2, 4),
        (replace(WIDE, max_rounds=3), "rounds", 4, 6),
        (replace(WIDE, max_rounds=3, at_call_limit="end"), "rounds", 3, 6),
        (replace(WIDE, max_turns=3), "turns", 4, 6),
        (replace(WIDE, max_turns=3, at_turn_limit="end"), "turns", 3, 6),
        (replace(WIDE, max_turns=0, at_turn_limit="end"), "turns", 0, 0),
        (replace(WIDE, max_tokens_total=7, at_token_limit="last_turn"), "tokens", 3, 4),
        (replace(WIDE, max_tokens_total=7), "tokens", 2, 2),
        (replace(WIDE, max_tokens_total=0), "tokens", 0, 0),
        (replace(WIDE, max_calls=0), "calls", 1, 0),
        (replace(WIDE, max_rounds=0), "rounds", 1, 0),
        (replace(WIDE, max_turns=0), "turns", 1, 0),
    ],
)
def test_each_limit_of_a_rollout_ends_it_as_configured(
    limits: AgentConfig, reason: str, turns: int, calls: int
) -> None:
    trace = roll(limits)
    assert (trace.finish_reason, len(trace.turns), len(trace.calls_run)) == (reason, turns, calls)
    answered = bool(trace.turns) and not trace.turns[-1].tool_calls
    assert trace.outcome == ("graded" if answered else "agent_fault")
    assert trace.score is not None
    assert trace.score.value == float(answered)
    # Two calls of one turn are one round.
    assert trace.rounds == calls // 2


def test_wall_time_may_leave_a_last_turn() -> None:
    slow = ScriptedModel(forever, latency_s=0.1)
    trace = roll(replace(WIDE, max_wall_s=1.5, at_wall_limit="last_turn"), slow)
    assert (trace.outcome, trace.finish_reason) == ("graded", "wall_time")
    assert trace.score is not None


# --- a whole run ---------------------------------------------------------------------------------


def test_the_limits_of_a_run_are_named_in_the_order_of_their_section() -> None:
    spend = Spend(rollouts=3, calls=10, tokens_in=2000, tokens_out=1000)
    prices = PricesConfig(tokens_in_usd=0.01, tokens_out_usd=0.05, call_usd=0.001)
    assert spend.cost_usd(prices) == pytest.approx(0.02 + 0.05 + 0.01)
    nothing = BudgetConfig()
    assert reached(spend, 1e6, nothing, prices) is None
    assert reached(spend, 5, replace(nothing, minutes=5), prices) == ("minutes", 5)
    assert reached(spend, 5, replace(nothing, calls=10), prices) == ("calls", 10)
    assert reached(spend, 5, replace(nothing, calls=11), prices) is None
    assert reached(spend, 5, replace(nothing, tokens=3000), prices) == ("tokens", 3000)
    assert reached(spend, 5, replace(nothing, cost_usd=0.08), prices) == ("cost_usd", 0.08)


def test_what_a_rollout_took_leaves_out_tokens_of_the_cache_and_calls_that_were_not_run() -> None:
    call = ToolCall(id="c", name="cat", arguments="{}")
    trace = Trace(
        id="t",
        task_id="t",
        candidate_id="c",
        attempt=0,
        seed=0,
        turns=(
            Turn(text="", tokens_in=100, tokens_out=5),
            Turn(text="", tokens_in=150, tokens_reused=105, tokens_out=7),
        ),
        calls=(
            CallRecord(call=call, round=0, output=""),
            CallRecord(call=call, round=0, output="", ran=False),
        ),
    )
    assert Spend.of(trace) == Spend(rollouts=1, calls=1, tokens_in=145, tokens_out=12)


@dataclass(frozen=True, kw_only=True)
class ScriptedPolicy:
    """Stands where the policy process stands: gives out a scripted model."""

    script: ScriptedModel

    def model(self, weights: str) -> ScriptedModel:
        return self.script


async def roll_in_run(run: Run, server: FaultServer, tasks: int) -> None:
    """Make rollouts of a real run whose one tool is on the server."""
    rules = BreakerRules(faults=5, probe_s=0.02, longest_wait_s=0.3)
    async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
        outbound.on_outage = run.tell_outage
        tools = http_tools([ToolConfig(name="cat", server_url=server.url("cat"))], outbound)
        run.parts = Parts(tools=tools, grader=NumericGrader(), outbound=outbound)
        run.policy = cast("PolicyProcess", ScriptedPolicy(script=ScriptedModel(forever)))
        pool = [replace(t, tools=()) for t in list(run.tasks.values())[:tasks]]
        await run.roll(run.batch("train", UNTRAINED, attempts_on(pool)))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"budget.calls": 12}, "budget of 12 calls"),
        ({"budget.tokens": 20}, "budget of 20 tokens"),
        ({"budget.cost_usd": 0.03, "prices.call_usd": 0.01}, r"budget of 0.03 cost_usd"),
        ({"budget.rollouts": 2}, "budget of 2 rollouts"),
    ],
)
def test_a_run_stops_when_its_budget_is_spent_and_says_which(
    tmp_path: Path, flags: dict[str, object], words: str
) -> None:
    flags = {**flags, "agent.max_rounds": 2, "train.max_concurrency": 1}
    with (
        fault_server(rate=0.0) as server,
        idle_run(tmp_path / "small", flags=flags) as (_, run),
    ):
        with pytest.raises(StoppedEarly, match=words) as told:
            anyio.run(roll_in_run, run, server, 6)
        rows = run.store.rows(run.id)
        assert told.value.exit_code == 6
        assert 0 < len(rows) < 6
        assert run.spend.rollouts == len(rows)
        assert run.spend.calls == sum(row.calls for row in rows)


def test_an_endpoint_that_stays_down_pauses_the_run_and_says_how_to_go_on(tmp_path: Path) -> None:
    with (
        fault_server(script={"cat": ["5xx"]}) as server,
        idle_run(tmp_path / "small") as (_, run),
    ):
        with pytest.raises(EndpointError) as told:
            anyio.run(roll_in_run, run, server, 6)
        line = told.value.line()
        assert told.value.exit_code == 5
        assert line.startswith("tool cat: did not answer as it should")
        assert "HTTP 503" in line
        assert f"learnloop train --resume {run.id}" in line
        [down] = run.store.events(run.id, "endpoint_down")
        assert down.data["endpoint"] == "tool cat"
        assert "HTTP 503" in down.data["fault"]
        assert all(row.value is None for row in run.store.rows(run.id))
        assert run.faults["tool cat/5xx"] == server.injected["cat", "5xx"]


@pytest.mark.parametrize(
    ("multiplier", "per_task", "rollouts"),
    [(0.0, 16, 64), (1.0, 8, 32), (2.0, 16, 64), (4.0, 32, 128), (10.0, 80, 320), (0.001, 2, 8)],
)
def test_the_compute_multiplier_scales_rollouts_of_a_task_and_leaves_tasks_of_a_step(
    multiplier: float, per_task: int, rollouts: int
) -> None:
    train = TrainConfig(compute_multiplier=multiplier)
    assert (train.tasks_per_step, train.per_task) == (4, per_task)
    assert train.rollouts_per_step == rollouts


# --- what a resumed run has spent before ---------------------------------------------------------

LOST = Trace(
    id="trace_lost",
    task_id="task-0",
    candidate_id="c",
    attempt=0,
    seed=0,
    turns=(Turn(text="", tokens_in=100, tokens_reused=10, tokens_out=5),),
    calls=(CallRecord(call=ToolCall(id="c", name="cat", arguments="{}"), round=0, output=""),),
    outcome="infra_fault",
    failure=Failure(boundary="tool", kind="5xx", message="gone"),
)
MADE_ANEW = replace(LOST, outcome="graded", failure=None, score=Score(value=1.0, correct=1.0))


@pytest.mark.parametrize("told", [["paused"], []], ids=["in the ledger", "not yet"])
def test_rollouts_that_were_lost_and_made_anew_count_twice_after_a_resume(
    tmp_path: Path, told: list[str]
) -> None:
    with idle_run(tmp_path / "small") as (session, run):
        run.store.save_trace(run.id, "train", 1, LOST)
        for kind in told:
            run.emit(kind)
        run.store.save_trace(run.id, "train", 1, MADE_ANEW)
        whole = session.history.spend(with_tokens=True)
        assert whole == Spend(rollouts=2, calls=2, tokens_in=180, tokens_out=10)
        assert session.history.spend(with_tokens=False).calls == 2
        assert sum(t.rollouts for t in run.store.totals(run.id)) == 1
        run.emit("run_ended")
        assert run.store.audit().broken is None


def test_rollouts_cut_short_count_by_their_number_and_the_message_says_what_is_missing(
    tmp_path: Path,
) -> None:
    flags = {"budget.calls": 4, "agent.max_rounds": 1, "train.max_concurrency": 1}
    with (
        fault_server(rate=0.0) as server,
        idle_run(tmp_path / "small", flags=flags) as (session, run),
    ):
        run.store.begin_rollout(run.id, "trace_cut")
        run.tell_repeated()
        assert run.spend == Spend(rollouts=1, unknown=1)
        with pytest.raises(StoppedEarly, match="4 calls is spent, without what 1 rollouts took"):
            anyio.run(roll_in_run, run, server, 6)
        assert session.history.spend(with_tokens=False) == Spend(rollouts=3, calls=4, unknown=1)


def test_a_budget_of_rollouts_counts_those_cut_short(tmp_path: Path) -> None:
    flags = {"budget.rollouts": 2, "agent.max_rounds": 1}
    with (
        fault_server(rate=0.0) as server,
        idle_run(tmp_path / "small", flags=flags) as (_, run),
    ):
        run.store.begin_rollout(run.id, "trace_cut")
        run.tell_repeated()
        with pytest.raises(StoppedEarly, match=r"the budget of 2 rollouts is spent\. Raise"):
            anyio.run(roll_in_run, run, server, 6)
        assert len(run.store.rows(run.id)) == 1


# --- the end of an episode -----------------------------------------------------------------------


async def _tell_when_over(
    server: FaultServer, cancel_when: Callable[[], object] | None
) -> list[str]:
    """Make a rollout, cancelled when something is met; return what ended by the server's log."""
    async with Outbound(allow_private=True, retry=FAST) as outbound:
        configs = [
            ToolConfig(
                name=name,
                server_url=server.url("cat"),
                timeout_s=20,
                episode_end_url=server.url("end"),
            )
            for name in ("cat", "dog")
        ]
        setup = Setup(
            label="run",
            model=ScriptedModel(forever),
            tools=http_tools(configs, outbound),
            grader=NumericGrader(),
            limits=AgentConfig(max_rounds=1),
            sampling=Sampling(),
            on_end=EpisodeEnd(configs, outbound, environ={}).tell,
        )
        async with anyio.create_task_group() as group:
            group.start_soon(roll_out, PLANNED, setup)
            if cancel_when:
                await anyio.to_thread.run_sync(server.until, cancel_when)
                group.cancel_scope.cancel()
    return [trace for trace, what in server.log if what == "episode_end"]


def test_stateful_tools_are_told_once_when_a_rollout_is_over_however_it_ended() -> None:
    for script in ({"cat": ["good"]}, {"cat": ["5xx"]}):
        with fault_server(script=script) as server:
            ended = anyio.run(_tell_when_over, server, None)
        assert len(ended) == 1
        assert server.log[ended[0], "episode_end"] == ["good"]


def test_a_cancelled_rollout_cancels_its_calls_and_still_tells_that_it_is_over() -> None:
    with fault_server(script={"cat": ["drip"]}, keep_bodies=True) as server:
        # Both calls of the turn are under way, and the server sees both connections close.
        ended = anyio.run(_tell_when_over, server, lambda: server.injected["cat", "drip"] == 2)
        assert len(ended) == 1
        server.until(lambda: server.hung_up == 2)
    last = json.loads(server.bodies[-1][2])
    assert last == {"type": "episode_end", "trace_id": ended[0]}


def test_nobody_at_the_address_of_the_end_changes_nothing() -> None:
    async def main(server: FaultServer) -> Trace:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = ToolConfig(
                name="cat",
                server_url=server.url("cat"),
                episode_end_url="http://127.0.0.1:9/end",
            )
            setup = Setup(
                label="run",
                model=ScriptedModel(forever),
                tools=http_tools([config], outbound),
                grader=NumericGrader(),
                limits=AgentConfig(max_rounds=1),
                sampling=Sampling(),
                on_end=EpisodeEnd([config], outbound, environ={}).tell,
            )
            return await roll_out(PLANNED, setup)

    with fault_server(rate=0.0) as server:
        trace = anyio.run(main, server)
    assert trace.score is not None
    assert trace.score.value == 1.0


def test_a_server_that_answers_the_end_with_too_much_changes_nothing() -> None:
    async def main(url: str) -> None:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = ToolConfig(name="cat", server_url=url, episode_end_url=url)
            await EpisodeEnd([config], outbound, environ={}).tell("trace_1")

    with serving(lambda _: Answer(body=b"x" * 1_100_000)) as server:
        anyio.run(main, server.url)
    assert [seen.data["type"] for seen in server.seen] == ["episode_end"]


@pytest.mark.parametrize("command", ["eval", "probe"])
def test_what_cannot_be_resumed_is_said_to_start_again(command: str) -> None:
    line = policy_failed("run_1", command, "the policy process died").line()
    assert "--resume" not in line
    assert f"start `learnloop {command}` again" in line
