"""The tools list of a hosted job: names, addresses, headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from learnloop.errors import ConfigError
from learnloop.formats.mapping import Mapped
from learnloop.formats.openai_rft.endpoints import Address, Variables, read_address
from learnloop.formats.openai_rft.json_file import table

_KNOWN = {"name", "server_url", "headers"}


def read_tools(
    data: object, *, where: str, variables: Variables
) -> tuple[list[Address], list[Mapped]]:
    """Return the tools of `[{"name", "server_url", "headers"}]` and what became of their parts.

    Raises:
        ConfigError: an entry that cannot be used; says which.
    """
    if isinstance(data, dict):
        data = cast("dict[str, Any]", data).get("tools")
    if not isinstance(data, list):
        raise ConfigError("must be a list of tools", where=where)
    tools: list[Address] = []
    mapped: list[Mapped] = []
    for number, entry in enumerate(cast("list[object]", data), start=1):
        place = f"{where}: tool {number}"
        fields = table(entry, place)
        name = _name(fields, place, {t.name for t in tools})
        tool, lost = read_address(
            fields, "server_url", owner=name, where=place, variables=variables
        )
        tools.append(tool)
        mapped += [_taken(tool), *lost, *_unknown(fields, name)]
    return tools, mapped


def _name(fields: Mapping[str, Any], where: str, taken: set[str]) -> str:
    name = fields.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        fix = "Give it 1 to 64 letters, digits, `_` or `-`."
        raise ConfigError("has no usable `name`", where=where, fix=fix)
    if name in taken:
        raise ConfigError(f"`{name}` is named twice", where=where, fix="Names must be unique.")
    return name


def _taken(tool: Address) -> Mapped:
    return Mapped(source=f"tool {tool.name}", value=tool.url, fate="taken", target="[[tools]]")


def _unknown(fields: Mapping[str, Any], name: str) -> Iterator[Mapped]:
    for key in sorted(fields.keys() - _KNOWN):
        yield Mapped(source=f"tool {name}: {key}", fate="ignored", why="no such setting here")
