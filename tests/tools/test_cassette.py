"""Cassettes: what is recorded is replayed without the tools, and nothing is invented."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.loopback import Answer, Seen, serving

from learnloop.config import Config, ToolConfig, ToolsReplayConfig
from learnloop.errors import ConfigError, ToolError
from learnloop.message import ToolCall
from learnloop.outbound import Outbound, Retry
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.cassette import recording, replayed
from learnloop.tools.opening import open_tools

CONTEXT = ToolContext(trace_id="trace_1", item={"doc": "a"})


def run(folder: Path, config: Config, work: Callable[[Mapping[str, Tool]], Awaitable[Any]]) -> Any:
    async def inner() -> Any:
        async with (
            Outbound(allow_private=True, retry=Retry(retries=0)) as outbound,
            open_tools(config, folder, lambda: folder, outbound) as tools,
        ):
            return await work(tools)

    return anyio.run(inner)


async def ask(tool: Tool, arguments: str, context: ToolContext = CONTEXT) -> ToolOutput:
    return await tool.call(ToolCall(id="call_1", name="cat", arguments=arguments), context)


def answer(seen: Seen) -> Answer:
    arguments = json.loads(seen.data["arguments"])
    if arguments["path"] == "broken":
        return Answer(status=500)
    if arguments["path"] == "none":
        return Answer(status=404, body={"output": "no such file"})
    text = f"{arguments['path']} for {seen.data['item']['doc']}"
    return Answer(body={"call_id": seen.data["call_id"], "output": text})


def recorded(folder: Path) -> Path:
    """Record three answers, one of them an error, and one fault, which is no answer."""
    file = folder / "tools.jsonl"

    async def work(tools: Mapping[str, Tool]) -> None:
        tool = recording(tools, file)["cat"]
        await ask(tool, '{"path": "x", "line": 1}')
        await ask(tool, '{"path": "none"}')
        await ask(tool, '{"path": "y"}')
        await ask(tool, '{"path": "y"}', ToolContext(trace_id="t", item={"doc": "b"}))
        with pytest.raises(ToolError):
            await ask(tool, '{"path": "broken"}')

    headers = {"Authorization": "Bearer sk-very-secret"}
    with serving(answer) as server:
        tool = ToolConfig(name="cat", server_url=server.url, description="d", headers=headers)
        run(folder, Config(tools=(tool,)), work)
    return file


def test_recorded_answers_come_back_without_the_server(tmp_path: Path) -> None:
    recorded(tmp_path)

    async def work(tools: Mapping[str, Tool]) -> None:
        tool = tools["cat"]
        assert tool.schema.description == "d"
        output = await ask(tool, '{"line":1,"path":"x"}')
        assert output == ToolOutput(text="x for a")
        wrong = ToolOutput(text="no such file", is_error=True, status=404)
        assert await ask(tool, '{"path": "none"}') == wrong

    run(tmp_path, Config(tools_replay=ToolsReplayConfig(cassette="tools.jsonl")), work)


def test_answers_that_depend_on_the_row_are_told_apart_by_it(tmp_path: Path) -> None:
    tool = replayed(recorded(tmp_path))["cat"]
    other = ToolContext(trace_id="t", item={"doc": "b"})
    third = ToolContext(trace_id="t", item={"doc": "c"})
    assert anyio.run(ask, tool, '{"path": "y"}').text == "y for a"
    assert anyio.run(ask, tool, '{"path": "y"}', other).text == "y for b"
    # What the tool said for another row is no answer for this one.
    for arguments in ('{"path": "x", "line": 1}', '{"path": "y"}'):
        with pytest.raises(ToolError, match="does not have"):
            anyio.run(ask, tool, arguments, third)


def test_answers_recorded_without_a_row_are_for_every_row(tmp_path: Path) -> None:
    file = tmp_path / "tools.jsonl"

    async def work(tools: Mapping[str, Tool]) -> None:
        await ask(recording(tools, file)["cat"], '{"path": "x"}', ToolContext(trace_id="t"))

    def say(seen: Seen) -> Answer:
        return Answer(body={"call_id": seen.data["call_id"], "output": "for all"})

    with serving(say) as server:
        run(tmp_path, Config(tools=(ToolConfig(name="cat", server_url=server.url),)), work)
    assert anyio.run(ask, replayed(file)["cat"], '{"path": "x"}').text == "for all"


@pytest.mark.parametrize("path", ["z", "broken"])
def test_a_call_that_is_not_on_the_cassette_is_a_fault_that_names_it(
    tmp_path: Path, path: str
) -> None:
    tool = replayed(recorded(tmp_path))["cat"]
    with pytest.raises(ToolError, match=f"does not have the call cat.*{path}") as caught:
        anyio.run(ask, tool, json.dumps({"path": path}))
    assert caught.value.kind == "cassette"
    assert not caught.value.retryable


def test_no_secret_is_on_a_cassette(tmp_path: Path) -> None:
    text = recorded(tmp_path).read_text()
    assert "sk-very-secret" not in text
    assert "Authorization" not in text


def test_a_file_that_is_no_cassette_is_told_by_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    with pytest.raises(ConfigError, match="cannot be read"):
        replayed(file)
    for text, line in (
        ('{"cassette": 1, "tools": []}', 1),
        ('{"cassette": 1, "tools": []}\n[1]', 2),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=f"c.jsonl:{line}"):
            replayed(file)
