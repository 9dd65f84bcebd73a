"""The lines protocol: what is written is read again, and odd text is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.policy.protocols.lines import (
    describe_tools,
    parse_calls,
    single_argument,
    write_assistant,
    write_call,
)


def schema(name: str, *, required: list[str], **types: str) -> ToolSchema:
    properties = {k: {"type": t} for k, t in types.items()}
    parameters = {"type": "object", "properties": properties, "required": required}
    return ToolSchema(name=name, description=f"{name}s.", parameters_json=json.dumps(parameters))


SEARCH = schema("search", required=["query"], query="string")
LOOK = schema("look", required=["path"], path="string", depth="integer")
MOVE = schema("move", required=["x", "y"], x="number", y="number")
NOW = schema("now", required=[])
TOOLS = (SEARCH, LOOK, MOVE, NOW)


def a_call(name: str, arguments: Any, number: int = 0) -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=f"call_{number}", name=name, arguments=text)


def read(text: str) -> list[tuple[str, Any]]:
    calls, malformed = parse_calls(text, TOOLS, "call")
    assert malformed == ""
    return [(c.name, json.loads(c.arguments)) for c in calls]


@pytest.mark.parametrize(
    "query",
    [
        "Alder Foods 2021",
        "",
        ":colon first",
        ": colon and space",
        '{"query": "looks like JSON"}',
        "{not JSON",
        "[1, 2]",
        '"quoted"',
        "@search inside",
        " space around ",
        "tab\there",
        "two\nlines",
        "carriage\rreturn",
        "line\u2028separator, next\x85line, form\x0cfeed",
        "größe 日本 🙂",
        "\ud800 half a pair",
        "null",
        "3.14",
        "back\\slash",
    ],
)
def test_a_single_argument_survives_whatever_it_holds(query: str) -> None:
    line = write_call(a_call("search", {"query": query}), SEARCH)
    assert "\n" not in line
    assert read(line) == [("search", {"query": query})]


ARGUMENTS = st.dictionaries(
    st.sampled_from(["query", "path", "x", "y", "other"]),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=2),
    max_size=3,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["search", "look", "move", "now", "unknown", "3d-view"]), ARGUMENTS)
    | st.tuples(st.just("search"), st.fixed_dictionaries({"query": st.text()})),
    max_size=4,
)
PROSE = st.text(alphabet=st.characters(exclude_characters="@"), max_size=30)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(prose=PROSE, calls=CALLS)
def test_every_turn_that_can_be_written_is_read_again(
    prose: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    made = tuple(a_call(name, arguments, i) for i, (name, arguments) in enumerate(calls))
    text = write_assistant(Message(role="assistant", content=prose, tool_calls=made), TOOLS)
    assert read(text) == calls


@settings(derandomize=True, max_examples=300, deadline=None)
@given(text=st.text(alphabet=st.sampled_from('@ab_-{}":\\ \n\r\t.1\u2028é'), max_size=60))
def test_no_text_breaks_the_reader_and_what_it_reads_can_be_written_and_read_again(
    text: str,
) -> None:
    calls, _ = parse_calls(text, TOOLS, "call")
    again = "\n".join(write_call(c, {t.name: t for t in TOOLS}.get(c.name)) for c in calls)
    assert [c.name for c in parse_calls(again, TOOLS, "call")[0]] == [c.name for c in calls]


def test_several_calls_of_a_turn_are_read_in_order_with_their_own_ids() -> None:
    text = 'First I look.\n@search Acme 2021\n  @look: reports/acme\nthen\n@move {"x": 1, "y": 2}\n@now'
    calls, malformed = parse_calls(text, TOOLS, "call_3")
    assert [(c.id, c.name, c.arguments) for c in calls] == [
        ("call_3_0", "search", '{"query": "Acme 2021"}'),
        ("call_3_1", "look", '{"path": "reports/acme"}'),
        ("call_3_2", "move", '{"x": 1, "y": 2}'),
        ("call_3_3", "now", "{}"),
    ]
    assert malformed == ""


def test_a_json_object_is_taken_as_the_arguments_of_a_single_argument_tool_too() -> None:
    assert read('@look {"path": "a", "depth": 2}') == [("look", {"path": "a", "depth": 2})]
    assert read("@look {a, b}") == [("look", {"path": "{a, b}"})]


def test_text_that_looks_like_a_call_but_names_no_tool_is_described() -> None:
    calls, malformed = parse_calls("@ search Acme\n@search Acme\n@!", TOOLS, "call")
    assert [c.name for c in calls] == ["search"]
    assert malformed == "`@ search Acme` looks like a call but names no tool"


def test_arguments_that_are_no_json_reach_the_tool_which_refuses_them() -> None:
    calls, malformed = parse_calls("@move 1 2", TOOLS, "call")
    assert (calls[0].arguments, malformed) == ("1 2", "")


def test_a_worked_example_with_broken_arguments_is_still_written_on_one_line() -> None:
    assert write_call(a_call("search", "{broken\n  json"), SEARCH) == "@search {broken json"
    assert write_call(a_call("move", '{"x": 1,\n "y": 2}'), MOVE) == '@move {"x": 1, "y": 2}'
    assert write_call(a_call("move", "[1, 2]"), MOVE) == "@move [1, 2]"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [(SEARCH, "query"), (LOOK, "path"), (MOVE, ""), (NOW, "")],
)
def test_only_a_sole_required_string_may_be_written_bare(tool: ToolSchema, expected: str) -> None:
    assert single_argument(tool) == expected
    assert single_argument(schema("count", required=["n"], n="integer")) == ""


def test_tools_that_the_system_message_does_not_name_are_described_there() -> None:
    user = Message(role="user", content="Hello")
    told = describe_tools((user,), (SEARCH, MOVE))
    assert told[0].role == "system"
    assert told[0].content.splitlines()[:2] == [
        "Tools, one call a line:",
        "@search query: searchs.",
    ]
    assert MOVE.parameters_json in told[0].content
    assert told[1:] == (user,)
    own = Message(role="system", content="Use @search WORDS.")
    assert describe_tools((own, user), (SEARCH,)) == (own, user)
    more = describe_tools((own, user), (SEARCH, LOOK))
    assert more[0].content == "Use @search WORDS.\nMore tools:\n@look path: looks."


def test_a_tool_whose_name_begins_another_ones_is_described_as_well() -> None:
    longer = schema("search-all", required=["query"], query="string")
    own = Message(role="system", content="Use @search-all WORDS.")
    assert "@search query" in describe_tools((own,), (SEARCH, longer))[0].content
