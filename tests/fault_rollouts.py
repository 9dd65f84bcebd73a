"""Rollouts against the fault server, and whether each ended as the server's log says it must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from tests.fault_server import GOOD, GRADER_KINDS, SHOWN, TOOL_KINDS, FaultServer

from learnloop.config import AgentConfig, GraderConfig, ToolConfig
from learnloop.graders import grader_of
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import BreakerRules, Outbound, Retry
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import run_many
from learnloop.task import Task
from learnloop.tools import http_tools
from learnloop.trace import Score, Trace

FAST = Retry(retries=3, first_delay_s=0.001, max_delay_s=0.002)
PATIENT = BreakerRules(faults=10**9)


def planned(number: int, **item: Any) -> Planned:
    task = Task(
        id=f"t{number}",
        split="train",
        group=f"g{number}",
        messages=(Message(role="user", content=str(number)),),
        tools=(),
        item={"answer": 1000 + number, **item},
    )
    return Planned(task=task, candidate_id="c", attempt=0, seed=number)


def ask_until_told(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    """Call until there is a number; one rollout in five then answers wrongly on purpose."""
    last = messages[-1].content
    if messages[-1].role == "tool" and last.isdecimal():
        return "Answer: 0" if seed % 5 == 0 else f"Answer: {last}"
    return [ScriptedCall(name="vault" if seed % 50 == 7 else "cat", arguments={})]


@dataclass(frozen=True, kw_only=True)
class Made:
    """What came of rollouts against a fault server."""

    last: list[Trace]
    all: list[Trace]
    faults: Counter[str]


def make(server: FaultServer, count: int, *, timeout_s: float, at_once: int = 64) -> Made:
    """Make rollouts with two tools and a grader of the server; `vault` is behind TLS it lacks."""

    async def main() -> Made:
        seen: list[Trace] = []
        async with Outbound(allow_private=True, retry=FAST, breaker=PATIENT) as outbound:
            tools = http_tools(
                [
                    ToolConfig(name="cat", server_url=server.url("cat"), timeout_s=timeout_s),
                    ToolConfig(
                        name="vault", server_url=server.url("vault", "https"), timeout_s=timeout_s
                    ),
                ],
                outbound,
            )
            grader = grader_of(
                GraderConfig(type="endpoint", url=server.url("grade"), timeout_s=timeout_s),
                outbound,
            )
            setup = Setup(
                label="run",
                model=ScriptedModel(ask_until_told),
                tools=tools,
                grader=grader,
                limits=AgentConfig(max_calls=50, max_rounds=50),
                sampling=Sampling(),
            )
            last = await run_many(
                [planned(n) for n in range(count)],
                lambda p, retry: roll_out(p, setup, retry),
                max_concurrency=at_once,
                on_trace=seen.append,
            )
            return Made(last=last, all=seen, faults=outbound.faults)

    return anyio.run(main)


def expected_end(server: FaultServer, trace: Trace) -> tuple[str, str, str]:
    """Return outcome, boundary and kind of failure that a trace must have, by the server's log."""
    if trace.seed % 50 == 7:
        return "infra_fault", "tool", "tls"
    tool, grader = server.log[trace.id, "cat"], server.log[trace.id, "grade"]
    in_a_row = 0
    for kind in tool:
        in_a_row = 0 if kind == GOOD or kind in SHOWN else in_a_row + 1
        if in_a_row == 4:
            return "infra_fault", "tool", TOOL_KINDS[kind]
    if grader[-1] == GOOD:
        return "graded", "", ""
    return "infra_fault", "grader", GRADER_KINDS[grader[-1]]


def judge(server: FaultServer, made: Made, count: int) -> None:
    """Compare every rollout with what the server did to it."""
    assert [t.task_id for t in made.last] == [f"t{n}" for n in range(count)]
    for trace in made.all:
        failure = trace.failure
        got = (
            (trace.outcome, failure.boundary, failure.kind) if failure else (trace.outcome, "", "")
        )
        assert got == expected_end(server, trace), trace.id
        right = Score(value=float(trace.seed % 5 != 0), correct=float(trace.seed % 5 != 0))
        assert trace.score == (None if failure else right)
        assert Counter(c.output.split(":")[0] for c in trace.calls if c.is_error) == Counter(
            "error" if kind == "huge" else "payload too large"
            for kind in server.log[trace.id, "cat"]
            if kind in SHOWN
        )
    for endpoint, path, kinds in (
        ("tool cat", "cat", TOOL_KINDS),
        ("grader", "grade", GRADER_KINDS),
    ):
        injected = Counter[str]()
        for kind, name in kinds.items():
            # A tool's 4xx is no fault: the model was told, which the traces above have shown.
            if not (path == "cat" and kind == "413"):
                injected[name] += server.injected[path, kind]
        found = {k.rpartition("/")[2]: n for k, n in made.faults.items() if k.startswith(endpoint)}
        assert found == dict(+injected)
