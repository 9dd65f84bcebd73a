"""Every tool of a project, of whatever kind, by the name that the model calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from learnloop.config import Config
from learnloop.errors import ConfigError
from learnloop.message import ToolSchema
from learnloop.outbound import Outbound
from learnloop.tool import Tool
from learnloop.tools import http_tools
from learnloop.tools.function import FunctionTool

_FIX = "Rename one, or set `prefix` or `tools` of the MCP server."


def own_schemas(config: Config, root: Path, state_dir: Path) -> tuple[ToolSchema, ...]:
    """Return the schemas of tools that tell the model of themselves, without starting any.

    Args:
        config: the project's configuration.
        root: the project's folder.
        state_dir: where the lists of MCP servers are kept.

    Raises:
        ConfigError: a function does not load.
    """
    found = [FunctionTool(tool, root).schema for tool in config.tools if tool.function]
    return tuple(found)


@asynccontextmanager
async def open_tools(
    config: Config, root: Path, state: Callable[[], Path], outbound: Outbound
) -> AsyncGenerator[Mapping[str, Tool]]:
    """Open the tools, and close what they hold at the end.

    Args:
        config: the configuration, with the addresses of services filled in.
        root: the project's folder.
        state: makes the state folder and returns it.
        outbound: the project's HTTP client.

    Raises:
        ConfigError: two tools share a name, or one is set up wrongly.
        EndpointError: an MCP server does not come up.
    """
    served = [tool for tool in config.tools if tool.server_url]
    found = [("[[tools]]", tool) for tool in http_tools(served, outbound).values()]
    found += [("[[tools]]", FunctionTool(t, root)) for t in config.tools if t.function]
    yield by_name(found)


def by_name(found: Iterable[tuple[str, Tool]]) -> dict[str, Tool]:
    """Return tools by name, from pairs of where a tool comes from and the tool.

    Raises:
        ConfigError: two have one name.
    """
    tools: dict[str, Tool] = {}
    origins: dict[str, str] = {}
    for origin, tool in found:
        name = tool.schema.name
        if name in tools:
            what = f"tool `{name}` comes from {origins[name]} and from {origin}"
            raise ConfigError(what, where="tools", fix=_FIX)
        tools[name], origins[name] = tool, origin
    return tools
