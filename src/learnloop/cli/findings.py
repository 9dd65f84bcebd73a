"""Lists of findings, as `doctor` and `check` print them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from learnloop.cli.output import Output, Style, paint, printable

Level = Literal["ok", "warning", "error"]
_MARKS: dict[Level, tuple[str, Style]] = {
    "ok": ("ok     ", "green"),
    "warning": ("warning", "yellow"),
    "error": ("error  ", "red"),
}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One finding: how bad it is, what was found, and how to mend it."""

    level: Level
    text: str
    fix: str = ""


def print_lines(output: Output, lines: Sequence[Line]) -> None:
    """Print one line for each finding; a fix is only shown where something is to be mended."""
    for line in lines:
        mark, style = _MARKS[line.level]
        text = line.text
        if line.fix and line.level != "ok":
            text = f"{text.rstrip('.')}. {line.fix}"
        output.text(f"{paint(mark, style, sys.stdout)} {printable(' '.join(text.split()))}")
