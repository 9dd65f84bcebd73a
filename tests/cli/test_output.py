"""Tables: aligned, wrapped where the terminal is narrow, whole in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from learnloop.cli.output import Output, fitting, wrapped

ROWS = [
    ("step", "what a long sentence says about it, and at some length", "3"),
    ("an-identifier-without-any-space-in-it", "short", "12"),
]


PROGRAM = "from tests.cli.test_output import print_table; print_table()"


def print_table() -> None:
    Output().table(("name", "words", "n"), ROWS)


def on_terminal(columns: int) -> list[str]:
    """Return the lines that a terminal of so many columns gets."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1"}
    root = Path(__file__).parents[2]
    with os.fdopen(ours, "rb") as screen:
        subprocess.run(
            [sys.executable, "-c", PROGRAM], stdout=theirs, env=env, cwd=root, check=True
        )
        os.close(theirs)
        return os.read(screen.fileno(), 65536).decode().splitlines()


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_keeps_to_the_width_of_the_terminal_and_loses_nothing(columns: int) -> None:
    lines = on_terminal(columns)
    assert max(map(len, lines)) <= columns
    told = "".join("".join(lines).split())
    for word in " ".join(ROWS[0]).split():
        assert word in told


def test_in_a_pipe_a_row_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table()
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(ROWS)


def test_the_widest_column_gives_way_and_none_below_eight() -> None:
    assert fitting([4, 50, 3], 40) == [4, 29, 3]
    assert fitting([4, 50, 3], None) == [4, 50, 3]
    assert fitting([30, 30, 30], 10) == [8, 8, 8]
    assert wrapped(("ab cd", "x"), [2, 3]) == ["ab  x", "cd"]


def test_a_cell_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("name",), [("\x1b[2Jgone",)])
    assert "\x1b" not in capsys.readouterr().out
