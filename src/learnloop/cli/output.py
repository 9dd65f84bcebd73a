"""Printing: data on stdout, everything for the eye on stderr, colour only where it is seen."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA_VERSION = 1

Style = Literal["bold", "dim", "green", "yellow", "red"]
_CODES: dict[Style, str] = {"bold": "1", "dim": "2", "green": "32", "yellow": "33", "red": "31"}


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command prints: JSON or text, with or without remarks."""

    json: bool = False
    quiet: bool = False

    def data(self, value: Mapping[str, Any]) -> None:
        """Print the command's one JSON object."""
        print(json.dumps({"schema_version": SCHEMA_VERSION, **value}, indent=2))

    def text(self, line: str = "") -> None:
        """Print a line of the command's result."""
        print(line)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print aligned columns; on a terminal that is too narrow the widest are wrapped."""
        shown = [[printable(cell) for cell in row] for row in [head, *rows]]
        widths = fitting([max(map(len, column)) for column in zip(*shown, strict=True)], width_of())
        for number, row in enumerate(shown):
            for line in wrapped(row, widths):
                print(paint(line, "bold", sys.stdout) if number == 0 else line)

    def show(self, block: RenderableType) -> None:
        """Print tables and the like."""
        from rich.console import Console  # here, because most commands do without it

        Console(file=sys.stdout, highlight=False).print(block)

    def note(self, line: str) -> None:
        """Print a remark or a step of progress."""
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    def alert(self, line: str) -> None:
        """Print what must be seen even when remarks are not wanted."""
        print(line, file=sys.stderr, flush=True)

    def next(self, command: str) -> None:
        """Name the command that usually comes next."""
        self.note(f"{paint('next:', 'dim', sys.stderr)} {command}")


_GAP = "  "
_NARROWEST = 8
"""A column is not made narrower than this."""


def width_of() -> int | None:
    """Return the columns of the terminal (`COLUMNS` overrides them); None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitting(widths: Sequence[int], limit: int | None) -> list[int]:
    """Return column widths that fit a terminal, the widest ones cut down as far as it must be."""
    found = list(widths)
    while limit is not None and sum(found) + len(_GAP) * (len(found) - 1) > limit:
        widest = max(range(len(found)), key=lambda i: found[i])
        if found[widest] <= _NARROWEST:
            break
        found[widest] -= 1
    return found


def wrapped(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Return the lines of one row of a table."""
    cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
    return [
        _GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*cells, fillvalue="")
    ]


def shown_path(path: Path) -> str:
    """Return a path as short as it can be: from the working folder, where it lies below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def printable(text: str) -> str:
    """Return text that cannot move a terminal's cursor: the model wrote it, not we."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def paint(text: str, style: Style, stream: TextIO) -> str:
    """Return text in a colour where the stream shows it (`NO_COLOR`, `FORCE_COLOR`)."""
    shown = "NO_COLOR" not in os.environ and (stream.isatty() or "FORCE_COLOR" in os.environ)
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if shown else text
