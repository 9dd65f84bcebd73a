"""Every tool of a project, of whatever kind, by the name that the model calls it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from learnloop.codec import config_schemas
from learnloop.config import Config, CorpusConfig
from learnloop.errors import ConfigError
from learnloop.message import ToolSchema
from learnloop.outbound import Outbound
from learnloop.tool import Tool
from learnloop.tools import http_tools
from learnloop.tools.cassette import replayed
from learnloop.tools.corpus import Corpus, corpus_schemas, corpus_tools, open_search
from learnloop.tools.function import FunctionTool
from learnloop.tools.mcp.snapshot import saved_schemas

_FIXES = {
    "MCP server": "Set its `prefix`, such as `files_`, or name the wanted ones in its `tools`.",
    "[corpus]": "Name the wanted ones in `corpus.tools`, or rename the other.",
}


def own_schemas(config: Config, root: Path, state_dir: Path) -> tuple[ToolSchema, ...]:
    """Return the schemas of tools that tell the model of themselves, without starting any.

    Args:
        config: the project's configuration.
        root: the project's folder.
        state_dir: where the lists of MCP servers are kept.

    Raises:
        ConfigError: a function does not load.
    """
    if config.tools_replay.cassette:
        told = {schema.name for schema in config_schemas(config)}
        tools = replayed(root / config.tools_replay.cassette)
        return tuple(tool.schema for name, tool in tools.items() if name not in told)
    found = [FunctionTool(tool, root).schema for tool in config.tools if tool.function]
    return (*found, *saved_schemas(state_dir, config.mcp), *corpus_schemas(config.corpus))


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
    if config.tools_replay.cassette:
        yield replayed(root / config.tools_replay.cassette)
        return
    served = [tool for tool in config.tools if tool.server_url]
    found: list[tuple[str, Tool]] = [
        ("[[tools]]", tool) for tool in http_tools(served, outbound).values()
    ]
    found += [("[[tools]]", FunctionTool(t, root)) for t in config.tools if t.function]
    async with AsyncExitStack() as stack:
        for server in config.mcp:
            from learnloop.tools.mcp.tool import open_server  # only projects with [[mcp]] load it

            private = config.network.allow_private
            opening = open_server(server, root, state(), outbound, allow_private=private)
            tools = await stack.enter_async_context(opening)
            found += [(f"MCP server `{server.name}`", tool) for tool in tools]
        if config.corpus.path:
            corpus = await anyio.to_thread.run_sync(open_corpus, config.corpus, root, state())
            search = await open_search(config.corpus, corpus)
            found += [("[corpus]", tool) for tool in corpus_tools(config.corpus, corpus, search)]
        yield by_name(found)


def open_corpus(config: CorpusConfig, root: Path, state_dir: Path) -> Corpus:
    """Return the project's corpus, its index up to date.

    Raises:
        ConfigError: there is no such folder, or no document in it.
    """
    return Corpus.open(root / config.path, state_dir / "corpus.db")


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
            both = origins[name] + origin
            fix = next((fix for part, fix in _FIXES.items() if part in both), "Rename one.")
            raise ConfigError(what, where="tools", fix=fix)
        tools[name], origins[name] = tool, origin
    return tools
