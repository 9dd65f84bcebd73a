"""The error policy: what the table says is what happens, and nothing is lost or scored wrongly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.fault_server import GOOD, GRADER_KINDS, SHOWN, TOOL_KINDS, FaultServer, fault_server

from learnloop.config import AgentConfig, GraderConfig, ToolConfig
from learnloop.errors import ModelError, SandboxError
from learnloop.faults import RULES, Rule, faults_page, rule_of
from learnloop.grader import Grader
from learnloop.graders import grader_of
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Model, Sampling
from learnloop.models.scripted import Played, Script, ScriptedCall, ScriptedModel
from learnloop.outbound import BreakerRules, Outbound, Retry
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import run_many
from learnloop.task import Task
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools import http_tools
from learnloop.trace import Score, Trace, Turn

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


def test_hundreds_of_rollouts_against_faults_of_every_kind_are_neither_lost_nor_scored_wrongly():
    with fault_server(seed=1, rate=0.3) as server:
        made = make(server, 300, timeout_s=2.5)
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
    **item: Any,
) -> tuple[list[Trace], Counter[str]]:
    """Make one rollout against the server, tried again as the runner does."""

    async def main() -> tuple[list[Trace], Counter[str]]:
        seen: list[Trace] = []
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            url = tool_url or server.url("cat")
            configs = [ToolConfig(name="cat", server_url=url, timeout_s=0.2)]
            grade = GraderConfig(type="endpoint", url=server.url("grade"), timeout_s=0.2)
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
        source = "grader" if rule.source == "grader" else rule.source
        assert (trace.failure.boundary, trace.outcome) == (source, "infra_fault")
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
    with fault_server(script=script, drip_s=1.0) as server:
        seen, _ = roll(server, ScriptedModel(ask_until_told))
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
    "wall_time": (a_turn(calls=1), AgentConfig(max_wall_s=0.3, at_wall_limit="last_turn")),
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
        return turn

    with fault_server(rate=0.0) as server:
        model = ScriptedModel(always, latency_s=0.4 if kind == "wall_time" else 0)
        seen, _ = roll(server, model, limits=replace(limits, max_calls=min(limits.max_calls, 1)))
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
