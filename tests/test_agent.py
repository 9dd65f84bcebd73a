"""The agent loop: what is run, in which order it comes back, and what ends a rollout."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio
import pytest

from learnloop.agent import NO_TOOL, Episode, run_agent
from learnloop.config import AgentConfig
from learnloop.errors import ConfigError, ModelError, ToolError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, Script, ScriptedCall, ScriptedModel
from learnloop.task import Task
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.toolbox import open_toolbox
from learnloop.trace import Turn

SCHEMA = (
    '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],'
    '"additionalProperties":false}'
)
QUESTION = (Message(role="user", content="what is it"),)


class EchoTool:
    """Answers with its path after an optional wait; some paths misbehave."""

    def __init__(self, name: str = "cat", waits_s: Mapping[str, float] | None = None) -> None:
        self.schema = ToolSchema(name=name, description="", parameters_json=SCHEMA)
        self.waits_s, self.ran = waits_s or {}, list[str]()

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        path = call.arguments.split('"')[3]
        await anyio.sleep(self.waits_s.get(path, 0))
        if path == "broken":
            raise ToolError("tool cat: HTTP 500", kind="5xx")
        if path == "bug":
            raise RuntimeError("a bug in the tool")
        self.ran.append(path)
        return ToolOutput(text=f"<{path}>", is_error=path == "missing", retries=len(path) % 2)


def cat(*paths: str, name: str = "cat") -> list[ScriptedCall]:
    return [ScriptedCall(name=name, arguments={"path": p}) for p in paths]


def play(*moves: Played) -> Script:
    """Return a script that makes these moves one after the other; the last one repeats."""

    def script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        turns = sum(m.role == "assistant" for m in messages)
        return moves[min(turns, len(moves) - 1)]

    return script


def run(script: Script, limits: AgentConfig | None = None, tool: EchoTool | None = None) -> Episode:
    episode = Episode(messages=list(QUESTION))

    async def main() -> None:
        tools: dict[str, Tool] = {"cat": tool or EchoTool()}
        task = Task(id="t", split="train", group="g", messages=QUESTION, tools=())
        box = open_toolbox(task, tools, "trace_1")
        session = await ScriptedModel(script).open(
            "trace_1", QUESTION, tuple(box.schemas.values()), sampling=Sampling(), seed=0
        )
        await run_agent(session, box, limits or AgentConfig(), episode)

    try:
        anyio.run(main)
    except (ToolError, ModelError):
        episode.finish_reason += "!"
    return episode


def ran(episode: Episode) -> list[bool]:
    return [c.ran for c in episode.calls]


def outputs(episode: Episode) -> list[str]:
    return [c.output for c in episode.calls]


def test_calls_are_made_until_the_model_answers() -> None:
    episode = run(play(cat("a"), cat("b"), "12"))
    assert [m.role for m in episode.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert outputs(episode) == ["<a>", "<b>"]
    assert [c.round for c in episode.calls] == [0, 1]
    assert (episode.finish_reason, episode.answered) == ("answer", True)
    assert episode.messages[2].tool_call_id == episode.calls[0].call.id


def test_calls_of_a_turn_run_at_once_and_results_stay_in_call_order() -> None:
    tool = EchoTool(waits_s={"slow": 0.1, "quick": 0.0})
    episode = run(play(cat("slow", "quick"), "12"), tool=tool)
    assert tool.ran == ["quick", "slow"]
    assert outputs(episode) == ["<slow>", "<quick>"]
    assert [m.content for m in episode.messages[2:4]] == ["<slow>", "<quick>"]
    assert {c.round for c in episode.calls} == {0}
    assert episode.calls[0].latency_s >= 0.1
    assert episode.calls[0].latency_s > episode.calls[1].latency_s


def test_duplicate_calls_of_a_turn_each_get_their_result() -> None:
    episode = run(play(cat("a", "a"), "12"))
    assert outputs(episode) == ["<a>", "<a>"]
    assert len({m.tool_call_id for m in episode.messages if m.role == "tool"}) == 2


def test_errors_and_retries_of_a_tool_are_recorded() -> None:
    (record,) = run(play(cat("missing"), "12")).calls
    assert (record.is_error, record.retries) == (True, 1)


def test_an_unknown_tool_is_answered_with_the_names_there_are() -> None:
    episode = run(play(cat("a", name="dog"), "12"))
    assert outputs(episode) == ["error: no tool 'dog'; tools: cat"]
    assert episode.calls[0].is_error
    assert ran(episode) == [False]
    assert episode.finish_reason == "answer"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"path": ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"path": NaN}', "not valid JSON"),
        ('["a"]', "must be a JSON object"),
        ("", "not valid JSON"),
        ('{"path": 1}', "invalid arguments at path: 1 is not of type 'string'"),
        ('{"file": "a"}', "invalid arguments"),
    ],
)
def test_malformed_arguments_are_shown_to_the_model_and_never_reach_the_tool(
    arguments: str, words: str
) -> None:
    call = ToolCall(id="c1", name="cat", arguments=arguments)
    tool = EchoTool()
    asked = Turn(text="", tool_calls=(call,), finish_reason="tool_calls", tokens_out=1)
    episode = run(play(asked, "12"), tool=tool)
    (record,) = episode.calls
    assert words in record.output
    assert (record.is_error, record.ran) == (True, False)
    assert len(record.output) <= 300
    assert (tool.ran, episode.finish_reason) == ([], "answer")


def test_text_that_was_meant_as_a_call_is_answered_and_recorded() -> None:
    broken = Turn(text="cat(a", malformed="cat(a", tokens_out=2)
    episode = run(play(broken, cat("a"), "12"))
    assert episode.messages[2].role == "user"
    assert "not a valid tool call" in episode.messages[2].content
    first, second = episode.calls
    assert (first.call.name, first.call.arguments, first.is_error) == (NO_TOOL, "cat(a", True)
    assert second.output == "<a>"
    assert ran(episode) == [False, True]
    assert (episode.finish_reason, episode.answered) == ("answer", True)


def test_malformed_text_forever_ends_with_the_call_budget_and_without_an_answer() -> None:
    broken = Turn(text="cat(a", malformed="cat(a", tokens_out=2)
    episode = run(play(broken), AgentConfig(max_calls=3))
    assert (len(episode.calls), episode.finish_reason, episode.answered) == (3, "calls", False)


def test_the_last_turn_after_the_call_budget_has_no_tools() -> None:
    def script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        return cat("a") if tools else "12"

    episode = run(script, AgentConfig(max_calls=3))
    assert outputs(episode) == ["<a>"] * 3
    assert (episode.finish_reason, episode.answered) == ("calls", True)
    assert episode.turns[-1].text == "12"


def test_a_model_that_keeps_calling_when_it_may_not_gives_no_answer() -> None:
    episode = run(play(cat("a")), AgentConfig(max_calls=2))
    assert outputs(episode) == ["<a>"] * 2
    assert (episode.finish_reason, episode.answered) == ("calls", False)


def test_without_a_last_turn_the_rollout_ends_at_the_limit() -> None:
    episode = run(play(cat("a")), AgentConfig(max_calls=2, at_call_limit="end"))
    assert (len(episode.turns), episode.finish_reason, episode.answered) == (2, "calls", False)
    assert episode.messages[-1].role == "tool"


def test_calls_beyond_the_budget_of_a_turn_are_refused_in_words() -> None:
    tool = EchoTool()
    episode = run(play(cat("a", "b", "c"), "12"), AgentConfig(max_calls=2), tool)
    assert sorted(tool.ran) == ["a", "b"]
    assert outputs(episode) == ["<a>", "<b>", "error: not run: only 2 more may be made"]
    assert episode.calls[2].is_error
    assert ran(episode) == [True, True, False]
    assert episode.finish_reason == "calls"


def test_parallel_calls_are_one_round() -> None:
    episode = run(play(cat("a", "b"), cat("c")), AgentConfig(max_rounds=2))
    assert outputs(episode) == ["<a>", "<b>", "<c>"]
    assert episode.finish_reason == "rounds"


def test_only_the_first_call_is_made_when_parallel_calls_are_off() -> None:
    tool = EchoTool()
    episode = run(play(cat("a", "b"), cat("c"), "12"), AgentConfig(parallel_calls=False), tool)
    assert tool.ran == ["a", "c"]
    assert outputs(episode)[1] == "error: not run: one call a turn is allowed"
    assert episode.calls_spent == 2


def test_a_limit_of_zero_means_none_at_all() -> None:
    assert run(play("12"), AgentConfig(max_calls=0)).finish_reason == "calls"
    assert run(play(cat("a")), AgentConfig(max_calls=0)).calls == []
    episode = run(play("12"), AgentConfig(max_tokens_total=0))
    assert (episode.turns, episode.finish_reason) == ([], "tokens")


def test_tokens_end_a_rollout_that_still_wants_tools_but_not_one_that_answers() -> None:
    tool = EchoTool()
    talk = Turn(text="", tool_calls=(ToolCall(id="c", name="cat", arguments="{}"),), tokens_out=60)
    episode = run(play(talk), AgentConfig(max_tokens_total=100), tool)
    assert (len(episode.turns), episode.finish_reason, episode.answered) == (2, "tokens", False)
    long_answer = Turn(text="12", tokens_out=200)
    episode = run(play(long_answer), AgentConfig(max_tokens_total=100))
    assert (episode.finish_reason, episode.answered) == ("answer", True)


def test_an_answer_that_is_cut_off_is_none() -> None:
    for reason in ("length", "context"):
        cut = Turn(text="12", finish_reason=reason, tokens_out=1)
        episode = run(play(cut))
        assert (episode.finish_reason, episode.answered) == (reason, False)


def test_a_full_context_ends_the_rollout_even_in_the_middle_of_calls() -> None:
    call = ToolCall(id="c", name="cat", arguments='{"path": "a"}')
    full = Turn(text="", tool_calls=(call,), finish_reason="context", tokens_out=1)
    episode = run(play(full))
    assert (episode.finish_reason, episode.calls) == ("context", [])


def test_waiting_for_the_model_is_not_the_agents_fault() -> None:
    episode = Episode(messages=list(QUESTION))

    async def main() -> None:
        task = Task(id="t", split="train", group="g", messages=QUESTION, tools=())
        box = open_toolbox(task, {}, "trace_1")
        model = ScriptedModel(play("12"), latency_s=30)
        session = await model.open("trace_1", QUESTION, (), sampling=Sampling(), seed=0)
        await run_agent(session, box, AgentConfig(max_wall_s=0.05), episode)

    with pytest.raises(ModelError, match=r"no turn within 0\.05 s") as caught:
        anyio.run(main)
    assert caught.value.kind == "wall_time"
    assert (episode.finish_reason, episode.answered) == ("wall_time", False)


def test_waiting_for_a_tool_is_not_the_agents_fault() -> None:
    tool = EchoTool(waits_s={"slow": 30})
    episode = run(play(cat("slow")), AgentConfig(max_wall_s=0.05), tool)
    assert episode.finish_reason == "wall_time!"


def test_a_tool_fault_ends_the_rollout_at_once_and_keeps_what_was_finished() -> None:
    tool = EchoTool(waits_s={"slow": 30, "broken": 0.05})
    episode = run(play(cat("a", "broken", "slow")), tool=tool)
    assert episode.finish_reason == "!"
    assert outputs(episode) == ["<a>"]


def test_a_call_that_is_cancelled_from_inside_the_tool_is_a_fault_and_never_graded() -> None:
    class Shared(EchoTool):
        async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
            if "shared" in call.arguments:
                raise asyncio.CancelledError  # as of a task that another rollout waited for too
            return await super().call(call, context)

    episode = run(play(cat("a", "shared"), "Answer: 1"), tool=Shared())
    assert episode.finish_reason == "!"  # the rollout is lost, not graded
    assert not episode.answered


def test_a_bug_in_a_tool_is_a_tool_fault() -> None:
    async def main() -> None:
        tools: dict[str, Tool] = {"cat": EchoTool()}
        task = Task(id="t", split="train", group="g", messages=QUESTION, tools=())
        call = ToolCall(id="c", name="cat", arguments='{"path": "bug"}')
        await open_toolbox(task, tools, "trace_1").run(call, 0)

    with pytest.raises(ToolError, match="a bug in the tool") as caught:
        anyio.run(main)
    assert caught.value.kind == "RuntimeError"


def test_a_row_offers_only_the_tools_it_names() -> None:
    tools: dict[str, Tool] = {name: EchoTool(name) for name in ("cat", "dog")}
    task = Task(id="t", split="train", group="g", messages=QUESTION, tools=(tools["dog"].schema,))
    assert list(open_toolbox(task, tools, "x").schemas) == ["dog"]
    assert list(open_toolbox(replace(task, tools=()), tools, "x").schemas) == ["cat", "dog"]


def test_a_row_that_names_a_tool_nobody_serves_stops_the_run() -> None:
    schema = ToolSchema(name="Cat", description="", parameters_json="{}")
    task = Task(id="t", split="train", group="g", messages=QUESTION, tools=(schema,))
    with pytest.raises(ConfigError, match=r"'Cat'.*match exactly"):
        open_toolbox(task, {"cat": EchoTool()}, "x")


def test_a_schema_that_is_none_is_the_users_mistake() -> None:
    async def main() -> None:
        schema = ToolSchema(name="cat", description="", parameters_json='{"type": "objekt"}')
        task = Task(id="t", split="train", group="g", messages=QUESTION, tools=(schema,))
        call = ToolCall(id="c", name="cat", arguments="{}")
        await open_toolbox(task, {"cat": EchoTool()}, "x").run(call, 0)

    with pytest.raises(ConfigError, match="tool cat"):
        anyio.run(main)


def test_rounds_are_counted_by_turn() -> None:
    episode = run(play(cat("a"), cat("b", "c"), cat("d"), "12"))
    assert [len(list(g)) for _, g in itertools.groupby(c.round for c in episode.calls)] == [1, 2, 1]
