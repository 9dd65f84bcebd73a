"""A rollout always yields a trace, and what is not the agent's fault never becomes a zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import anyio
import pytest
from tests.loopback import Answer, Seen, serving

from learnloop.config import AgentConfig, GraderConfig, ToolConfig
from learnloop.errors import ConfigError, ModelError
from learnloop.grader import Grader
from learnloop.graders import grader_of
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import Outbound, Retry
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.task import Task
from learnloop.tool import Tool
from learnloop.tools import http_tools
from learnloop.trace import Score, Trace, Turn, trace_id

FAST = Retry(retries=1, first_delay_s=0.001)
TASK = Task(
    id="t1",
    split="train",
    group="g",
    messages=(Message(role="user", content="how much"),),
    tools=(),
    item={"answer": 12},
)
PLANNED = Planned(task=TASK, candidate_id="cand_1", attempt=2, seed=5)


def ask_then_answer(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    if messages[-1].role == "tool":
        return f"Answer: {messages[-1].content}"
    return [ScriptedCall(name="cat", arguments={})]


def answering(text: str) -> ScriptedModel:
    return ScriptedModel(lambda messages, tools, seed: text)


def setup_of(
    model: ScriptedModel,
    *,
    grader: Grader | None = None,
    tools: Mapping[str, Tool] | None = None,
    limits: AgentConfig | None = None,
) -> Setup:
    return Setup(
        label="run_1",
        model=model,
        tools=tools or {},
        grader=grader or NumericGrader(),
        limits=limits or AgentConfig(),
        sampling=Sampling(),
    )


def roll(setup: Setup, retry: int = 0) -> Trace:
    return anyio.run(roll_out, PLANNED, setup, retry)


def roll_with_server(decide: Callable[[Seen], Answer], model: ScriptedModel) -> Trace:
    """Roll out with a tool and a grader that are real servers."""

    async def main(url: str) -> Trace:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            tools = http_tools([ToolConfig(name="cat", server_url=f"{url}/cat")], outbound)
            config = GraderConfig(type="endpoint", url=f"{url}/grade")
            grader = grader_of(config, outbound)
            return await roll_out(PLANNED, setup_of(model, grader=grader, tools=tools))

    with serving(decide) as server:
        return anyio.run(main, server.url)


def healthy(seen: Seen) -> Answer:
    if seen.path.endswith("/grade"):
        return Answer(body={"score": float("12" in seen.data["sample"]["output_text"])})
    return Answer(body={"call_id": seen.data["call_id"], "output": "12"})


def test_a_rollout_is_graded_and_says_what_it_was() -> None:
    trace = roll_with_server(healthy, model := ScriptedModel(ask_then_answer, latency_s=0.02))
    assert (trace.outcome, trace.finish_reason, trace.failure) == ("graded", "answer", None)
    assert trace.score == Score(value=1.0, correct=1.0)
    assert (trace.task_id, trace.candidate_id, trace.attempt, trace.seed) == ("t1", "cand_1", 2, 5)
    assert trace.id == trace_id("run_1", "cand_1", "t1", 2)
    assert [m.role for m in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert (len(trace.turns), len(trace.calls)) == (2, 1)
    assert trace.latency_s >= 0.04
    assert model.open_sessions == 0


def test_a_tool_5xx_discards_the_rollout_and_keeps_its_conversation() -> None:
    def broken_tool(seen: Seen) -> Answer:
        return healthy(seen) if seen.path.endswith("/grade") else Answer(status=500)

    trace = roll_with_server(broken_tool, model := ScriptedModel(ask_then_answer))
    assert (trace.outcome, trace.finish_reason, trace.score) == ("infra_fault", "infra", None)
    assert trace.failure
    assert (trace.failure.boundary, trace.failure.kind) == ("tool", "5xx")
    assert "tool cat" in trace.failure.message
    assert len(trace.turns) == 1
    assert model.open_sessions == 0


def test_a_grader_outage_is_no_score_and_keeps_the_answer() -> None:
    def broken_grader(seen: Seen) -> Answer:
        return Answer(status=503) if seen.path.endswith("/grade") else healthy(seen)

    trace = roll_with_server(broken_grader, ScriptedModel(ask_then_answer))
    assert (trace.outcome, trace.finish_reason, trace.score) == ("infra_fault", "answer", None)
    assert trace.failure
    assert (trace.failure.boundary, trace.failure.kind) == ("grader", "5xx")
    assert trace.answer == "Answer: 12"


def test_a_model_that_fails_is_no_score() -> None:
    def fail(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        raise ModelError("policy process died", kind="died")

    trace = roll(setup_of(model := ScriptedModel(fail)))
    assert (trace.outcome, trace.score) == ("infra_fault", None)
    assert trace.failure
    assert (trace.failure.boundary, trace.failure.kind) == ("model", "died")
    assert model.open_sessions == 0


def test_a_bug_in_the_model_is_recorded_and_does_not_escape() -> None:
    def bug(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        raise ZeroDivisionError("oops")

    trace = roll(setup_of(ScriptedModel(bug)))
    assert trace.failure
    assert (trace.failure.boundary, trace.failure.kind) == ("model", "ZeroDivisionError")


def test_an_agent_that_breaks_the_rules_is_graded_all_the_same() -> None:
    def never_answer(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        return [ScriptedCall(name="dog", arguments={})]

    trace = roll(setup_of(ScriptedModel(never_answer), limits=AgentConfig(max_calls=2)))
    assert (trace.outcome, trace.finish_reason) == ("agent_fault", "calls")
    assert trace.score
    assert trace.score.value == 0.0


def wanting(text: str, *calls: ToolCall, malformed: str = "") -> ScriptedModel:
    """Return a model that asks for tools whether it may or not."""
    reason = "tool_calls" if calls else "stop"
    turn = Turn(text=text, tool_calls=calls, malformed=malformed, finish_reason=reason)
    return ScriptedModel(lambda messages, tools, seed: turn)


@pytest.mark.parametrize(
    "model",
    [
        wanting("@cat plant/12", ToolCall(id="c", name="cat", arguments='{"path": "plant/12"}')),
        wanting("@ 12", malformed="@ 12"),
    ],
)
def test_a_call_in_the_last_turn_is_no_answer_whatever_numbers_it_holds(
    model: ScriptedModel,
) -> None:
    trace = roll(setup_of(model, limits=AgentConfig(max_calls=0)))
    assert (trace.outcome, trace.finish_reason, trace.calls) == ("agent_fault", "calls", ())
    assert trace.score == Score(
        value=0.0, correct=0.0, parts={"valid": 0.0}, explanation="no final answer"
    )


def test_a_model_that_hangs_is_no_score() -> None:
    model = ScriptedModel(ask_then_answer, latency_s=30)
    trace = roll(setup_of(model, limits=AgentConfig(max_wall_s=0.05)))
    assert (trace.outcome, trace.finish_reason, trace.score) == ("infra_fault", "wall_time", None)
    assert trace.failure
    assert (trace.failure.boundary, trace.failure.kind) == ("model", "wall_time")
    assert model.open_sessions == 0


def test_a_wrong_answer_is_a_zero_and_no_fault() -> None:
    trace = roll(setup_of(answering("13")))
    assert trace.score
    assert (trace.outcome, trace.score.value) == ("graded", 0.0)


class OddGrader:
    """Returns a score that no grader may return."""

    version = "odd-1"

    def __init__(self, value: float) -> None:
        self.value = value

    async def grade(self, task: Task, trace: Trace) -> Score:
        return Score(value=self.value, correct=0.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.1, 1.1])
def test_a_score_out_of_range_is_the_graders_fault(value: float) -> None:
    trace = roll(setup_of(answering("12"), grader=OddGrader(value)))
    assert (trace.outcome, trace.score) == ("infra_fault", None)
    assert trace.failure
    assert trace.failure.kind == "bad_score"


def test_a_mistake_of_the_user_is_raised_not_recorded() -> None:
    schema = ToolSchema(name="dog", description="", parameters_json="{}")
    planned = replace(PLANNED, task=replace(TASK, tools=(schema,)))
    with pytest.raises(ConfigError, match="dog"):
        anyio.run(roll_out, planned, setup_of(answering("12")))


def test_every_retry_has_an_id_of_its_own() -> None:
    setup = setup_of(answering("12"))
    assert len({roll(setup, n).id for n in range(3)}) == 3
    assert roll(setup).id != roll(replace(setup, label="run_2")).id


def test_the_system_prompt_goes_first_unless_the_row_brings_one() -> None:
    setup = replace(setup_of(answering("12")), system_prompt="Be brief.")
    assert [m.content for m in roll(setup).messages] == ["Be brief.", "how much", "12"]
    own = (Message(role="system", content="own"), *TASK.messages)
    planned = replace(PLANNED, task=replace(TASK, messages=own))
    trace = anyio.run(roll_out, planned, setup)
    assert [m.content for m in trace.messages] == ["own", "how much", "12"]


def test_a_cancelled_rollout_closes_its_session() -> None:
    model = ScriptedModel(ask_then_answer, latency_s=30)

    async def main() -> bool:
        with anyio.move_on_after(0.05) as scope:
            await roll_out(PLANNED, setup_of(model))
        return scope.cancelled_caught

    assert anyio.run(main)
    assert model.open_sessions == 0


def test_latency_leaves_grading_out() -> None:
    class SlowGrader(OddGrader):
        async def grade(self, task: Task, trace: Trace) -> Score:
            await anyio.sleep(0.6)
            return await super().grade(task, trace)

    assert roll(setup_of(answering("12"), grader=SlowGrader(1.0))).latency_s < 0.6
