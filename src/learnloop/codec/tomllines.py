"""On which line of a TOML text each key stands, so that an error can point at it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import cast

KeyPath = tuple[str | int, ...]
"""Where a value sits in the parsed tree: names of tables and keys, numbers in lists."""


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, counted from 1, of every key and table header in a valid TOML text."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, statement in _statements(text):
        keys = _key_path(tomllib.loads(statement))
        if statement.lstrip().startswith("["):
            table = _header_path(keys, counts, repeated=statement.lstrip().startswith("[["))
            lines.setdefault(table, number)
        elif keys:
            for end in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:end]), number)
    return lines


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a key, or of the nearest table around it; 0 when there is none."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 0


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with its first line; a statement is the fewest lines that parse."""
    pending: list[str] = []
    start = 1
    for number, line in enumerate(text.splitlines(), start=1):
        if not pending:
            start = number
        pending.append(line)
        if _parses("\n".join(pending)):
            yield start, "\n".join(pending)
            pending = []


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _key_path(tree: object) -> tuple[str, ...]:
    """Return the dotted key of a one-statement tree: its only branch, down to the value."""
    branch = cast("dict[str, object]", tree) if isinstance(tree, dict) else {}
    if len(branch) != 1:
        return ()
    key, value = next(iter(branch.items()))
    return (key, *_key_path(value))


def _header_path(keys: tuple[str, ...], counts: dict[KeyPath, int], *, repeated: bool) -> KeyPath:
    """Return a header's place: `[tools.headers]` after two `[[tools]]` is in the second one."""
    path: KeyPath = ()
    for index, key in enumerate(keys):
        path = (*path, key)
        if index == len(keys) - 1 and repeated:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
