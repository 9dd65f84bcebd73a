"""The rehearsal goes through every tool and the grader as a rollout would, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.loopback import Answer, serving
from tests.tiny_project import CONFIG, a_row, edit, make_project, write_rows

from learnloop.check import CheckReport, check
from learnloop.codec.chat import schema
from learnloop.project import Project
from learnloop.rehearsal import made_up
from learnloop.toolcheck import TRACE
from learnloop.tools.arguments import argument_error

GRADER = '[grader]\ntype = "endpoint"\nurl = "{service:box}/grade"\n\n[network]'
NEEDS_QUERY = '\nrequired = ["query"]\n[tools.parameters.properties.query]\ntype = "string"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path / "tiny")


def checked(root: Path) -> CheckReport:
    return anyio.run(check, Project.open(root))


def errors_of(report: CheckReport) -> list[str]:
    return [f.line() for f in report.findings if f.level == "error"]


def test_every_tool_is_called_and_the_grader_judges_the_answer(root: Path):
    edit(root, "[network]", GRADER)
    report = checked(root)
    assert [f.what for f in report.findings if f.where == "rehearsal"] == [
        "2 tools called; graded 0"
    ]
    assert report.estimate is not None
    calls, rollouts = report.estimate.max_calls, report.estimate.rollouts
    assert [(u.name, u.calls) for u in report.uses] == [
        ("tool search", calls),
        ("tool cat", calls),
        ("grader", rollouts),
    ]
    assert all(use.seconds > 0 and use.minutes > 0 for use in report.uses)


def test_the_rehearsal_ends_its_episode_and_so_do_the_dry_calls(root: Path):
    with serving(lambda _: Answer()) as server:
        edit(
            root, 'description = "Finds."', f'episode_end_url = "{server.url}"\ndescription = "F."'
        )
        assert checked(root).ok
    rehearsed, dry = (seen.data for seen in server.seen)
    assert dry == {"type": "episode_end", "trace_id": TRACE}
    assert rehearsed["type"] == "episode_end"
    assert rehearsed["trace_id"] != TRACE


def test_a_small_budget_of_calls_does_not_keep_a_tool_from_being_called(root: Path):
    edit(root, "[model]", "[agent]\nmax_calls = 1\nmax_rounds = 1\n\n[model]")
    assert any("2 tools called" in f.what for f in checked(root).findings)


def test_a_tool_that_fails_on_real_arguments_only_is_caught(root: Path):
    edit(root, 'type = "object"\n\n[[services]]', f'type = "object"{NEEDS_QUERY}\n[[services]]')
    edit(root, "        else:\n", "        elif data['arguments'] != '{}' and data['name'] == 'cat':\n            self.answer(500, {'error': 'no such column'})\n        else:\n", file="server.py")  # fmt: skip
    report = checked(root)
    assert report.exit_code == 5
    (error,) = errors_of(report)
    assert error.startswith("rehearsal: tool cat: HTTP 500")
    assert "no such column" in error


def test_a_grader_that_fails_on_a_sample_with_calls_only_is_caught(root: Path):
    edit(root, "[network]", GRADER)
    edit(root, "            right =", "            if data['sample']['output_tools']:\n                return self.answer(500, {})\n            right =", file="server.py")  # fmt: skip
    report = checked(root)
    assert report.exit_code == 5
    assert errors_of(report)[0].startswith("rehearsal: grader: HTTP 500")


def test_nothing_is_rehearsed_while_rows_and_tools_do_not_fit(root: Path):
    bare = CONFIG.replace('description = "Finds."\n[tools.parameters]\ntype = "object"\n', "")
    (root / "learnloop.toml").write_text(bare)
    report = checked(root)
    assert len(errors_of(report)) == 1
    assert report.uses == ()


def test_a_schema_that_cannot_be_met_is_a_warning(root: Path):
    strict = {"type": "object", "required": ["q"], "properties": {"q": {"pattern": "^x{40}$"}}}
    search = {"type": "function", "function": {"name": "search", "parameters": strict}}
    cat = {"type": "function", "function": {"name": "cat"}}
    write_rows(root, *(a_row(n, tools=[search, cat]) for n in range(12)))
    report = checked(root)
    assert report.ok
    (warning,) = [f.line() for f in report.findings if f.where == "rehearsal"]
    assert warning == "rehearsal: no arguments could be made up for search; not called"


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"a": {"type": "string"}},
        {"a": {"type": "string", "maxLength": 3}},
        {"a": {"type": "string", "enum": ["x", "y"]}},
        {"a": {"const": 7}},
        {"a": {"type": "integer", "minimum": 5}},
        {"a": {"type": "number", "maximum": -2}},
        {"a": {"type": "boolean"}},
        {"a": {"type": ["null", "integer"]}},
        {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 2}},
        {"a": {"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}},
        {"a": {"type": "string", "default": "d"}, "b": {"examples": ["e"]}},
        {"a": {}},
        {"a": True},
    ],
    ids=str,
)
def test_made_up_arguments_fit_common_schemas(properties: dict[str, Any]):
    shape = {"type": "object", "required": list(properties), "properties": properties}
    tool = schema("t", "", shape)
    assert argument_error(tool, json.dumps(made_up(tool, "How many lamps are there?"))) == ""
