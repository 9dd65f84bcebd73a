"""Tools over HTTP: the wire contract, row by row, against real servers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from tests.loopback import Answer, Seen, serving

from learnloop.config import ToolConfig
from learnloop.errors import ConfigError, ToolError
from learnloop.message import ToolCall
from learnloop.outbound import Outbound, Retry
from learnloop.tool import ToolContext, ToolOutput
from learnloop.tools import http_tools

FAST = Retry(retries=3, first_delay_s=0.001)
CALL = ToolCall(id="call_abc", name="cat", arguments='{"path": "a"}')
CONTEXT = ToolContext(trace_id="trace_" + "1" * 32, item={"answer": 12, "doc": "\u00e9"})


async def _call(config: ToolConfig, retry: Retry = FAST) -> ToolOutput:
    async with Outbound(allow_private=True, retry=retry) as outbound:
        return await http_tools([config], outbound)["cat"].call(CALL, CONTEXT)


def call(decide: Callable[[Seen], Answer], **settings: Any) -> tuple[ToolOutput, list[Seen]]:
    with serving(decide) as server:
        config = ToolConfig(name="cat", server_url=server.url, **settings)
        return anyio.run(_call, config), server.seen


def fault(decide: Callable[[Seen], Answer], **settings: Any) -> tuple[ToolError, int]:
    with serving(decide) as server, pytest.raises(ToolError) as caught:
        anyio.run(_call, ToolConfig(name="cat", server_url=server.url, **settings))
    return caught.value, len(server.seen)


def good(seen: Seen) -> Answer:
    return Answer(body={"call_id": seen.data["call_id"], "id": seen.data["id"], "output": "fine"})


def test_the_request_has_the_shape_of_the_contract() -> None:
    output, (seen,) = call(good)
    assert output == ToolOutput(text="fine")
    assert seen.data == {
        "type": "function_call",
        "id": "fc_abc",
        "call_id": "call_abc",
        "name": "cat",
        "arguments": '{"path": "a"}',
        "item": {"answer": 12, "doc": "\u00e9"},
        "trace_id": CONTEXT.trace_id,
    }
    assert seen.headers["Idempotency-Key"] == "call_abc"
    assert seen.headers["X-Trace-Id"] == CONTEXT.trace_id
    assert seen.headers["Content-Type"] == "application/json"
    assert seen.headers["traceparent"].startswith("00-")


def test_the_users_headers_are_sent_with_values_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOL_KEY", "sk-very-secret")
    _, (seen,) = call(good, headers={"Authorization": "Bearer ${TOOL_KEY}"})
    assert seen.headers["Authorization"] == "Bearer sk-very-secret"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ({"a": [1, "\u00e9"]}, '{"a": [1, "\u00e9"]}'),
        (12, "12"),
        (None, "null"),
        ("half \ud800 pair", "half ? pair"),
    ],
)
def test_any_output_becomes_text(output: object, text: str) -> None:
    got, _ = call(lambda s: Answer(body={"call_id": s.data["call_id"], "output": output}))
    assert got == ToolOutput(text=text)


def test_type_is_optional_and_html_content_types_do_not_matter() -> None:
    body = {"type": "function_call_output", "call_id": "call_abc", "id": "x", "output": "ok"}
    got, _ = call(lambda _: Answer(body=body, headers={"Content-Type": "text/html"}))
    assert got.text == "ok"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(body=b"<html>login</html>"), "bad_reply"),
        (Answer(body=b""), "bad_reply"),
        (Answer(body=[1]), "bad_reply"),
        (Answer(body={"call_id": "call_abc"}), "bad_reply"),
        (Answer(body={"type": "error", "output": "x"}), "bad_reply"),
        (Answer(body={"call_id": "call_other", "output": "x"}), "call_id"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1/"}), "redirect"),
        (Answer(status=500), "5xx"),
        (Answer(status=503, body={"output": "not shown"}), "5xx"),
        (Answer(status=429, headers={"Retry-After": "0"}), "429"),
    ],
)
def test_a_broken_reply_is_a_fault_after_three_retries(answer: Answer, kind: str) -> None:
    error, tries = fault(lambda _: answer)
    assert (error.kind, tries) == (kind, 4)
    assert str(error).startswith("tool cat: ")


def test_a_server_that_recovers_costs_only_retries_under_the_same_key() -> None:
    answers = iter((Answer(status=500), Answer(body=b"<html>"), None))
    output, seen = call(lambda s: next(answers) or good(s))
    assert output == ToolOutput(text="fine", retries=2)
    assert {s.headers["Idempotency-Key"] for s in seen} == {"call_abc"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            Answer(status=404, body={"call_id": "call_abc", "output": "no such file"}),
            "no such file",
        ),
        (Answer(status=422, body={"error": {"message": "bad path"}}), '{"message": "bad path"}'),
        (Answer(status=400, body={"error": "bad path"}), "bad path"),
        (Answer(status=400, body=b"plain words"), "plain words"),
        (Answer(status=404), "HTTP 404 Not Found"),
        (Answer(status=400, body=b"x" * 2100), "x" * 2000 + "... (100 more characters)"),
    ],
)
def test_a_4xx_is_shown_to_the_model_at_once(answer: Answer, text: str) -> None:
    output, seen = call(lambda _: answer)
    assert output == ToolOutput(text=text, is_error=True, status=answer.status)
    assert len(seen) == 1


def test_a_reply_over_one_megabyte_becomes_an_error_the_model_sees() -> None:
    output, seen = call(lambda _: Answer(body={"output": "x" * 1_000_001}))
    assert output.is_error
    assert "413" in output.text
    assert len(seen) == 1


def test_a_request_over_one_megabyte_is_not_even_sent() -> None:
    big = ToolContext(trace_id="t", item={"text": "x" * 1_000_000})

    async def run(url: str) -> ToolOutput:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            tool = http_tools([ToolConfig(name="cat", server_url=url)], outbound)["cat"]
            return await tool.call(CALL, big)

    with serving(good) as server:
        output = anyio.run(run, server.url)
    assert output.is_error
    assert "413" in output.text
    assert server.seen == []


def test_a_server_that_is_not_there_is_a_fault() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        config = ToolConfig(name="cat", server_url=f"http://127.0.0.1:{closed.getsockname()[1]}/")
        with pytest.raises(ToolError) as caught:
            anyio.run(_call, config)
    assert caught.value.kind == "connect"


def test_a_server_that_hangs_up_is_a_fault() -> None:
    def hang_up(seen: Seen) -> Answer:
        raise ConnectionResetError(seen.path)

    error, tries = fault(hang_up)
    assert (error.kind, tries) == ("connect", 4)


def test_a_tls_error_is_a_fault_of_its_own_kind() -> None:
    with serving(good) as server:
        url = server.url.replace("http://", "https://")
        with pytest.raises(ToolError) as caught:
            anyio.run(_call, ToolConfig(name="cat", server_url=url))
    assert caught.value.kind == "tls"


def test_a_slow_server_times_out_and_is_tried_again() -> None:
    def slow(seen: Seen) -> Answer:
        time.sleep(0.6)
        return good(seen)

    error, tries = fault(slow, timeout_s=0.25)
    assert (error.kind, tries) == ("timeout", 4)


def test_retry_after_is_waited_for() -> None:
    answers = iter((Answer(status=429, headers={"Retry-After": "1"}), None))
    start_s = time.monotonic()
    output, _ = call(lambda s: next(answers) or good(s))
    assert output.retries == 1
    assert time.monotonic() - start_s >= 1.0


def test_a_tool_never_has_more_requests_in_flight_than_it_may() -> None:
    running: list[int] = []
    highest: list[int] = []

    def count(seen: Seen) -> Answer:
        running.append(1)
        highest.append(len(running))
        time.sleep(0.02)
        running.pop()
        return good(seen)

    async def many(url: str) -> None:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = ToolConfig(name="cat", server_url=url, max_concurrency=3)
            tool = http_tools([config], outbound)["cat"]
            async with anyio.create_task_group() as group:
                for _ in range(20):
                    group.start_soon(tool.call, CALL, CONTEXT)

    with serving(count) as server:
        anyio.run(many, server.url)
    assert len(server.seen) == 20
    assert max(highest) == 3


def test_more_than_a_hundred_calls_run_at_once() -> None:
    gate: list[int] = []

    def wait_for_all(seen: Seen) -> Answer:
        gate.append(1)
        while len(gate) < 120:
            time.sleep(0.005)
        return good(seen)

    async def many(url: str) -> None:
        async with Outbound(allow_private=True, retry=FAST) as outbound:
            config = ToolConfig(name="cat", server_url=url, max_concurrency=200, timeout_s=30)
            tool = http_tools([config], outbound)["cat"]
            async with anyio.create_task_group() as group:
                for _ in range(120):
                    group.start_soon(tool.call, CALL, CONTEXT)

    with serving(wait_for_all) as server:
        anyio.run(many, server.url)
    assert len(server.seen) == 120


def test_secrets_reach_neither_errors_nor_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOL_KEY", "sk-very-secret")
    headers = {"Authorization": "Bearer ${TOOL_KEY}", "X-Other": "hunter2-hunter2"}

    def leak(seen: Seen, status: int) -> Answer:
        text = json.dumps(dict(seen.headers))
        return Answer(status=status, body={"output": text} if status == 200 else text)

    for status in (200, 401):
        output, _ = call(partial(leak, status=status), headers=headers)
        assert "sk-very-secret" not in output.text
        assert "hunter2" not in output.text
        assert "[redacted]" in output.text
    error, _ = fault(partial(leak, status=500), headers=headers)
    assert "secret" not in str(error)


@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_secret_is_hidden_where_a_message_is_cut_inside_it(status: int) -> None:
    key = "SEKRETVALUE99abcdefghijkl"
    for filler in range(170, 201, 5):

        def leak(seen: Seen, filler: int = filler) -> Answer:
            body = "y" * filler + seen.headers["Authorization"]
            return Answer(status=status, body=body.encode())

        headers = {"Authorization": f"Bearer {key}"}
        text = (
            call(leak, headers=headers)[0].text
            if status == 400
            else str(fault(leak, headers=headers)[0])
        )
        assert "SEK" not in text


def _build(*configs: ToolConfig, allow_private: bool = True) -> None:
    async def build() -> None:
        async with Outbound(allow_private=allow_private) as outbound:
            http_tools(configs, outbound)

    anyio.run(build)


def test_a_missing_variable_is_a_mistake_the_user_can_mend() -> None:
    config = ToolConfig(name="cat", server_url="http://a/", headers={"K": "${NOT_SET_ANYWHERE}"})
    with pytest.raises(ConfigError, match=r"tool cat: .*NOT_SET_ANYWHERE"):
        _build(config)


def test_two_tools_of_one_name_are_refused() -> None:
    config = ToolConfig(name="cat", server_url="http://a/")
    with pytest.raises(ConfigError, match="two tools"):
        _build(config, config)


def test_several_tools_may_share_one_url() -> None:
    _build(
        ToolConfig(name="a", server_url="http://x/"), ToolConfig(name="b", server_url="http://x/")
    )


def test_the_schema_is_what_the_configuration_says() -> None:
    async def schema() -> str:
        async with Outbound() as outbound:
            config = ToolConfig(
                name="cat", server_url="http://x/", description="d", parameters={"type": "object"}
            )
            return http_tools([config], outbound)["cat"].schema.parameters_json

    assert anyio.run(schema) == '{"type":"object"}'


def test_loopback_is_called_only_when_the_project_allows_it() -> None:
    config = ToolConfig(name="cat", server_url="http://127.0.0.1:9/")
    with pytest.raises(ConfigError, match="allow_private"):
        _build(config, allow_private=False)


def test_a_name_that_leads_to_loopback_is_refused_when_called() -> None:
    async def run(url: str) -> None:
        async with Outbound(retry=FAST) as outbound:
            tool = http_tools([ToolConfig(name="cat", server_url=url)], outbound)["cat"]
            await tool.call(CALL, CONTEXT)

    with serving(good) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(ToolError) as caught:
            anyio.run(partial(run, url))
    assert caught.value.kind == "refused_address"
    assert server.seen == []


def test_a_name_works_when_allowed_and_keeps_its_host_header() -> None:
    with serving(good) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        output = anyio.run(_call, ToolConfig(name="cat", server_url=url))
    assert output.text == "fine"
    assert server.seen[0].headers["Host"].startswith("localhost:")
