"""`learnloop tools`: list, call and record, in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import Done
from tests.tiny_project import a_row, make_project, write_rows

CONFIG = """\
[project]
name = "own"
[model]
ref = "model"
[[tools]]
name = "double"
function = "tools.py:double"
[corpus]
path = "docs"
"""
SOURCE = '''
from learnloop import AgentMistake

def double(number: int) -> int:
    """Double a number."""
    if number < 0:
        raise AgentMistake("no negative numbers")
    if number == 13:
        raise RuntimeError("bad luck")
    return 2 * number
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    root = make_project(tmp_path / "own", config=CONFIG)
    (root / "tools.py").write_text(SOURCE)
    (root / "docs").mkdir()
    (root / "docs" / "a.txt").write_text("Sales rose.")
    return root


Learnloop = Callable[..., Done]


def test_list_shows_every_tool(own: Path, learnloop: Learnloop) -> None:
    done = learnloop("tools", "list", cwd=own)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].split() == ["double", "number", "Double", "a", "number."]
    names = [t["name"] for t in learnloop("tools", "list", "--json", cwd=own).json["tools"]]
    assert names == ["double", "search", "list", "cat"]


def test_list_shows_what_rows_say_of_tools_that_the_project_only_names(
    tmp_path: Path, learnloop: Learnloop
) -> None:
    bare = (
        CONFIG.partition("[[tools]]")[0]
        + '[[tools]]\nname = "find"\nserver_url = "http://x.example/call"\n'
    )
    root = make_project(tmp_path / "bare", config=bare)
    takes = {"type": "object", "properties": {"query": {"type": "string"}}}
    function = {"name": "find", "description": "Finds a product.", "parameters": takes}
    write_rows(root, a_row(0), a_row(1, tools=[{"type": "function", "function": function}]))
    done = learnloop("tools", "list", cwd=root)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].split() == ["find", "query", "Finds", "a", "product."]


def test_call_prints_the_answer_and_tells_errors_by_its_exit_code(
    own: Path, learnloop: Learnloop
) -> None:
    done = learnloop("tools", "call", "double", '{"number": 4}', cwd=own)
    assert (done.code, done.out) == (0, "8\n")
    done = learnloop("tools", "call", "double", '{"number": -4}', cwd=own)
    assert (done.code, done.out) == (1, "error: no negative numbers\n")
    done = learnloop("tools", "call", "double", '{"number": "x"}', cwd=own)
    assert done.code == 1
    done = learnloop("tools", "call", "double", '{"number": 13}', cwd=own)
    assert done.code == 5
    assert "bad luck" in done.line
    done = learnloop("tools", "call", "duble", cwd=own)
    assert done.code == 2
    assert "There are: double" in done.line


def test_what_a_tool_says_cannot_move_the_cursor(own: Path, learnloop: Learnloop) -> None:
    (own / "docs" / "a.txt").write_text("one\n\x1b[2Jtwo")
    done = learnloop("tools", "call", "cat", '{"path": "a.txt"}', cwd=own)
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "\N{REPLACEMENT CHARACTER}[2Jtwo" in done.out.splitlines()[-1]


def test_recorded_calls_are_answered_without_the_tools(own: Path, learnloop: Learnloop) -> None:
    calls = [{"name": "double", "arguments": {"number": n}} for n in (1, -1)]
    (own / "calls.jsonl").write_text("".join(json.dumps(c) + "\n" for c in calls))
    done = learnloop("tools", "record", "tape.jsonl", "--calls", "calls.jsonl", "--json", cwd=own)
    assert done.json["calls"] == 2
    assert done.json["errors"] == 1
    (own / "learnloop.toml").write_text(CONFIG + '[tools_replay]\ncassette = "tape.jsonl"\n')
    (own / "tools.py").unlink()
    done = learnloop("tools", "call", "double", '{ "number": 1 }', cwd=own)
    assert (done.code, done.out) == (0, "2\n"), done.err
    done = learnloop("tools", "call", "double", '{"number": 5}', cwd=own)
    assert done.code == 5
    assert 'does not have the call double({"number":5})' in done.line
    checked = learnloop("check", "--json", cwd=own).json
    assert [f for f in checked["findings"] if f["level"] == "error"] == []
    told = {f["where"]: f["what"] for f in checked["findings"]}
    assert told["tool `double`"] == "answers from a cassette"
    assert told["rehearsal"] == "0 tools called; graded 0"
