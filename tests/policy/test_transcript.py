"""Transcripts: exactly the tokens that the sampler saw, and only sampled ones are trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.policy.engine import Engine
from learnloop.policy.protocols.framing import Renderer
from learnloop.policy.transcript import rebuild
from learnloop.trace import Turn

PARAMETERS = json.dumps(
    {"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}}
)
TOOLS = (ToolSchema(name="search", description="Finds.", parameters_json=PARAMETERS),)
OPENING = (
    Message(role="system", content="Answer with a number."),
    Message(role="user", content="What was the revenue of Acme in 2021?"),
)


@pytest.fixture(scope="session")
def renderer(tiny_model: Path) -> Renderer:
    return Renderer(AutoTokenizer.from_pretrained(tiny_model))


@pytest.fixture
def engine(tiny_model: Path) -> Engine:
    return Engine(tiny_model, dtype="fp32", device="cpu", max_context=400)


def converse(
    engine: Engine,
    opening: Sequence[Message],
    replies: Sequence[Sequence[Message]],
    max_tokens: int = 9,
) -> tuple[list[Message], list[Turn], list[int]]:
    """Hold a conversation; return its messages, its turns, and the tokens of its lane."""
    engine.open(
        "t",
        opening,
        TOOLS,
        {"weights": "", "seed": 5, "temperature": 1.0, "max_tokens": max_tokens},
    )
    talk = engine.conversations["t"]
    seen = list(talk.lane.prefix.tokens)
    messages, turns = list(opening), list[Turn]()
    for reply in (*replies, ()):
        seen += [*talk.feed, *engine.renderer.generation_prompt()]
        engine.turn("t", turns.append)
        while engine.busy:
            engine.step()
        seen += talk.lane.sampled
        messages.append(Message(role="assistant", content=turns[-1].text))
        messages += reply
        engine.append("t", reply)
    assert talk.lane.context == len(seen)
    engine.close("t")
    return messages, turns, [*seen, *talk.feed]


@pytest.mark.parametrize("max_tokens", [1, 9])
def test_a_rebuilt_conversation_has_the_tokens_that_the_sampler_saw(
    max_tokens: int, engine: Engine
) -> None:
    result = Message(role="tool", content="1,234 <|im_end|>", tool_call_id="call_0", name="search")
    note = Message(role="user", content="error: this is not a valid tool call")
    replies = ((result,), (result, note), (note,))
    messages, turns, seen = converse(engine, OPENING, replies, max_tokens)
    ids, sampled, logprobs = rebuild(engine.renderer, messages, turns, TOOLS)
    assert ids == seen
    assert [i for i, s in zip(ids, sampled, strict=True) if s] == [
        i for t in turns for i in t.token_ids
    ]
    assert [x for x, s in zip(logprobs, sampled, strict=True) if s] == [
        x for t in turns for x in t.logprobs
    ]
    assert not any(x for x, s in zip(logprobs, sampled, strict=True) if not s)


def test_an_injected_end_token_and_the_gap_after_it_are_not_trained(renderer: Renderer) -> None:
    end, gap = renderer.end_id, renderer.closing([renderer.end_id])
    messages = (
        *OPENING,
        Message(role="assistant", content="cut"),
        Message(role="tool", content="x", tool_call_id="c", name="search"),
        Message(role="assistant", content="whole"),
    )
    turns = (
        Turn(text="cut", token_ids=(7, 8), logprobs=(-1.0, -2.0)),
        Turn(text="whole", token_ids=(9, end), logprobs=(-3.0, -4.0)),
    )
    ids, sampled, _ = rebuild(renderer, messages, turns, ())
    at = ids.index(7)
    assert ids[at : at + 3 + len(gap)] == [7, 8, end, *gap]
    assert sampled[at : at + 3 + len(gap)] == [True, True, False, *[False] * len(gap)]
    assert ids[-2 - len(gap) :] == [9, end, *gap]
    assert sampled[-2 - len(gap) :] == [True, True, *[False] * len(gap)]
    assert sum(sampled) == 4


def test_worked_examples_in_the_prompt_are_not_trained(engine: Engine) -> None:
    opening = (
        *OPENING,
        Message(role="assistant", content="Answer: 7"),
        Message(role="user", content="And in 2020?"),
    )
    messages, turns, seen = converse(engine, opening, ())
    ids, sampled, _ = rebuild(engine.renderer, messages, turns, TOOLS)
    assert ids == seen
    assert tuple(i for i, s in zip(ids, sampled, strict=True) if s) == turns[0].token_ids


def test_a_turn_that_found_no_room_adds_nothing_to_train(renderer: Renderer) -> None:
    messages = (
        *OPENING,
        Message(role="assistant", content="a"),
        Message(role="tool", content="x", tool_call_id="c", name="search"),
        Message(role="assistant", content=""),
    )
    turns = (
        Turn(text="a", token_ids=(7,), logprobs=(-1.0,)),
        Turn(text="", finish_reason="context"),
    )
    _, sampled, _ = rebuild(renderer, messages, turns, ())
    assert sum(sampled) == 1


def test_a_demonstration_trains_text_calls_and_end_token_and_nothing_else(
    renderer: Renderer,
) -> None:
    call = ToolCall(id="call_0", name="search", arguments='{"query": "Acme 2021"}')
    messages = (
        *OPENING,
        Message(role="assistant", content="", tool_calls=(call,)),
        Message(role="tool", content="1,234", tool_call_id="call_0", name="search"),
        Message(role="assistant", content="Answer: 1234"),
    )
    turns = tuple(Turn(text=m.content) for m in messages if m.role == "assistant")
    ids, sampled, _ = rebuild(renderer, messages, turns, TOOLS)
    trained = [i for i, s in zip(ids, sampled, strict=True) if s]
    assert renderer.tokenizer.decode(trained) == (
        "@search Acme 2021<|im_end|>Answer: 1234<|im_end|>"
    )
    told = replace(
        OPENING[0], content=f"{OPENING[0].content}\nTools, one call a line:\n@search query: Finds."
    )
    assert ids == renderer.messages((told, *messages[1:]), TOOLS)


def test_more_turns_than_assistant_messages_is_an_error(renderer: Renderer) -> None:
    with pytest.raises(ValueError, match="1 turns"):
        rebuild(renderer, OPENING, [Turn(text="x")], ())
