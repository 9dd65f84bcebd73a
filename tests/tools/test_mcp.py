"""Tools of MCP servers, over stdio and over streamable HTTP, against real servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.clock import Clock
from learnloop.config import Config, McpConfig, NetworkConfig, ToolConfig
from learnloop.errors import ConfigError, EndpointError, ToolError, UserError
from learnloop.message import ToolCall, ToolSchema
from learnloop.outbound import BreakerRules, Outage, Outbound
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.mcp.snapshot import changes, fingerprint, saved_schemas
from learnloop.tools.opening import open_tools

SERVER = Path(__file__).resolve().parent.parent / "mcp_server.py"
CONTEXT = ToolContext(trace_id="trace_1")
NAMES = ["add", "fail", "die", "hang_up", "wait", "meet", "secret", "chatter", "picture"]

Work = Callable[[Mapping[str, Tool]], Awaitable[Any]]


def stdio(*words: str, **settings: Any) -> McpConfig:
    command = ("{python}", str(SERVER), *(words or ("stdio",)))
    return replace(McpConfig(name="box", command=command), **settings)


def use(
    folder: Path,
    config: McpConfig,
    work: Work,
    hear: Callable[[Outage], None] = lambda _: None,
    rules: BreakerRules | None = None,
    faults: Counter[str] | None = None,
    **others: Any,
) -> Any:
    """Open the tools of a server, and do something with them."""

    async def run() -> Any:
        whole = Config(mcp=(config,), network=NetworkConfig(allow_private=True), **others)
        async with (
            Outbound(allow_private=True, breaker=rules) as outbound,
            open_tools(whole, folder, lambda: folder, outbound) as tools,
        ):
            outbound.on_outage = hear
            try:
                return await work(tools)
            finally:
                (Counter[str]() if faults is None else faults).update(outbound.faults)

    return anyio.run(run)


async def call(tools: Mapping[str, Tool], name: str, **arguments: Any) -> ToolOutput:
    text = json.dumps(arguments)
    return await tools[name].call(ToolCall(id="call_1", name=name, arguments=text), CONTEXT)


def refused(folder: Path, config: McpConfig, kind: type[UserError] = ConfigError) -> str:
    async def nothing(tools: Mapping[str, Tool]) -> None: ...

    with pytest.raises(kind) as caught:
        use(folder, config, nothing)
    assert "\n" not in caught.value.line()
    return caught.value.line()


@contextmanager
def http_server() -> Generator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = serve(port)
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def serve(port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(SERVER), "http", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(400):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


async def everything(tools: Mapping[str, Tool]) -> None:
    assert list(tools) == NAMES
    assert tools["add"].schema.description == "Add two numbers."
    parameters = json.loads(tools["add"].schema.parameters_json)
    assert parameters["required"] == ["a"]
    assert await call(tools, "add", a=2, b=3) == ToolOutput(text="5")
    failed = await call(tools, "fail", path="x")
    assert failed.is_error
    assert "no file x" in failed.text
    for text in ("no number", "half a pair: \ud800"):
        assert (await call(tools, "add", a=text)).is_error
    assert (await call(tools, "picture")).text == "look:\n[image image/png]"
    with anyio.fail_after(60):  # one after the other they would wait for ever
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(partial(call, tools, "meet", count=5))


def test_tools_over_stdio_answer_and_their_errors_are_shown(tmp_path: Path) -> None:
    use(tmp_path, stdio(), everything)


def test_tools_over_http_answer_and_their_errors_are_shown(tmp_path: Path) -> None:
    with http_server() as url:
        use(tmp_path, McpConfig(name="box", url=url), everything)


def test_a_call_that_takes_too_long_is_a_fault_and_others_go_on(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        with pytest.raises(ToolError, match="no result within") as caught:
            await call(tools, "wait", seconds=120)
        assert caught.value.kind == "timeout"
        assert (await call(tools, "add", a=1)).text == "2"

    use(tmp_path, stdio(timeout_s=3.0), work)


def test_a_server_that_dies_in_a_call_is_a_fault_and_is_started_again(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        with pytest.raises(ToolError, match="MCP server box") as caught:
            await call(tools, "die", code=3)
        assert caught.value.kind == "connect"
        assert (await call(tools, "add", a=1)).text == "2"

    use(tmp_path, stdio(), work)


def test_a_server_killed_between_calls_costs_no_call(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        pid = int((await call(tools, "secret")).text.split()[-1])
        os.kill(pid, signal.SIGKILL)
        await gone(pid)
        text = (await call(tools, "secret")).text
        assert int(text.split()[-1]) != pid

    use(tmp_path, stdio(), work)


async def gone(pid: int) -> None:
    """Wait until a process has ended, and give the loop some turns to hear of it."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            await anyio.sleep(0.01)
    for _ in range(20):
        await anyio.sleep(0.01)


