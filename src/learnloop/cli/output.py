"""Printing: data on stdout, everything for the eye on stderr, colour only where it is seen."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
        """Print aligned columns."""
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        for number, row in enumerate([head, *rows]):
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            line = "  ".join(cells).rstrip()
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
