"""A connection to one MCP server, made anew whenever it breaks."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import anyio
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolResult,
    TextContent,
    Tool,
)

from learnloop.boundary import boundary
from learnloop.clock import paused
from learnloop.config import McpConfig
from learnloop.errors import EndpointError, ToolError
from learnloop.faults import rule_of
from learnloop.outbound import Outbound, Retry

Connect = Callable[[Callable[[], None]], Transport]
"""Makes a transport; it calls what it is given when the server is gone."""

_KINDS = {CONNECTION_CLOSED: "connect", INVALID_REQUEST: "connect", INTERNAL_ERROR: "5xx"}

logging.getLogger("mcp").addHandler(logging.NullHandler())  # its tracebacks are told as faults


class Connection:
    """Owns the connection in one task, as the library's cancel scopes ask for.

    Calls wait while the connection is being made anew, and that is not the agent's time; a server that
    stays away pauses the run, as an HTTP endpoint does.
    """

    def __init__(
        self,
        config: McpConfig,
        connect: Connect,
        redact: Callable[[str], str],
        last_words: Callable[[], str],
        outbound: Outbound,
    ) -> None:
        self._config, self._connect = config, connect
        self._redact, self._last_words = redact, last_words
        self._where = f"MCP server {config.name}"
        self._breaker, self._faults = outbound.breaker(self._where), outbound.faults
        self._failed = 0  # attempts to connect since it was connected last
        self._client: Client | None = None
        self._up, self._tried, self._ended = anyio.Event(), anyio.Event(), anyio.Event()
        self._problem, self._brief, self._changed = "", "", False
        self._places = anyio.CapacityLimiter(config.max_concurrency)
        self._task: asyncio.Task[None] | None = None
        self._scope = anyio.CancelScope()
        self.tools: tuple[Tool, ...] = ()

    async def start(self) -> None:
        """Connect, and learn which tools there are.

        Raises:
            EndpointError: the server does not come up; tells what it last wrote.
        """
        self._task = asyncio.create_task(self._until_stopped(), name=self._where)
        await self._tried.wait()
        if self._client is None:
            await self.stop()
            raise EndpointError(f"does not come up: {self._problem}", where=self._where)

    async def stop(self) -> None:
        """Close the connection and end the server's process."""
        if self._task is not None:
            # Not the task's own `cancel`: while a connection closes, that is heard once and lost.
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._task

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call one of the server's tools; what the server refuses comes back as an error result.

        Raises:
            ToolError: it took too long, the connection broke, or the server broke the protocol.
            EndpointError: the server was away for longer than anybody waits.
        """
        with paused():
            await self._places.acquire()
        try:
            while True:
                look = await self._breaker.admit()
                client = await self._connected()
                if client is not None:
                    return await self._once(client, name, arguments, look)
                if look:
                    self._breaker.failed(self._brief, look=look)
        finally:
            self._places.release()

    async def _once(
        self, client: Client, name: str, arguments: dict[str, Any], look: int
    ) -> CallToolResult:
        """Make a call, and tell the breaker how it went."""
        try:
            result = await self._in_time(client, name, arguments)
        except ToolError as fault:
            self._faults[f"{self._where}/{fault.kind}"] += 1
            if rule_of("tool", fault.kind).trips:
                self._breaker.failed(fault.brief, look=look)
            else:
                self._breaker.let_go(look)
            raise
        except BaseException:
            self._breaker.let_go(look)
            raise
        self._breaker.succeeded()
        return result

    async def _in_time(
        self, client: Client, name: str, arguments: dict[str, Any]
    ) -> CallToolResult:
        with anyio.move_on_after(self._config.timeout_s):
            try:
                with boundary("tool"):
                    return await client.call_tool(name, arguments)
            except ToolError as fault:
                return self._judged(fault, client)
        raise self._fault(f"no result within {self._config.timeout_s:g} s", kind="timeout")

    def _judged(self, fault: ToolError, client: Client) -> CallToolResult:
        """Return what the model did wrong as a result; raise what it did not do."""
        cause = fault.__cause__
        if not isinstance(cause, MCPError):
            words = _words(cause) if cause else str(fault)
            raise self._fault(words, kind=fault.kind, brief=_brief(fault)) from cause
        if cause.code == INVALID_PARAMS:
            text = TextContent(text=f"error: {cause.message}")
            return CallToolResult(content=[text], is_error=True)
        if cause.code == INVALID_REQUEST and client is self._client:
            # So a server says that it no longer knows the session; a late word is of an older one.
            self._ended.set()
        kind, brief = _KINDS.get(cause.code, "mcp"), f"error {cause.code}"
        raise self._fault(cause.message, kind=kind, brief=brief) from cause

    async def _connected(self) -> Client | None:
        """Return the connection, waiting while it is made anew; None when the server is away."""
        with paused():
            while self._client is None and not (self._changed or self._breaker.is_open):
                await self._up.wait()
        if self._changed:
            raise self._fault(f"not connected: {self._problem}", kind="connect")
        return self._client

    async def _until_stopped(self) -> None:
        try:
            with self._scope:
                await self._own()
        finally:
            self._tried.set()

    async def _own(self) -> None:
        """Connect again and again; give up only when the very first time fails."""
        while True:
            try:
                with boundary("tool"):
                    await self._hold()
                self._problem = self._brief = "the connection ended"
            except ToolError as fault:
                self._problem = self._told(fault)
                self._brief = _brief(fault)
            if not self._tried.is_set():
                self._tried.set()
                return
            if self._failed:  # it did not come back at once
                self._breaker.trip(self._brief)
            if self._failed or self._changed:
                self._up.set()  # whoever waits for the connection looks again at how things stand
                self._up = anyio.Event()
            await anyio.sleep(Retry(first_delay_s=0.1).delay_s(self._failed))
            self._failed += 1

    async def _hold(self) -> None:
        """Hold one connection until the server is gone."""
        self._ended = anyio.Event()
        limit_s = self._config.start_timeout_s
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as scope:
            async with Client(self._connect(self._ended.set)) as client:
                self._learn(await _listed(client))
                scope.deadline = math.inf
                if (
                    self._failed > 1
                ):  # it was away; one that only dies at each call has not answered yet
                    self._breaker.succeeded()
                self._client, self._failed = client, 0
                self._up.set()
                self._tried.set()
                try:
                    await self._ended.wait()
                finally:
                    # At once: closing takes seconds, and calls must wait for the next connection.
                    self._client, self._up = None, anyio.Event()
        if scope.cancelled_caught:
            raise ToolError(f"not ready within {limit_s:g} s", kind="timeout")

    def _learn(self, tools: Sequence[Tool]) -> None:
        """Keep the list of tools; a server that comes back with another one is of no use."""
        self._changed = self._tried.is_set() and _dumped(tools) != _dumped(self.tools)
        if self._changed:
            raise ToolError("it came back with another list of tools", kind="tools_changed")
        self.tools = tuple(tools)

    def _told(self, fault: ToolError) -> str:
        text = _words(fault.__cause__) if fault.__cause__ else str(fault)
        last = self._last_words()
        return self._redact(f"{text}; it last wrote: {last}" if last else text)

    def _fault(self, what: str, *, kind: str, brief: str = "") -> ToolError:
        """Return a fault; `brief` says it without the server's own words."""
        text, short = (self._redact(f"{self._where}: {words}") for words in (what, brief or what))
        return ToolError(text, kind=kind, brief=short)


async def _listed(client: Client) -> list[Tool]:
    """Return the tools of all pages."""
    page = await client.list_tools(cache_mode="bypass")
    tools = list(page.tools)
    while page.next_cursor:
        page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
        tools += page.tools
    return tools


def _dumped(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [tool.model_dump(exclude={"meta"}) for tool in tools]


def _first(error: BaseException) -> BaseException:
    """Return the first single error of a nested group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _brief(fault: ToolError) -> str:
    """Return what happened without words that may be the server's."""
    return type(_first(fault.__cause__)).__name__ if fault.__cause__ else str(fault)


def _words(error: BaseException) -> str:
    first = _first(error)
    return f"{type(first).__name__}: {first}"
