"""A broken endpoint makes rollouts wait, not fail; and limits hold over all that share an address."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Sequence
from dataclasses import replace

import anyio
import anyio.to_thread
import pytest
from tests.fault_server import GOOD, FaultServer, fault_server

from learnloop.clock import Clock
from learnloop.config import AgentConfig, GraderConfig, ToolConfig
from learnloop.errors import EndpointError, ToolError
from learnloop.graders import grader_of
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import BreakerRules, Outage, Outbound, Retry
from learnloop.outbound.breaker import Breaker
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import run_many
from learnloop.task import Task
from learnloop.tool import ToolContext
from learnloop.tools import http_tools
from learnloop.trace import Trace

FAST = Retry(retries=3, first_delay_s=0.001)
QUICK = BreakerRules(faults=5, probe_s=0.02, max_probe_s=0.05, longest_wait_s=0.4)
CALL = ToolCall(id="call_1", name="cat", arguments="{}")
CONTEXT = ToolContext(trace_id="trace_1", item={"answer": 1})


def task(number: int) -> Task:
    message = Message(role="user", content="how much")
    return Task(
        id=f"t{number}", split="train", group="g", messages=(message,), tools=(), item={"answer": 7}
    )


def ask(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    if messages[-1].role == "tool":
        return messages[-1].content
    return [ScriptedCall(name="cat", arguments={})]


async def roll_all(
    server: FaultServer,
    count: int,
    seen: list[Trace],
    news: list[Outage],
    limits: AgentConfig,
    rules: BreakerRules,
    rate: float = 0.0,
) -> list[Trace]:
    async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
        outbound.on_outage = news.append
        config = ToolConfig(name="cat", server_url=server.url("cat"), rate_limit=rate)
        tools = http_tools([config], outbound)
        setup = Setup(
            label="run",
            model=ScriptedModel(ask),
            tools=tools,
            grader=NumericGrader(),
            limits=limits,
            sampling=Sampling(),
        )
        plan = [Planned(task=task(n), candidate_id="c", attempt=0, seed=n) for n in range(count)]
        return await run_many(
            plan,
            lambda p, retry: roll_out(p, setup, retry),
            max_concurrency=20,
            on_trace=seen.append,
        )


def test_rollouts_wait_for_an_endpoint_that_comes_back_and_none_is_lost() -> None:
    news: list[Outage] = []
    seen: list[Trace] = []
    # It is down for longer than the limit of a rollout: waiting for an endpoint does not count.
    limits = AgentConfig(max_wall_s=2.0)
    rules = BreakerRules(faults=5, probe_s=0.25, max_probe_s=0.25, longest_wait_s=30)
    with fault_server(script={"cat": [*["5xx"] * 30, GOOD]}) as server:
        traces = anyio.run(roll_all, server, 40, seen, news, limits, rules)
    assert [t.outcome for t in traces] == ["graded"] * 40
    assert len(seen) == 40
    assert all(t.score and t.score.value == 1.0 for t in traces)
    assert [n.is_down for n in news] == [True, False]
    assert "503" in news[0].fault
    assert news[1].down_s > limits.max_wall_s


def test_an_endpoint_that_stays_down_pauses_the_run_and_nothing_is_scored() -> None:
    news: list[Outage] = []
    seen: list[Trace] = []
    with fault_server(script={"cat": ["5xx"]}) as server, pytest.raises(EndpointError) as told:
        anyio.run(roll_all, server, 40, seen, news, AgentConfig(), QUICK)
    assert told.value.exit_code == 5
    assert told.value.where == "tool cat"
    assert "did not answer as it should for 0.4 s; last: tool cat: HTTP 503" in told.value.what
    assert [n.is_down for n in news] == [True]
    assert all(trace.score is None for trace in seen)
    # Twenty at once, then one look now and then; none of the twenty is lost for having waited.
    assert seen == []
    assert server.injected["cat", "5xx"] < 45


def test_looks_at_an_endpoint_that_is_down_use_up_no_retries() -> None:
    news: list[Outage] = []
    seen: list[Trace] = []
    rules = BreakerRules(faults=2, looks=99, probe_s=0.01, max_probe_s=0.02, longest_wait_s=60)
    # Two rollouts make all of these looks.
    with fault_server(script={"cat": [*["5xx"] * 40, GOOD]}) as server:
        traces = anyio.run(roll_all, server, 2, seen, news, AgentConfig(), rules)
    assert [t.outcome for t in traces] == ["graded"] * 2
    assert len(seen) == 2
    assert sum(c.retries for t in traces for c in t.calls) == 40
    assert [n.is_down for n in news] == [True, False]


def test_what_waited_for_its_turn_when_the_endpoint_went_down_is_not_sent() -> None:
    async def main(server: FaultServer) -> None:
        rules = BreakerRules(faults=1, probe_s=60, longest_wait_s=0.5)
        async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
            config = ToolConfig(name="cat", server_url=server.url("cat"), max_concurrency=1)
            tool = http_tools([config], outbound)["cat"]
            told: list[EndpointError] = []

            async def ask() -> None:
                try:
                    await tool.call(CALL, CONTEXT)
                except EndpointError as error:
                    told.append(error)

            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(ask)
            assert len(told) == 10

    with fault_server(script={"cat": ["5xx"]}) as server:
        anyio.run(main, server)
    assert server.injected["cat", "5xx"] == 1


def test_no_look_comes_before_the_time_that_an_endpoint_asked_for() -> None:
    async def main() -> float:
        breaker = Breaker("cat", BreakerRules(faults=2, probe_s=0.01), lambda _: None)
        breaker.failed("5xx", look=0)
        breaker.failed("429", look=0, asked_s=0.3)
        start_s = time.monotonic()
        assert await breaker.admit()
        return time.monotonic() - start_s

    assert anyio.run(main) >= 0.29


def test_a_cancelled_look_does_not_keep_the_others_waiting() -> None:
    async def main(server: FaultServer) -> None:
        rules = replace(QUICK, longest_wait_s=60)
        async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
            config = ToolConfig(name="cat", server_url=server.url("cat"), timeout_s=60)
            tool = http_tools([config], outbound)["cat"]

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(tool.call, CALL, CONTEXT)
                await anyio.to_thread.run_sync(server.until, lambda: server.injected["cat", "drip"])
                group.cancel_scope.cancel()
            output = await tool.call(CALL, CONTEXT)
            assert output.text == "1"

    script = {"cat": [*["5xx"] * 5, "drip", GOOD]}
    with fault_server(script=script, drip_s=60) as server:
        anyio.run(main, server)


def test_a_request_that_is_never_answered_is_given_up_and_others_look_before_it() -> None:
    """It opens the breaker alone; alone it is given up, and beside another the other looks."""

    async def main(server: FaultServer) -> None:
        rules = replace(QUICK, faults=2, longest_wait_s=60)
        async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
            tool = http_tools([ToolConfig(name="cat", server_url=server.url("cat"))], outbound)
            with pytest.raises(ToolError, match="503"):
                await tool["cat"].call(CALL, CONTEXT)
            # One fault to each side of opening, and the looks that it was granted.
            assert server.injected["cat", "5xx"] == rules.faults + rules.looks
            server.script["cat"] = [GOOD]
            assert (await tool["cat"].call(CALL, CONTEXT)).text == "1"

    with fault_server(script={"cat": ["5xx"]}) as server:
        anyio.run(main, server)


def test_a_look_that_hangs_is_replaced_and_its_late_end_is_no_news() -> None:
    async def main() -> None:
        rules = BreakerRules(faults=1, probe_s=0.01, max_probe_s=0.05, longest_wait_s=60)
        breaker = Breaker("cat", rules, lambda _: None)
        breaker.failed("5xx", look=0)
        first = await breaker.admit()
        second = await breaker.admit()
        assert 0 < first < second
        breaker.failed("timeout", look=first)  # now it ends, late
        breaker.let_go(first)
        with anyio.move_on_after(0.02) as waited:
            await breaker.admit()
        assert waited.cancelled_caught, "the second is still out, and none may look beside it"
        breaker.succeeded()
        assert await breaker.admit() == 0

    anyio.run(main)


def test_a_look_goes_past_a_request_that_holds_the_only_place() -> None:
    """The first look hangs until it is over time; the next one finds the endpoint well again."""

    async def main(server: FaultServer) -> None:
        rules = BreakerRules(faults=1, probe_s=0.05, max_probe_s=0.2, longest_wait_s=60)
        async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
            config = ToolConfig(
                name="cat", server_url=server.url("cat"), max_concurrency=1, timeout_s=60
            )
            tool = http_tools([config], outbound)["cat"]
            async with anyio.create_task_group() as group:
                group.start_soon(tool.call, CALL, CONTEXT)
                with anyio.fail_after(30):
                    assert (await tool.call(CALL, CONTEXT)).text == "1"
                group.cancel_scope.cancel()

    with fault_server(script={"cat": ["5xx", "drip", GOOD]}) as server:
        anyio.run(main, server)


def test_who_has_failed_the_fewest_looks_looks_first() -> None:
    async def main() -> list[int]:
        breaker = Breaker("cat", BreakerRules(faults=1, probe_s=0.05), lambda _: None)
        breaker.failed("5xx", look=0)
        order: list[int] = []

        async def wait(looks: int) -> None:
            if look := await breaker.admit(looks):
                order.append(looks)
                breaker.failed("5xx", look=look, looks=looks + 1)

        async with anyio.create_task_group() as group:
            for looks in (2, 0, 1):
                group.start_soon(wait, looks)
        return order

    assert anyio.run(main) == [0, 1, 2]


def test_tools_at_one_address_share_its_rate_limit() -> None:
    async def main(server: FaultServer) -> float:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            configs = [
                ToolConfig(name=name, server_url=server.url("cat"), rate_limit=limit)
                for name, limit in (("cat", 40.0), ("dog", 0.0))
            ]
            tools = http_tools(configs, outbound)
            start_s = time.monotonic()
            async with anyio.create_task_group() as group:
                for number in range(30):
                    group.start_soon(tools["cat" if number % 2 else "dog"].call, CALL, CONTEXT)
            return time.monotonic() - start_s

    with fault_server(rate=0.0) as server:
        took_s = anyio.run(main, server)
    # Four at once, and 26 more at 40 a second.
    assert took_s >= 26 / 40 - 0.01


def test_waiting_for_a_place_under_the_rate_limit_is_not_the_agents_time() -> None:
    limits, rate, news = AgentConfig(max_wall_s=1.0), 10.0, list[Outage]()
    with fault_server(rate=0.0) as server:
        start_s = time.monotonic()
        traces = anyio.run(roll_all, server, 25, list[Trace](), news, limits, QUICK, rate)
        took_s = time.monotonic() - start_s
    assert took_s > 2 * limits.max_wall_s  # or nothing had to wait
    assert [t.outcome for t in traces] == ["graded"] * 25
    assert {t.finish_reason for t in traces} == {"answer"}


def test_each_address_has_a_breaker_of_its_own() -> None:
    news: list[Outage] = []
    rules = replace(QUICK, longest_wait_s=60)

    async def main(bad: FaultServer, good: FaultServer) -> None:
        async with Outbound(allow_private=True, retry=FAST, breaker=rules) as outbound:
            down = anyio.Event()

            def note(outage: Outage) -> None:
                news.append(outage)
                down.set()

            outbound.on_outage = note
            configs = [
                ToolConfig(name=name, server_url=server.url("cat"))
                for name, server in (("cat", bad), ("dog", good))
            ]
            tools = http_tools(configs, outbound)
            async with anyio.create_task_group() as group:
                for _ in range(QUICK.looks + 1):  # one request alone would be given up
                    group.start_soon(tools["cat"].call, CALL, CONTEXT)
                await down.wait()
                for _ in range(20):
                    assert (await tools["dog"].call(CALL, CONTEXT)).text == "1"
                assert [(n.endpoint, n.is_down) for n in news] == [("tool cat", True)]
                group.cancel_scope.cancel()

    with fault_server(script={"cat": ["5xx"]}) as bad, fault_server(rate=0.0) as good:
        anyio.run(main, bad, good)
        assert bad.injected["cat", "5xx"] >= rules.faults
        assert good.injected == {("cat", GOOD): 20}


def test_a_grader_endpoint_has_a_rate_limit_too() -> None:
    async def main(server: FaultServer) -> float:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = GraderConfig(type="endpoint", url=server.url("grade"), rate_limit=20)
            grader = grader_of(config, outbound)
            trace = Trace(id="trace_1", task_id="t1", candidate_id="c", attempt=0, seed=0)
            start_s = time.monotonic()
            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(grader.grade, task(1), trace)
            return time.monotonic() - start_s

    with fault_server(rate=0.0) as server:
        assert anyio.run(main, server) >= 6 / 20 - 0.01


def test_requests_are_signed_with_the_secret_and_it_is_never_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOL_SECRET", "hush-hush")

    async def main(server: FaultServer) -> None:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = ToolConfig(name="cat", server_url=server.url("cat"), secret="${TOOL_SECRET}")
            await http_tools([config], outbound)["cat"].call(CALL, CONTEXT)

    with fault_server(rate=0.0, keep_bodies=True) as server:
        anyio.run(main, server)
    [(_, headers, body)] = server.bodies
    stamp = headers["x-learnloop-timestamp"]
    want = hmac.new(b"hush-hush", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["x-learnloop-signature"] == f"sha256={want}"
    assert abs(int(stamp) - time.time()) < 30
    assert "hush-hush" not in json.dumps([headers, body.decode()])


def test_a_clock_stands_still_while_it_is_paused_and_runs_out_otherwise() -> None:
    async def main() -> None:
        clock = Clock(0.4)
        with clock.running():
            with clock.pausing(), clock.pausing():
                await anyio.sleep(0.5)
            assert clock.spent_s < 0.4
            await anyio.sleep(30)
        assert clock.ran_out

    anyio.run(main)