def test_the_process_is_gone_at_the_end(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> int:
        return int((await call(tools, "secret")).text.split()[-1])

    pid = use(tmp_path, stdio(), work)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_that_does_not_end_by_itself_is_ended_however_soon_we_leave(
    tmp_path: Path,
) -> None:
    async def work(tools: Mapping[str, Tool]) -> int:
        pid = int((await call(tools, "secret")).text.split()[-1])
        with pytest.raises(ToolError):
            await call(tools, "hang_up", seconds=120)
        return pid

    pid = use(tmp_path, stdio(), work)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_an_http_server_that_restarts_is_connected_to_again(tmp_path: Path) -> None:
    news: list[Outage] = []
    gone = anyio.Event()

    def hear(outage: Outage) -> None:
        news.append(outage)
        gone.set()

    async def work(tools: Mapping[str, Tool], port: int) -> None:
        with pytest.raises(ToolError):
            await call(tools, "die", code=3)
        await gone.wait()
        process = await anyio.to_thread.run_sync(serve, port)
        try:
            assert (await call(tools, "add", a=1)).text == "2"
        finally:
            process.kill()
            process.wait()

    with http_server() as url:
        port = int(url.split(":")[2].split("/")[0])
        config = McpConfig(name="box", url=url, start_timeout_s=60)
        use(tmp_path, config, partial(work, port=port), hear)
    assert [(n.endpoint, n.is_down) for n in news] == [
        ("MCP server box", True),
        ("MCP server box", False),
    ]
    assert news[0].fault.isidentifier()  # a kind of error, and no word of the server's


def test_a_server_that_stays_away_pauses_the_run(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        with pytest.raises(ToolError):
            await call(tools, "die", code=3)
        # Of an agent that has less time than this takes: it is not the agent's.
        with pytest.raises(EndpointError) as caught, Clock(1.0).running():
            await call(tools, "add", a=1)
        assert caught.value.where == "MCP server box"
        assert caught.value.what.startswith("did not answer as it should for 2 s; last: ")
        assert caught.value.fix == "Mend it, then go on."

    with http_server() as url:
        use(tmp_path, McpConfig(name="box", url=url), work, rules=BreakerRules(longest_wait_s=2))


def test_a_server_that_is_there_and_never_answers_pauses_the_run_too(tmp_path: Path) -> None:
    news: list[Outage] = []
    faults = Counter[str]()

    async def work(tools: Mapping[str, Tool]) -> None:
        for _ in range(3):
            with pytest.raises(ToolError, match=r"no result within 0\.2 s"):
                await call(tools, "wait", seconds=600)
        with pytest.raises(EndpointError, match="did not answer as it should for 1 s; last: "):
            await call(tools, "add", a=1)

    rules = BreakerRules(faults=3, probe_s=5, longest_wait_s=1)
    config = stdio(timeout_s=0.2)
    use(tmp_path, config, work, news.append, rules=rules, faults=faults)
    assert faults == {"MCP server box/timeout": 3}
    assert [(n.endpoint, n.is_down) for n in news] == [("MCP server box", True)]


def test_a_look_that_is_answered_lets_everybody_through_again(tmp_path: Path) -> None:
    news: list[Outage] = []

    async def work(tools: Mapping[str, Tool]) -> None:
        for _ in range(2):
            with pytest.raises(ToolError):
                await call(tools, "wait", seconds=600)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(partial(call, tools, "add", a=1))

    rules = BreakerRules(faults=2, probe_s=0.05, longest_wait_s=60)
    use(tmp_path, stdio(timeout_s=2.0), work, news.append, rules=rules)
    assert [n.is_down for n in news] == [True, False]


RULES = BreakerRules(faults=3, probe_s=0.05, max_probe_s=0.1, longest_wait_s=3)


def test_patience_begins_when_the_server_went_and_not_with_each_call(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        with pytest.raises(ToolError):
            await call(tools, "die", code=3)
        with pytest.raises(EndpointError):
            await call(tools, "add", a=1)
        start_s = time.monotonic()
        with pytest.raises(EndpointError):
            await call(tools, "add", a=1)
        assert time.monotonic() - start_s < 2

    with http_server() as url:
        use(tmp_path, McpConfig(name="box", url=url), work, rules=BreakerRules(longest_wait_s=4))


def test_breaks_that_are_mended_at_once_are_no_outage_however_many(tmp_path: Path) -> None:
    news: list[Outage] = []

    async def work(tools: Mapping[str, Tool]) -> None:
        for _ in range(4):
            with pytest.raises(ToolError):
                await call(tools, "die", code=3)
            assert (await call(tools, "add", a=1)).text == "2"

    use(tmp_path, stdio(), work, news.append)
    assert news == []


def test_news_of_an_outage_holds_no_word_of_the_server(tmp_path: Path) -> None:
    news: list[Outage] = []
    broken = tmp_path / "broken"
    gone = anyio.Event()

    def hear(outage: Outage) -> None:
        news.append(outage)
        gone.set()

    async def work(tools: Mapping[str, Tool]) -> None:
        broken.write_text("no room for the records of Ada")
        with pytest.raises(ToolError) as caught:
            await call(tools, "die", code=3)
        assert caught.value.brief.startswith("MCP server box: error ")
        await gone.wait()
        broken.unlink()
        assert (await call(tools, "add", a=1)).text == "2"

    use(tmp_path, stdio("stdio", "-", str(tmp_path / "more"), str(broken)), work, hear)
    assert "the records of Ada" in (tmp_path / "mcp" / "box.log").read_text()
    assert [n.is_down for n in news] == [True, False]
    assert news[0].fault
    assert "Ada" not in news[0].fault
    assert "wrote" not in news[0].fault


@pytest.mark.parametrize(("tool", "arguments"), [("wait", {"seconds": 120}), ("die", {"code": 3})])
def test_a_broken_server_that_works_again_is_used_again(
    tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    news: list[Outage] = []

    async def work(tools: Mapping[str, Tool]) -> None:
        for _ in range(RULES.faults):
            with pytest.raises(ToolError):
                await call(tools, tool, **arguments)
        assert [n.is_down for n in news] == [True]
        assert (await call(tools, "add", a=1)).text == "2"

    config = stdio(timeout_s=3.0)
    use(tmp_path, config, work, news.append, rules=replace(RULES, longest_wait_s=60))
    assert [n.is_down for n in news] == [True, False]


def test_errors_of_tools_are_no_reason_to_wait(tmp_path: Path) -> None:
    news: list[Outage] = []

    async def work(tools: Mapping[str, Tool]) -> None:
        for _ in range(9):
            assert (await call(tools, "fail", path="x")).is_error
            assert (await call(tools, "add", a="no number")).is_error

    use(tmp_path, stdio(), work, news.append, rules=RULES)
    assert news == []


def test_faults_of_a_server_are_counted_by_kind(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        with pytest.raises(ToolError):
            await call(tools, "wait", seconds=120)
        with pytest.raises(ToolError):
            await call(tools, "die", code=3)
        assert (await call(tools, "fail", path="x")).is_error

    faults = Counter[str]()
    use(tmp_path, stdio(timeout_s=3.0), work, faults=faults)
    assert faults == {"MCP server box/timeout": 1, "MCP server box/connect": 1}


def test_a_server_that_comes_back_with_other_tools_is_not_used(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        (tmp_path / "more").touch()
        with pytest.raises(ToolError):
            await call(tools, "die", code=3)
        with pytest.raises(ToolError, match="another list of tools"):
            await call(tools, "add", a=1)

    config = stdio("stdio", "-", str(tmp_path / "more"))
    use(tmp_path, config, work)


def test_what_a_server_last_wrote_is_quoted_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_BOX", "sk-very-secret")
    config = stdio("broken", env={"BOX_KEY": "${KEY_OF_BOX}"})
    line = refused(tmp_path, config, EndpointError)
    assert line.startswith("MCP server box: does not come up")
    assert "cannot open the database" in line
    log = (tmp_path / "mcp" / "box.log").read_text()
    assert log.splitlines() == [
        "hello from the server with [redacted]",
        "cannot open the database",
    ]


def test_a_server_that_never_answers_is_told_in_time(tmp_path: Path) -> None:
    line = refused(tmp_path, stdio("deaf", start_timeout_s=2.0), EndpointError)
    assert "not ready within 2 s" in line


def test_secrets_of_the_environment_reach_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_BOX", "sk-very-secret")

    async def work(tools: Mapping[str, Tool]) -> str:
        return (await call(tools, "secret")).text

    text = use(tmp_path, stdio(env={"BOX_KEY": "${KEY_OF_BOX}"}), work)
    assert text.startswith("[redacted] ")
    # One that stands in the file is hidden by its name; what an argument takes, always.
    text = use(tmp_path, stdio(env={"BOX_KEY": "in-plain-sight"}), work)
    assert text.startswith("[redacted] ")
    text = use(tmp_path, stdio("stdio", "${KEY_OF_BOX}", "a-folder"), work)
    assert text.endswith(" [redacted] a-folder")


def test_a_variable_in_the_command_that_is_not_set_is_one_line(tmp_path: Path) -> None:
    line = refused(tmp_path, stdio("stdio", "${NOBODY_SET_THIS}"))
    assert "NOBODY_SET_THIS, which is not set" in line


def test_the_log_of_a_server_does_not_grow_for_ever(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        await call(tools, "chatter", lines=2600)

    use(tmp_path, stdio(), work)
    log = (tmp_path / "mcp" / "box.log").read_text()
    assert len(log) < 1_100_000
    assert log.splitlines()[-1].startswith("2599 ")


def test_a_line_of_the_log_without_end_is_left_out(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        await call(tools, "chatter", lines=1, length=3_000_000)
        await call(tools, "chatter", lines=2, length=1)

    use(tmp_path, stdio(), work)
    lines = (tmp_path / "mcp" / "box.log").read_text().splitlines()
    assert lines[1:] == ["(a line of more than 20000 bytes is left out)", "0 x", "1 x"]


def test_only_the_tools_that_are_asked_for_are_offered_under_their_prefix(tmp_path: Path) -> None:
    async def work(tools: Mapping[str, Tool]) -> None:
        assert list(tools) == ["box_add"]
        assert (await call(tools, "box_add", a=1)).text == "2"

    use(tmp_path, stdio(tools=("add",), prefix="box_"), work)
    line = refused(tmp_path, stdio(tools=("subtract",)))
    assert "has no tool `subtract`. It has: add, fail" in line


def test_a_name_that_two_tools_have_is_one_line_with_a_fix(tmp_path: Path) -> None:
    async def nothing(tools: Mapping[str, Tool]) -> None: ...

    other = ToolConfig(name="add", server_url="http://127.0.0.1:9/")
    with pytest.raises(ConfigError, match=r"`add` comes from .* and from MCP server `box`.*prefix"):
        use(tmp_path, stdio(), nothing, tools=(other,))


def test_mistakes_are_told_before_anything_is_started(tmp_path: Path) -> None:
    assert "not found" in refused(tmp_path, McpConfig(name="box", command=("no-such-program",)))
    assert "NOT_SET" in refused(tmp_path, stdio(env={"A": "${NOT_SET}"}))
    assert "forbids" in refused(tmp_path, McpConfig(name="box", url="http://169.254.169.254/mcp"))
    both = McpConfig(name="box", url="https://me:pw@x.example/mcp", headers={"Authorization": "a"})
    assert "one would be lost" in refused(tmp_path, both)


def test_a_host_that_cannot_be_looked_up_is_told(tmp_path: Path) -> None:
    config = McpConfig(name="box", url=f"http://{'a' * 64}.invalid/mcp")
    assert "does not come up" in refused(tmp_path, config, EndpointError)


def test_private_addresses_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    async def run(url: str) -> None:
        config = Config(mcp=(McpConfig(name="box", url=url),))
        async with Outbound() as outbound, open_tools(config, tmp_path, lambda: tmp_path, outbound):
            raise AssertionError("unreachable")

    with http_server() as url:
        with pytest.raises(ConfigError, match="allow_private"):
            anyio.run(run, url)
        with pytest.raises(EndpointError, match="allow_private"):
            anyio.run(run, url.replace("127.0.0.1", "localhost"))


def test_the_list_of_tools_is_kept_and_its_changes_are_named(tmp_path: Path) -> None:
    async def nothing(tools: Mapping[str, Tool]) -> None: ...

    config = stdio()
    use(tmp_path, config, nothing)
    kept = saved_schemas(tmp_path, [config])
    assert [schema.name for schema in kept] == NAMES
    before = fingerprint(kept)
    assert changes(before, before) == ""
    other = ToolSchema(name="add", description="Other.", parameters_json="{}")
    new = ToolSchema(name="new", description="", parameters_json="{}")
    after = fingerprint([other, *kept[2:], new])
    assert changes(before, after) == "new is new, fail is gone, add is another"
