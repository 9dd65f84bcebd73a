"""A tool of an MCP server, and opening the servers of a project."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from mcp.client import Transport
from mcp.types import CallToolResult, ContentBlock, EmbeddedResource, ResourceLink, TextContent
from mcp.types import Tool as ServerTool

from learnloop.codec import canonical_json
from learnloop.config import McpConfig
from learnloop.errors import ConfigError
from learnloop.message import ToolCall, ToolSchema
from learnloop.outbound import (
    Outbound,
    check_credentials,
    check_url,
    expand_headers,
    expand_secret,
    redactor,
)
from learnloop.tool import Tool, ToolContext, ToolOutput
from learnloop.tools.mcp.connection import Connection
from learnloop.tools.mcp.reach import Stderr, over_http, over_stdio
from learnloop.tools.mcp.snapshot import save_schemas
from learnloop.tools.output import output_of

_NAMES_A_KEY = re.compile(r"(?i)(key|token|secret|passw(or)?d|credential|auth)(_|$)")


class McpTool:
    """Calls one tool of a server; the server's own errors are shown to the model."""

    def __init__(
        self,
        tool: ServerTool,
        connection: Connection,
        *,
        prefix: str,
        redact: Callable[[str], str],
    ) -> None:
        self._name, self._connection, self._redact = tool.name, connection, redact
        self._schema = ToolSchema(
            name=prefix + tool.name,
            description=tool.description or tool.title or "",
            parameters_json=canonical_json(tool.input_schema),
        )

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told, as the server says it."""
        return self._schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Call the tool on its server."""
        try:
            arguments: object = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError) as error:
            return ToolOutput(text=f"error: arguments are not valid JSON: {error}", is_error=True)
        if not isinstance(arguments, dict):
            return ToolOutput(text="error: arguments must be a JSON object", is_error=True)
        given = _encodable(cast("dict[str, Any]", arguments))
        result = await self._connection.call(self._name, given)
        return output_of(self._redact(_text(result)), is_error=result.is_error)


@asynccontextmanager
async def open_server(
    config: McpConfig, root: Path, state: Path, outbound: Outbound, *, allow_private: bool
) -> AsyncGenerator[list[Tool]]:
    """Connect to a server, yield its tools, and close the connection at the end.

    Args:
        config: the server.
        root: the project's folder, where a program is run.
        state: the state folder: stderr and the list of tools are kept there.
        outbound: hears when the server is away, and knows how long to wait for it.
        allow_private: whether loopback and private addresses may be called.

    Raises:
        ConfigError: the program, a variable or a tool that is asked for does not exist.
        EndpointError: the server does not come up.
    """
    where = f"MCP server {config.name}"
    env = {k: expand_secret(v, os.environ, where=where) for k, v in config.env.items()}
    headers = expand_headers(config.headers, os.environ, where=where)
    words = {word: expand_secret(word, os.environ, where=where) for word in config.command}
    taken = {word: value for word, value in words.items() if value != word}
    hidden = headers | taken
    hide = redactor(config.url, hidden | env)
    stderr = Stderr(state / "mcp" / f"{config.name}.log", hide)
    if config.command:
        command = tuple(words[word] for word in config.command)
        _check_program(command[0], root, where)
        connect = partial(over_stdio, command, env, root, stderr)
    else:
        check_url(config.url, allow_private=allow_private, where=where)
        check_credentials(config.url, config.headers, where=where)
        connect = partial(
            over_http, config.url, headers, config.timeout_s, allow_private=allow_private
        )

    def transport(ended: Callable[[], None]) -> Transport:
        return connect(ended)

    connection = Connection(config, transport, hide, lambda: stderr.last, outbound)
    try:
        await connection.start()
        # Values that stand in the file in plain sight, such as a folder's name, are no secrets.
        shown = redactor(config.url, hidden | _secret(config.env, env))
        tools = _chosen(config, connection, shown)
        save_schemas(state, config.name, [tool.schema for tool in tools])
        yield tools
    finally:
        await connection.stop()


def _chosen(config: McpConfig, connection: Connection, redact: Callable[[str], str]) -> list[Tool]:
    """Return the tools that the project wants of the server's."""
    offered = {tool.name: tool for tool in connection.tools}
    for name in config.tools:
        if name not in offered:
            what = f"has no tool `{name}`"
            fix = f"It has: {', '.join(offered) or 'none'}."
            raise ConfigError(what, where=f"MCP server {config.name}", fix=fix)
    names = config.tools or tuple(offered)
    return [
        McpTool(offered[name], connection, prefix=config.prefix, redact=redact) for name in names
    ]


def _encodable(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that can be sent: half a surrogate pair would break the connection."""
    data = json.dumps(arguments, ensure_ascii=False).encode("utf-8", "replace")
    return cast("dict[str, Any]", json.loads(data))


def _secret(written: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the values that are secret: taken from our environment, or named like a key."""
    return {
        name: values[name]
        for name, text in written.items()
        if re.search(r"\$\{\w+\}", text) or _NAMES_A_KEY.search(name)
    }


def _check_program(program: str, root: Path, where: str) -> None:
    place = str(root / program) if os.sep in program else program
    if program != "{python}" and shutil.which(place) is None:
        raise ConfigError(f"program `{program}` not found", where=where, fix="Install it.")


def _text(result: CallToolResult) -> str:
    """Return a result as text: its texts joined, other content named in brackets."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(_block(block) for block in result.content)


def _block(block: ContentBlock) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ResourceLink):
        return f"[resource {block.uri}]"
    if isinstance(block, EmbeddedResource):
        return f"[resource {block.resource.uri}]"
    return f"[{block.type} {block.mime_type}]"
