"""The error policy: what the table says is what happens, and nothing is lost or scored wrongly."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.fault_rollouts import FAST, ask_until_told, judge, make, planned
from tests.fault_server import GOOD, GRADER_KINDS, TOOL_KINDS, FaultServer, fault_server

from learnloop.config import AgentConfig, GraderConfig, ToolConfig
from learnloop.errors import ModelError, SandboxError
from learnloop.faults import RULES, Rule, faults_page, rule_of
from learnloop.grader import Grader
from learnloop.graders import grader_of
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Model, Sampling
from learnloop.models.scripted import Played, Script, ScriptedCall, ScriptedModel
from learnloop.outbound import Outbound
from learnloop.rollout import Setup, roll_out
from learnloop.runner import run_many
from learnloop.task import Task
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools import http_tools
from learnloop.trace import Score, Trace, Turn


def test_hundreds_of_rollouts_against_faults_of_every_kind_are_neither_lost_nor_scored_wrongly():
    with fault_server(seed=1, rate=0.3) as server:
        made = make(server, 300, timeout_s=8.0, at_once=48)
        judge(server, made, 300)
    assert {kind for path, kind in server.injected if path == "cat"} == {GOOD, *TOOL_KINDS}
    assert {kind for path, kind in server.injected if path == "grade"} == {GOOD, *GRADER_KINDS}
    lost = [t for t in made.last if t.outcome == "infra_fault"]
    assert {t.failure.kind for t in lost if t.failure} >= {"tls"}
    assert len(made.all) > len(made.last)


# --- row by row ----------------------------------------------------------------------------------

INJECTED = {"timeout": "drip", "connect": "reset", "bad_reply": "html", "too_large": "huge"}
"""By kind of fault: what the server does, where that has another name."""


def roll(
    server: FaultServer,
    model: Model,
    *,
    grader: Grader | None = None,
    limits: AgentConfig | None = None,
    tool_url: str = "",
    timeout_s: float = 10.0,
    **item: Any,
) -> tuple[list[Trace], Counter[str]]:
    """Make one rollout against the server, tried again as the runner does."""

    async def main() -> tuple[list[Trace], Counter[str]]:
        seen: list[Trace] = []
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            url = tool_url or server.url("cat")
            configs = [ToolConfig(name="cat", server_url=url, timeout_s=timeout_s)]
            grade = GraderConfig(type="endpoint", url=server.url("grade"), timeout_s=timeout_s)
            setup = Setup(
                label="run",
                model=model,
                tools=http_tools(configs, outbound),
                grader=grader or grader_of(grade, outbound),
                limits=limits or AgentConfig(),
                sampling=Sampling(),
            )
            await run_many(
                [planned(1, **item)],
                lambda p, retry: roll_out(p, setup, retry),
                max_concurrency=1,
                on_trace=seen.append,
            )
            return seen, outbound.faults

    return anyio.run(main)


def lost_as_the_rule_says(rule: Rule, seen: Sequence[Trace]) -> None:
    assert len(seen) == (2 if rule.repeats_rollout else 1)
    for trace in seen:
        assert trace.failure is not None
        assert (trace.failure.boundary, trace.outcome) == (rule.source, "infra_fault")
        assert rule_of(trace.failure.boundary, trace.failure.kind) == rule
        assert trace.score is None


FROM_SERVERS = [
    r
    for r in RULES
    if r.source in {"tool", "grader"}
    and r.kind
    in {"timeout", "connect", "redirect", "5xx", "429", "bad_reply", "call_id", "4xx", "too_large"}
]


@pytest.mark.parametrize("rule", FROM_SERVERS, ids=lambda r: f"{r.source}-{r.kind}")
def test_what_a_server_does_has_the_consequences_of_its_row(rule: Rule) -> None:
    kind = INJECTED.get(rule.kind, rule.kind)
    path = "cat" if rule.source == "tool" else "grade"
    # Once the model was told, the tool works.
    answers = [kind, GOOD] if rule.shown else [kind]
    script = {"cat": [GOOD], "grade": [GOOD], path: answers}
    with fault_server(script=script) as server:
        short = 0.5 if rule.kind == "timeout" else 10.0
        seen, _ = roll(server, ScriptedModel(ask_until_told), timeout_s=short)
    if rule.shown:
        assert [t.outcome for t in seen] == [rule.outcome] == ["graded"]
        assert [c.is_error for c in seen[0].calls] == [True, False]
        assert seen[0].messages[2].content == seen[0].calls[0].output
        return
    lost_as_the_rule_says(rule, seen)
    assert server.injected[path, kind] == len(seen) * (4 if rule.repeats_request else 1)


@pytest.mark.parametrize("source", ["tool", "grader"])
def test_tls_and_forbidden_addresses_have_the_consequences_of_their_rows(source: str) -> None:
    with fault_server(rate=0.0) as server:
        if source == "tool":
            url = server.url("cat", "https")
            seen, counted = roll(server, ScriptedModel(ask_until_told), tool_url=url)
            lost_as_the_rule_says(rule_of("tool", "tls"), seen)
            assert counted == {"tool cat/tls": 8}

    async def main(url: str) -> Trace:
        async with Outbound(retry=FAST) as outbound:
            tools = http_tools([ToolConfig(name="cat", server_url=url)], outbound)
            setup = Setup(
                label="run",
                model=ScriptedModel(ask_until_told),
                tools=tools,
                grader=NumericGrader(),
                limits=AgentConfig(),
                sampling=Sampling(),
            )
            if source == "grader":
                config = GraderConfig(type="endpoint", url=url)
                answering = ScriptedModel(lambda messages, tools, seed: "12")
                setup = replace(setup, model=answering, grader=grader_of(config, outbound))
            return await roll_out(planned(1), setup)

    trace = anyio.run(main, "http://localhost:9/")
    assert trace.failure is not None
    assert (trace.failure.boundary, trace.failure.kind) == (source, "refused_address")


def failing(error: Exception) -> ScriptedModel:
    def script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        raise error

    return ScriptedModel(script)


class OddGrader:
    """Does what a test wants."""

    version = "odd"

    def __init__(self, do: Callable[[], Score]) -> None:
        self._do = do

    async def grade(self, task: Task, trace: Trace) -> Score:
        return self._do()


def _raise() -> Score:
    raise ZeroDivisionError("a mistake in a grader")


def test_faults_of_model_grader_and_code_have_the_consequences_of_their_rows() -> None:
    def answer(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        return "1001"

    answering = ScriptedModel(answer)
    slow = ScriptedModel(answer, latency_s=30)
    hurried = AgentConfig(max_wall_s=0.05)
    bad_score = OddGrader(lambda: Score(value=7, correct=1))
    with fault_server(rate=0.0) as server:
        cases: list[tuple[Rule, list[Trace]]] = [
            (rule_of("model", "wall_time"), roll(server, slow, limits=hurried)[0]),
            (rule_of("model", "died"), roll(server, failing(ModelError("x", kind="died")))[0]),
            (rule_of("model", "other"), roll(server, failing(OSError("gone")))[0]),
            (rule_of("sandbox", "other"), roll(server, failing(SandboxError("x")))[0]),
            (rule_of("grader", "bad_score"), roll(server, answering, grader=bad_score)[0]),
            (rule_of("grader", "other"), roll(server, answering, grader=OddGrader(_raise))[0]),
            (
                rule_of("grader", "bad_reference"),
                roll(server, answering, grader=NumericGrader(reference="absent"))[0],
            ),
            (
                rule_of("grader", "bad_tolerance"),
                roll(server, answering, grader=NumericGrader(), abs_tol="wide")[0],
            ),
        ]
    with fault_server(script={"cat": ["drip"]}) as server:
        asking = ScriptedModel(ask_until_told)
        limits = AgentConfig(max_wall_s=0.1)
        cases.append((rule_of("tool", "wall_time"), roll(server, asking, limits=limits)[0]))
    for rule, seen in cases:
        lost_as_the_rule_says(rule, seen)


def a_turn(text: str = "", *, tokens: int = 1, calls: int = 0, malformed: str = "") -> Turn:
    made = tuple(ToolCall(id=f"call_{i}", name="cat", arguments="{}") for i in range(calls))
    return Turn(text=text, tool_calls=made, malformed=malformed, tokens_out=tokens)


def first(turn: Played, then: str = "1001") -> Script:
    def script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        return then if messages[-1].role == "tool" or len(messages) > 1 else turn

    return script


TOLD: Mapping[str, Played] = {
    "malformed": a_turn(malformed="<tool>cat("),
    "bad_arguments": Turn(
        text="", tool_calls=(ToolCall(id="call_1", name="cat", arguments="{"),), tokens_out=1
    ),
    "unknown_tool": [ScriptedCall(name="dog", arguments={})],
    "refused_call": a_turn(calls=11),
}
OVER: Mapping[str, tuple[Played, AgentConfig]] = {
    "calls": (a_turn(calls=1), AgentConfig(max_calls=0)),
    "rounds": (a_turn(calls=1), AgentConfig(max_rounds=0)),
    "turns": (a_turn(calls=1), AgentConfig(max_turns=0)),
    "tokens": (a_turn(calls=1, tokens=99), AgentConfig(max_tokens_total=50)),
    "wall_time": (a_turn(calls=1), AgentConfig(max_wall_s=1.0, at_wall_limit="last_turn")),
    "length": (Turn(text="1", finish_reason="length", tokens_out=1), AgentConfig()),
    "context": (Turn(text="1", finish_reason="context", tokens_out=1), AgentConfig()),
}


@pytest.mark.parametrize("kind", TOLD)
def test_what_the_model_is_told_of_is_survived_and_graded(kind: str) -> None:
    rule = rule_of("agent", kind)
    with fault_server(rate=0.0) as server:
        seen, _ = roll(server, ScriptedModel(first(TOLD[kind])))
    assert [t.outcome for t in seen] == [rule.outcome] == ["graded"]
    assert seen[0].score is not None
    assert seen[0].score.value == 1.0
    told = [m for m in seen[0].messages if m.content.startswith("error: ")]
    assert bool(told) == rule.shown


@pytest.mark.parametrize("kind", OVER)
def test_a_limit_of_the_agent_is_named_and_graded(kind: str) -> None:
    rule = rule_of("agent", kind)
    turn, limits = OVER[kind]

    def always(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        if kind == "wall_time" and len(messages) == 1:
            # The first turn alone takes the whole time; the last one has as much again.
            time.sleep(1.05)
        return turn

    with fault_server(rate=0.0) as server:
        seen, _ = roll(server, ScriptedModel(always), limits=limits)
    assert [(t.outcome, t.finish_reason) for t in seen] == [(rule.outcome, kind)]
    assert seen[0].score is not None


def test_every_row_is_met_by_a_test_of_this_file() -> None:
    met = {(r.source, r.kind) for r in FROM_SERVERS}
    met |= {("agent", kind) for kind in (*TOLD, *OVER)}
    met |= {(s, k) for s in ("tool", "grader") for k in ("tls", "refused_address", "other")}
    met |= {("model", k) for k in ("wall_time", "died", "other")}
    met |= {("grader", "bad_score"), ("grader", "bad_reference"), ("grader", "bad_tolerance")}
    met |= {("sandbox", "other"), ("runner", "other"), ("tool", "wall_time")}
    assert {(r.source, r.kind) for r in RULES} == met


class BrokenTool:
    """A tool whose code is wrong."""

    schema = ToolSchema(name="cat", description="", parameters_json="{}")

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        raise ZeroDivisionError("tool")


class OddTools(dict[str, Tool]):
    """Tools that the runner cannot even list."""

    def values(self) -> Any:
        raise ZeroDivisionError("runner")


@pytest.mark.parametrize(
    ("source", "tools"), [("tool", {"cat": BrokenTool()}), ("runner", OddTools())]
)
def test_mistakes_in_code_of_tools_and_of_our_own_have_the_consequences_of_their_rows(
    source: str, tools: Mapping[str, Tool]
) -> None:
    async def main() -> list[Trace]:
        seen: list[Trace] = []
        setup = Setup(
            label="run",
            model=ScriptedModel(ask_until_told),
            tools=tools,
            grader=NumericGrader(),
            limits=AgentConfig(),
            sampling=Sampling(),
        )
        await run_many(
            [planned(1)],
            lambda p, retry: roll_out(p, setup, retry),
            max_concurrency=1,
            on_trace=seen.append,
        )
        return seen

    rule = rule_of("tool" if source == "tool" else "runner", "other")
    lost_as_the_rule_says(rule, anyio.run(main))


def test_the_page_of_the_documentation_says_what_the_table_says() -> None:
    page = Path(__file__).parent.parent / "docs" / "faults.md"
    assert page.read_text(encoding="utf-8") == faults_page()
    assert faults_page().count("\n| ") == len(RULES) + 1
