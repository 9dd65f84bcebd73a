"""`learnloop import openai-rft`: a whole folder or nothing, and a check that passes on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.conftest import Learnloop
from tests.cli.test_verbs import state_of
from tests.formats.hosted_job import SECRET, a_row, a_tool, lines, write_job
from tests.loopback import Answer, Loopback, Seen, serving

from learnloop.check import CheckReport, check
from learnloop.project import Project

FILES = (
    *("--train", "train.jsonl", "--validation", "validation.jsonl"),
    *("--grader", "grader.json", "--tools", "tools.json"),
)
SCORE_MODEL: dict[str, Any] = {"type": "score_model", "model": "gpt", "input": []}


def answers(seen: Seen) -> Answer:
    """Search knows its own name; the grader wants the row's answer."""
    if seen.path == "/grade":
        said = seen.data["sample"]["output_text"].removeprefix("Answer: ")
        right = said == seen.data["item"]["answer"]
        return Answer(body={"score": float(right)})
    if seen.headers.get("Authorization") != f"Bearer {SECRET}":
        return Answer(status=401, body={"error": "who are you"})
    if seen.data["name"] != "search":
        return Answer(status=404, body={"error": f"unknown tool {seen.data['name']}"})
    return Answer(body={"output": "found", "call_id": seen.data["call_id"]})


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving(answers) as running:
        yield running


def with_server(folder: Path, server: Loopback, **changes: Any) -> None:
    """Write a job whose endpoints are on this machine."""
    tool = a_tool(server_url=server.url, headers={"Authorization": f"Bearer {SECRET}"})
    grader = {"type": "endpoint", "url": server.url.replace("/tool", "/grade")}
    # Every split gets its share of 120 groups.
    rows = lines([a_row(n) for n in range(100, 220)])
    changes = {"validation": rows, **changes}
    write_job(folder, tools=[tool], grader=grader, **changes)


def checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CheckReport:
    monkeypatch.setenv("SEARCH_AUTHORIZATION", SECRET)

    async def run() -> CheckReport:
        return await check(Project.open(folder), needs_model=False)

    return anyio.run(run)


def test_an_imported_project_passes_the_check(
    learnloop: Learnloop, tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
):
    with_server(tmp_path, server)
    done = learnloop("import", "openai-rft", *FILES, "--to", "mine")
    assert done.code == 0, done.err
    assert "set SEARCH_AUTHORIZATION in the environment: header Authorization of search" in done.out
    assert done.err.endswith("next: learnloop check mine\n")
    assert SECRET not in done.out + done.err
    assert not any(SECRET.encode() in data for data in state_of(tmp_path / "mine").values())
    report = checked(tmp_path / "mine", monkeypatch)
    assert [f.line() for f in report.findings if f.level == "error"] == []


def test_the_check_catches_rows_without_schemas_in_an_imported_project(
    learnloop: Learnloop, tmp_path: Path, server: Loopback, monkeypatch: pytest.MonkeyPatch
):
    bare = [{k: v for k, v in a_row(n).items() if k != "tools"} for n in range(126)]
    with_server(tmp_path, server, train=lines(bare[:6]), validation=lines(bare[6:]))
    done = learnloop("import", "openai-rft", *FILES, "--to", "mine")
    assert done.code == 0
    assert "warning: 126 of 126 rows have no `tools`" in done.out
    report = checked(tmp_path / "mine", monkeypatch)
    assert report.exit_code == 4
    assert "tool `search` is served, but no row and no setting has its schema" in " ".join(
        f.what for f in report.findings if f.level == "error"
    )


def test_what_cannot_be_mapped_stops_the_import_unless_it_is_allowed(
    learnloop: Learnloop, tmp_path: Path
):
    write_job(tmp_path, grader=SCORE_MODEL)
    before = state_of(tmp_path)
    done = learnloop("import", "openai-rft", *FILES, "--to", "mine")
    assert done.code == 4
    assert done.line.startswith(
        "error: nothing was written, because this has no equal here: grader (score_model)."
    )
    assert "grader (score_model)" in done.out
    assert state_of(tmp_path) == before
    allowed = learnloop(
        "import", "openai-rft", *FILES, "--to", "mine", "--allow-unmapped", "--json"
    )
    assert allowed.code == 0
    assert allowed.json["files"] == ["data/tasks.jsonl", "learnloop.toml", "prompts/system.md"]
    assert [m["fate"] for m in allowed.json["mapped"]] == ["taken", "unmapped"]
    assert "has no equal here" in (tmp_path / "mine" / "learnloop.toml").read_text()
    for verb in ("check", "train"):
        refused = learnloop(verb, "--project", "mine")
        assert refused.code == 4
        assert "grader.type" in refused.err + refused.out
        assert "no grader was chosen" in refused.err + refused.out


def test_a_folder_with_files_is_never_touched(learnloop: Learnloop, tmp_path: Path):
    write_job(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    before = state_of(tmp_path)
    done = learnloop("import", "openai-rft", *FILES, "--to", "mine")
    assert done.code == 2
    assert "mine: is there already and is never overwritten" in done.err
    assert state_of(tmp_path) == before
    (tmp_path / "mine" / "notes.txt").unlink()
    assert learnloop("import", "openai-rft", *FILES, "--to", "mine").code == 0


def test_a_folder_below_nothing_is_one_line(learnloop: Learnloop, tmp_path: Path):
    write_job(tmp_path)
    done = learnloop("import", "openai-rft", *FILES, "--to", "no/where")
    assert done.code == 2
    assert done.line == "error: no: there is no such folder. Make it first."


def test_a_bad_row_is_one_line_and_nothing_is_written(learnloop: Learnloop, tmp_path: Path):
    write_job(tmp_path, validation=lines([a_row(0)]) + "{\n")
    before = state_of(tmp_path)
    done = learnloop("import", "openai-rft", *FILES)
    assert done.code == 4
    assert done.line.startswith("error: validation.jsonl:2: is not valid JSON")
    assert state_of(tmp_path) == before


def test_a_grader_must_be_named_somewhere(learnloop: Learnloop, tmp_path: Path):
    write_job(tmp_path)
    done = learnloop("import", "openai-rft", *FILES[:4])
    assert done.code == 2
    assert done.line == "error: no grader is named. Name its JSON file with --grader."
