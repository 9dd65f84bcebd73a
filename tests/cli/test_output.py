"""Tables: aligned, wrapped where the terminal is narrow, whole in a pipe."""

from __future__ import annotations

import pytest

from learnloop.cli.output import Output, fitting, wrapped

ROWS = [
    ("step", "what a long sentence says about it, and at some length", "3"),
    ("an-identifier-without-any-space-in-it", "short", "12"),
]


def print_table() -> None:
    Output().table(("name", "words", "n"), ROWS)


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_keeps_to_the_width_of_the_terminal_and_loses_nothing(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    told = "".join("".join(lines).split())
    for word in " ".join(ROWS[0]).split():
        assert word in told


def test_in_a_pipe_a_row_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
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
