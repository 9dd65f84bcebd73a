"""The scripted model: turns from a function, the same for the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence

import anyio
import pytest

from learnloop.errors import ModelError
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel, ScriptedSession
from learnloop.trace import Turn

TOOLS = (ToolSchema(name="cat", description="", parameters_json="{}"),)
QUESTION = (Message(role="user", content="what is it"),)


def script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    if messages[-1].role == "user" and tools:
        return [ScriptedCall(name=tools[0].name, arguments={"n": i + seed}) for i in range(2)]
    return f"{len(messages)} messages, seed {seed}"


async def _open(model: ScriptedModel, seed: int = 7, name: str = "trace_1") -> ScriptedSession:
    return await model.open(name, QUESTION, TOOLS, sampling=Sampling(), seed=seed)


async def _two_turns(model: ScriptedModel, name: str = "trace_1") -> tuple[Turn, Turn]:
    session = await _open(model, name=name)
    first = await session.turn()
    results = [
        Message(role="tool", content="x", tool_call_id=c.id, name=c.name) for c in first.tool_calls
    ]
    await session.append(results)
    return first, await session.turn()


def test_calls_and_answers_come_from_the_script() -> None:
    first, second = anyio.run(_two_turns, ScriptedModel(script))
    assert [json.loads(c.arguments) for c in first.tool_calls] == [{"n": 7}, {"n": 8}]
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert second.text == "4 messages, seed 7"
    assert (second.tokens_in, second.tokens_out) == (5, 4)


def test_the_same_rollout_is_played_the_same_and_another_has_other_call_ids() -> None:
    one, again, other = (
        anyio.run(_two_turns, ScriptedModel(script), name) for name in ("a", "a", "b")
    )
    assert one == again
    ids = {c.id for turn in (one[0], other[0]) for c in turn.tool_calls}
    assert len(ids) == 4


def test_a_script_sees_no_tools_when_they_are_not_allowed() -> None:
    async def forced() -> Turn:
        return await (await _open(ScriptedModel(script))).turn(tools_allowed=False)

    assert anyio.run(forced).text == "1 messages, seed 7"


def test_a_whole_turn_is_played_as_it_is() -> None:
    cut = Turn(text="hal", finish_reason="length", tokens_out=9)

    async def play() -> Turn:
        return await (await _open(ScriptedModel(lambda messages, tools, seed: cut))).turn()

    assert anyio.run(play) == cut


def test_sessions_are_counted_and_closing_twice_counts_once() -> None:
    async def run() -> list[int]:
        model = ScriptedModel(script)
        first, second = await _open(model), await _open(model)
        counts = [model.open_sessions]
        await first.close()
        await first.close()
        counts.append(model.open_sessions)
        await second.close()
        with pytest.raises(ModelError):
            await second.turn()
        return [*counts, model.open_sessions]

    assert anyio.run(run) == [2, 1, 0]
