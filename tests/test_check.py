"""The check finds what would waste a run, and says where and how to mend it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.tiny_project import CONFIG, a_row, edit, make_project, write_rows

from learnloop.check import CheckReport, check
from learnloop.errors import EndpointError
from learnloop.project import Project

GRADER = '[grader]\ntype = "endpoint"\nurl = "{service:box}/grade"\n\n[network]'
SCHEMA = {"type": "function", "function": {"name": "search", "description": "Finds."}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_project(tmp_path / "tiny")


def checked(root: Path) -> CheckReport:
    return anyio.run(check, Project.open(root))


def error_of(root: Path) -> tuple[int, str]:
    report = checked(root)
    lines = [f.line() for f in report.findings if f.level == "error"]
    assert len(lines) == 1, lines
    assert not report.ok
    return report.exit_code, lines[0]


def warnings_of(root: Path) -> str:
    return "\n".join(f.line() for f in checked(root).findings if f.level == "warning")


def test_a_sound_project_has_no_errors_and_an_estimate(root: Path):
    report = checked(root)
    assert report.ok
    assert report.exit_code == 0
    report.raise_for_errors()
    assert report.estimate is not None
    # 6 train tasks x 3 attempts x before and after; 3 looks and an A/A run at 2 screen tasks +
    # 80 pairs; 10 x 64.
    assert (report.estimate.probe, report.estimate.evaluation) == (36, 168)
    assert (report.estimate.training, report.estimate.rollouts) == (640, 844)
    assert report.estimate.max_calls == 8440


def test_tools_without_any_schema_are_caught(root: Path):
    bare = CONFIG.replace('description = "Finds."\n[tools.parameters]\ntype = "object"\n', "")
    (root / "learnloop.toml").write_text(bare)
    code, line = error_of(root)
    assert code == 4
    assert "tool `search` is served, but no row and no setting has its schema" in line


def test_rows_that_offer_no_tool_among_rows_that_do_are_caught(root: Path):
    write_rows(root, *(a_row(n, tools=[SCHEMA] if n else []) for n in range(6)))
    report = checked(root)
    assert any("1 of 6 rows offer no tool" in f.what for f in report.findings)


def test_a_schema_that_differs_between_row_and_project_is_a_warning(root: Path):
    other = {"type": "function", "function": {"name": "search", "description": "Else."}}
    cat = {"type": "function", "function": {"name": "cat"}}
    write_rows(root, *(a_row(n, tools=[other, cat]) for n in range(12)))
    assert "tool `search` has one schema in rows and another in the project" in warnings_of(root)


def test_a_row_that_names_a_tool_of_another_name_is_caught(root: Path):
    serach = {"type": "function", "function": {"name": "serach"}}
    write_rows(root, a_row(0), a_row(1, tools=[serach]))
    code, line = error_of(root)
    assert code == 4
    assert line == (
        "data/tasks.jsonl:2: names a tool `serach` that the project does not have. "
        "Did you mean `search`?"
    )


def test_a_name_that_the_server_does_not_know_is_caught(root: Path):
    edit(root, 'NAMES = ("search", "cat")', 'NAMES = ("find", "cat")', file="server.py")
    code, line = error_of(root)
    assert code == 5
    assert line.startswith(
        "tool `search`: its server does not know this tool: unknown tool search. "
        "Names must match exactly"
    )


def test_an_address_without_a_page_is_caught(root: Path):
    edit(root, 'name = "cat"\nserver_url = "{service:box}/call', 'name = "cat"\nserver_url = "{service:box}/cal')  # fmt: skip
    code, line = error_of(root)
    assert code == 5
    assert line.startswith("tool `cat`: its server does not know this tool: Not Found")


def test_a_tool_server_that_is_down_is_caught(root: Path):
    edit(root, '{service:box}/call"\ndescription = "Opens."', 'http://127.0.0.1:9/call"\ndescription = "Opens."')  # fmt: skip
    code, line = error_of(root)
    assert code == 5
    assert line.startswith("tool `cat`: ")
    with pytest.raises(EndpointError):
        checked(root).raise_for_errors()


def test_a_private_address_needs_permission(root: Path):
    edit(root, "allow_private = true", "allow_private = false")
    code, line = error_of(root)
    assert code == 4
    assert "allow_private" in line


def test_a_service_that_ends_early_is_told_with_its_last_words(root: Path):
    (root / "server.py").write_text("raise SystemExit('no index')")
    code, line = error_of(root)
    assert code == 5
    assert line.endswith("it last wrote: no index")


def test_a_grader_that_returns_text_is_caught(root: Path):
    edit(root, "[network]", GRADER)
    assert checked(root).ok
    edit(root, 'SCORE = "exact"', 'SCORE = "text"', file="server.py")
    code, line = error_of(root)
    assert code == 5
    assert "answered a score that is no number from 0 to 1: 'great'" in line


def test_a_grader_that_likes_empty_answers_is_caught(root: Path):
    edit(root, "[network]", GRADER)
    edit(root, 'SCORE = "exact"', 'SCORE = "fooled"', file="server.py")
    code, line = error_of(root)
    assert code == 3
    assert "an empty or evasive answer scores 1, as much as a right one" in line


def test_a_gold_answer_that_scores_low_is_caught(root: Path):
    # The reference names a field that is a number, but not the one the server compares with.
    edit(root, "[network]", GRADER.replace("[grader]", '[grader]\nreference = "size"'))
    write_rows(root, *(a_row(n, size=1000) for n in range(12)))
    code, line = error_of(root)
    assert code == 3
    assert "the expected answer `1000` scores 0" in line


def test_a_missing_model_is_an_error_unless_none_is_needed(root: Path):
    edit(root, 'ref = "model"', 'ref = "smollm3"')
    code, line = error_of(root)
    assert code == 4
    assert "smollm3" in line
    project = Project.open(root)

    async def without_model() -> CheckReport:
        return await check(project, needs_model=False)

    assert anyio.run(without_model).ok


def test_a_kind_that_no_task_has_is_caught(root: Path):
    edit(root, "[network]", "[curriculum]\nweights = { zz = 1 }\n\n[network]")
    code, line = error_of(root)
    assert code == 4
    assert line.startswith("[curriculum] weights: no training task has kind `zz`. ")


def test_a_missing_prompt_is_told_once(root: Path):
    (root / "prompts" / "system.md").unlink()
    code, line = error_of(root)
    assert code == 4
    assert line.startswith("prompts/system.md: ")


def test_a_group_in_two_splits_is_caught_and_so_is_a_missing_split(root: Path):
    write_rows(root, *(a_row(n, group="same" if n in (0, 3) else f"g{n}") for n in range(12)))
    code, line = error_of(root)
    assert code == 4
    assert "group 'same' is in train" in line
    write_rows(root, *(a_row(n) for n in range(12) if n % 6 != 4))
    assert error_of(root)[1].startswith("splits: no task is in split `confirm`")


def test_demonstrations_of_held_out_tasks_are_caught(root: Path):
    demo = (
        '{"task_id": "task-%d", "messages": [{"role": "user", "content": "x"}, '
        '{"role": "assistant", "content": "1"}]}\n'
    )
    edit(root, "[network]", '[warmup]\npath = "data/demos.jsonl"\n\n[network]')
    (root / "data" / "demos.jsonl").write_text(demo % 0)
    assert checked(root).ok
    (root / "data" / "demos.jsonl").write_text(demo % 4)
    code, line = error_of(root)
    assert code == 4
    assert "1 demonstrations solve held-out tasks, such as `task-4`" in line


ASKED = "How many are 4 and 4?"


def test_a_question_that_is_learned_and_decides_is_an_error(root: Path):
    said = [{"role": "user", "content": f" {ASKED.upper()}"}]
    write_rows(root, *(a_row(n, **({"messages": said} if n == 3 else {})) for n in range(12)))
    code, line = error_of(root)
    assert code == 4
    assert "the same question text is in screen (task-3) and confirm (task-4)" in line
    said = [{"role": "user", "content": "How many are 0 and 0?"}]
    write_rows(root, *(a_row(n, **({"messages": said} if n == 3 else {})) for n in range(12)))
    assert "the same question text is in train (task-0) and screen (task-3)" in warnings_of(root)


@pytest.mark.parametrize("name", ["", '"task_id": "elsewhere-7", '])
def test_demonstrations_are_known_by_their_question_too(root: Path, name: str):
    edit(root, "[network]", '[warmup]\npath = "data/demos.jsonl"\n\n[network]')
    (root / "data" / "demos.jsonl").write_text(
        f'{{{name}"messages": [{{"role": "user", "content": "{ASKED}"}}, '
        '{"role": "assistant", "content": "8"}]}\n'
    )
    code, line = error_of(root)
    assert code == 4
    assert "1 demonstrations solve held-out tasks, such as `task-4`" in line


def test_parameters_that_are_no_schema_are_caught_with_the_tools_name(root: Path):
    bad = {"function": {"name": "cat", "parameters": {"type": "objekt"}}}
    search = {"type": "function", "function": {"name": "search", "description": "Finds."}}
    write_rows(root, *(a_row(n, tools=[search, bad]) for n in range(12)))
    code, line = error_of(root)
    assert code == 4
    assert line.startswith("data/tasks.jsonl: `parameters` of tool `cat` are no valid JSON schema")
    write_rows(root)
    edit(root, 'description = "Opens."\n[tools.parameters]\ntype = "object"', 'description = "Opens."\n[tools.parameters]\ntype = 5')  # fmt: skip
    assert error_of(root)[1].startswith("learnloop.toml: `parameters` of tool `cat` are no valid")


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"answer": "12 or 13"}, "'12 or 13', not one number"), ({"rel_tol": "0.01"}, "rel_tol is")],
)
def test_a_reference_that_cannot_be_read_is_caught_in_whatever_row(
    root: Path, changes: dict[str, object], words: str
):
    write_rows(root, *(a_row(n, **(changes if n == 11 else {})) for n in range(12)))
    code, line = error_of(root)
    assert code == 4
    assert line.startswith("data/tasks.jsonl: task task-11: ")
    assert words in line


@pytest.mark.parametrize("status", [401, 403])
def test_a_tool_that_refuses_our_credentials_is_caught(root: Path, status: int):
    edit(root, 'if data["name"] not in NAMES', 'if data["name"] == "cat"', file="server.py")
    edit(
        root, '(404, {"error": f"unknown tool', f'({status}, {{"error": f"expired', file="server.py"
    )
    code, line = error_of(root)
    assert code == 5
    assert line.startswith(f"tool `cat`: its server refused our credentials (HTTP {status})")
