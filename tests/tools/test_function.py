"""Tools that are Python functions: schema, calls, errors, threads."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.config import ToolConfig
from learnloop.errors import ConfigError, ToolError
from learnloop.message import ToolCall
from learnloop.tool import ToolContext, ToolOutput
from learnloop.tools.function import FunctionTool

SOURCE = '''
from __future__ import annotations
import threading, time
from dataclasses import dataclass
from typing import Annotated, Literal
from pydantic import Field
from learnloop import AgentMistake, ToolContext

def search(query: str, limit: Annotated[int, Field(ge=1)] = 3, *, context: ToolContext) -> list[str]:
    """Find documents.

    Looks at every word.

    Args:
        query: What to look for.
        limit: Most documents.
    """
    return [query] * limit + [context.trace_id, context.item["doc"]]

async def wait(seconds: float) -> str:
    import anyio
    await anyio.sleep(seconds)
    return "done"

def block(seconds: float) -> str:
    time.sleep(seconds)
    return "done"

BOTH, GATE, inside = threading.Barrier(2), threading.Event(), []

def meet() -> int:
    inside.append(1)
    BOTH.wait(30)
    time.sleep(0.05)
    among = len(inside)
    inside.pop()
    return among

def hang() -> str:
    GATE.wait(60)
    return "done"

def release() -> None:
    GATE.set()

def refuse(path: str) -> str:
    raise AgentMistake(f"no file {path}")

async def refuse_later(path: str) -> str:
    raise AgentMistake(f"no file {path}")

def crash() -> str:
    raise KeyError("db")

def leave() -> str:
    raise SystemExit(3)

@dataclass
class Point:
    x: int
    y: int = 2

def move(to: Point, mode: Literal["walk", "fly"] = "walk") -> Point:
    return Point(to.x + 1, to.y)

def none() -> None: ...
def thing() -> object:
    return object()
def many(*words: str) -> str: ...
def extra(**words: str) -> str: ...
def positional(a: int, /) -> str: ...
def misspelt(a: Strng) -> str: ...
def odd(a: threading.Lock) -> str: ...
number = 3
'''
CONTEXT = ToolContext(trace_id="trace_1", item={"doc": "a.txt"})


def tool(folder: Path, name: str, **settings: Any) -> FunctionTool:
    (folder / "tools.py").write_text(SOURCE)
    return FunctionTool(ToolConfig(name=name, function=f"tools.py:{name}", **settings), folder)


def called(found: FunctionTool, **arguments: object) -> ToolOutput:
    call = ToolCall(id="call_1", name="x", arguments=json.dumps(arguments))
    return anyio.run(found.call, call, CONTEXT)


def test_schema_comes_from_annotations_and_docstring_without_the_context(tmp_path: Path) -> None:
    schema = tool(tmp_path, "search").schema
    assert schema.description == "Find documents.\n\nLooks at every word."
    assert json.loads(schema.parameters_json) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["query"],
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "default": 3,
                "description": "Most documents.",
            },
        },
    }


def test_the_configuration_goes_before_the_functions_own_words(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
    schema = tool(tmp_path, "search", description="Mine.", parameters=parameters).schema
    assert schema.description == "Mine."
    assert json.loads(schema.parameters_json) == parameters


def test_parameters_that_the_function_does_not_take_are_refused(tmp_path: Path) -> None:
    parameters = {"type": "object", "properties": {"words": {"type": "string"}}}
    with pytest.raises(ConfigError, match=r"disagree on `words`.*query, limit"):
        tool(tmp_path, "search", parameters=parameters)


def test_the_function_gets_its_arguments_and_the_context(tmp_path: Path) -> None:
    output = called(tool(tmp_path, "search"), query="q", limit=1)
    assert output == ToolOutput(text='["q", "trace_1", "a.txt"]')


def test_arguments_become_the_annotated_types_and_results_become_json(tmp_path: Path) -> None:
    assert called(tool(tmp_path, "move"), to={"x": 1}).text == '{"x": 2, "y": 2}'
    assert called(tool(tmp_path, "none")).text == "null"


@pytest.mark.parametrize("name", ["refuse", "refuse_later"])
def test_the_model_is_shown_its_mistakes(tmp_path: Path, name: str) -> None:
    assert called(tool(tmp_path, name), path="b") == ToolOutput(
        text="error: no file b", is_error=True
    )
    wrong = called(tool(tmp_path, name), other=1)
    assert wrong.is_error
    assert "path" in wrong.text


def test_any_other_exception_is_a_fault_that_tells_of_agent_mistake(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"KeyError: 'db'.*learnloop\.AgentMistake") as caught:
        called(tool(tmp_path, "crash"))
    assert caught.value.kind == "KeyError"
    for name in ("thing", "leave"):
        with pytest.raises(ToolError):
            called(tool(tmp_path, name))


@pytest.mark.parametrize("name", ["wait", "block"])
def test_a_call_that_takes_too_long_is_a_fault(tmp_path: Path, name: str) -> None:
    start_s = time.monotonic()
    with pytest.raises(ToolError, match="within") as caught:
        called(tool(tmp_path, name, timeout_s=0.05), seconds=60)
    assert caught.value.kind == "timeout"
    assert time.monotonic() - start_s < 30


def test_plain_functions_run_at_once_and_keep_to_their_places(tmp_path: Path) -> None:
    found = tool(tmp_path, "meet", max_concurrency=2)
    together: list[str] = []

    async def meet() -> None:
        call = ToolCall(id="c", name="meet", arguments="{}")
        together.append((await found.call(call, CONTEXT)).text)

    async def many() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(meet)

    anyio.run(many)  # a call that is alone waits in vain for a second one, which is a fault
    assert len(together) == 4
    assert max(map(int, together)) <= 2


def test_a_hung_function_keeps_its_place_until_it_ends(tmp_path: Path) -> None:
    found = tool(tmp_path, "hang", max_concurrency=1, timeout_s=1.0)
    release = FunctionTool(ToolConfig(name="release", function="tools.py:release"), tmp_path)
    call = ToolCall(id="c", name="x", arguments="{}")

    async def work() -> str:
        with pytest.raises(ToolError, match="no result within 1 s"):
            await found.call(call, CONTEXT)
        with pytest.raises(ToolError, match=r"all 1 places .* hang") as caught:
            await found.call(call, CONTEXT)
        assert caught.value.kind == "timeout"
        await release.call(call, CONTEXT)
        return (await found.call(call, CONTEXT)).text

    assert anyio.run(work) == "done"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("other.py:search", "cannot be read"),
        ("tools.py:serch", "has no `serch`"),
        ("tools.py:number", "no function"),
        ("tools.py:many", r"`\*words`"),
        ("tools.py:extra", r"`\*\*words`"),
        ("tools.py:positional", "positional-only"),
        ("tools.py:misspelt", "Strng"),
        ("no_such_package.tools:search", "does not load: ModuleNotFoundError"),
        ("broken.py:search", "does not load: ZeroDivisionError"),
    ],
)
def test_mistakes_in_loading_are_one_line(tmp_path: Path, function: str, words: str) -> None:
    (tmp_path / "tools.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=words) as caught:
        FunctionTool(ToolConfig(name="t", function=function), tmp_path)
    assert caught.value.line().startswith("tool t: ")
    assert "\n" not in caught.value.line()


def test_a_function_may_come_from_a_module_that_is_installed(tmp_path: Path) -> None:
    config = ToolConfig(name="join", function="posixpath:basename")
    assert called(FunctionTool(config, tmp_path), p="/a/b").text == "b"
