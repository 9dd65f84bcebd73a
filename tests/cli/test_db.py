"""`db` and `ledger` on a real store."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.conftest import Learnloop
from tests.store.first_version import make_first_version
from tests.store.rich_trace import SAID, rich_trace

from learnloop.event import Event
from learnloop.project import Project
from learnloop.session import project_store
from learnloop.store import Store, backups


@pytest.fixture
def run_id(root: Path) -> str:
    """Return a run with two rollouts, an event and a report."""
    project = Project.open(root)
    with project.open_store() as store:
        made = store.create_run(project.config, command="train", seed=0).id
        store.append_event(Event(kind="run_started", run_id=made, data={"project": "tiny"}))
        for number in range(2):
            store.save_trace(made, "train", 1, rich_trace(number))
        store.append_event(Event(kind="step", run_id=made, data={"step": 1}))
    page = project.run_folder(made) / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text(SAID)
    return made


def change(root: Path, statement: str) -> None:
    with closing(sqlite3.connect(root / ".learnloop" / "learnloop.db")) as raw:
        raw.execute(statement)
        raw.commit()


def test_a_whole_ledger_is_one_sentence(learnloop: Learnloop, root: Path, run_id: str):
    done = learnloop("ledger", "verify", "--project", root)
    assert done.code == 0, done.err
    assert done.out.startswith(
        "The ledger is whole: 3 entries, and 2 rollouts as they were stored."
    )
    assert done.out.count("\n") == 1
    data = learnloop("ledger", "verify", "--json", cwd=root).json
    assert (data["ok"], data["entries"], data["broken"], data["erased"]) == (True, 3, None, [])


def test_in_a_folder_of_projects_every_ledger_is_looked_at(
    learnloop: Learnloop, root: Path, run_id: str, tmp_path: Path
):
    shelf = tmp_path / "shelf"
    shutil.copytree(root, shelf / "one")
    assert learnloop("init", str(shelf / "two"), "--template", "http-tools").code == 0
    done = learnloop("ledger", "verify", cwd=shelf)
    assert done.code == 0, done.err
    assert [line[:31] for line in done.out.splitlines()] == [
        "one: The ledger is whole: 3 ent",
        "two: No runs are recorded here:",
    ]
    change(shelf / "one", "UPDATE rollouts SET value = 1.0")
    done = learnloop("ledger", "verify", "--json", cwd=shelf)
    assert done.code == 3
    assert [found["ok"] for found in done.json["ledgers"]] == [False, True]
    assert "one: ledger entry 2" in done.err
    done = learnloop("ledger", "verify", "--expect", "0" * 64, cwd=shelf)
    assert (done.code, "--project" in done.line) == (2, True)


def test_an_altered_entry_ends_with_3_and_is_named(learnloop: Learnloop, root: Path, run_id: str):
    change(root, "UPDATE rollouts SET value = 1.0")
    done = learnloop("ledger", "verify", "--quiet", cwd=root)
    assert (done.code, done.out) == (3, "")
    assert done.line.startswith("error: ledger entry 2 (rollouts_stored): altered: the numbers of")
    done = learnloop("ledger", "verify", "--json", cwd=root)
    assert done.code == 3
    assert (done.json["ok"], done.json["broken"]["seq"]) == (False, 2)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE step_totals SET value_sum = scored, calls = calls + 77",
        "DELETE FROM step_totals",
        "INSERT INTO tool_counts SELECT run_id, stage, step, 'forged', 500 FROM rollouts LIMIT 1",
    ],
)
def test_altered_totals_are_found(
    learnloop: Learnloop, root: Path, run_id: str, statement: str
) -> None:
    assert learnloop("ledger", "verify", cwd=root).code == 0
    change(root, statement)
    done = learnloop("ledger", "verify", "--quiet", cwd=root)
    assert done.code == 3
    assert f"the totals of run {run_id} are not those of its rollouts" in done.line


def test_a_head_that_was_noted_is_found_again(learnloop: Learnloop, root: Path, run_id: str):
    head = learnloop("ledger", "verify", "--json", cwd=root).json["head"]
    same = learnloop("ledger", "verify", "--expect", head.upper(), cwd=root)
    assert same.code == 0
    assert "The expected head is that of entry 3; 0 entries follow it." in same.out
    assert learnloop("db", "purge", "--run", run_id, cwd=root).code == 0
    later = learnloop("ledger", "verify", "--expect", head, "--json", cwd=root)
    assert (later.code, later.json["ok"]) == (0, True)
    assert later.json["expected"] == {"hash": head, "entry": 3, "since": 1}
    assert later.json["head"] != head


def test_a_ledger_without_the_noted_head_ends_with_3(learnloop: Learnloop, root: Path, run_id: str):
    head = learnloop("ledger", "verify", "--json", cwd=root).json["head"]
    # Cut short with everything that it told of: whole in itself.
    change(root, "DELETE FROM ledger WHERE seq = 3")
    change(root, "DELETE FROM events WHERE kind = 'step'")
    assert learnloop("ledger", "verify", cwd=root).code == 0
    done = learnloop("ledger", "verify", "--expect", head, "--quiet", cwd=root)
    assert (done.code, done.out) == (3, "")
    assert done.line.startswith(f"error: the ledger does not hold the expected head {head}: ")
    told = learnloop("ledger", "verify", "--expect", head, "--json", cwd=root).json
    assert (told["ok"], told["broken"], told["expected"]["entry"]) == (False, None, None)
    (root / ".learnloop" / "learnloop.db").unlink()
    assert learnloop("ledger", "verify", "--expect", head, cwd=root).code == 3
    done = learnloop("ledger", "verify", "--expect", head[:12], cwd=root)
    assert (done.code, "is no head: it has 64 digits" in done.line) == (2, True)


def test_a_project_without_runs_has_an_empty_ledger_that_is_whole(
    learnloop: Learnloop, root: Path, tmp_path: Path
):
    done = learnloop("ledger", "verify", cwd=root)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"No runs are recorded here: the ledger has no entries. Head {'0' * 64}.\n"
    data = learnloop("ledger", "verify", "--expect", "0" * 64, "--json", cwd=root).json
    assert (data["ok"], data["entries"], data["expected"]["since"]) == (True, 0, 0)
    assert not (root / ".learnloop" / "learnloop.db").exists()
    (nowhere := tmp_path / "nowhere").mkdir()
    outside = learnloop("ledger", "verify", cwd=nowhere)
    assert outside.code == 4
    assert "`--project DIR` names one" in outside.line


def test_entries_are_shown_with_their_hashes(learnloop: Learnloop, root: Path, run_id: str):
    data = learnloop("ledger", "show", "--json", cwd=root).json
    assert [e["kind"] for e in data["entries"]] == ["run_started", "rollouts_stored", "step"]
    assert data["entries"][1]["data"]["rollouts"] == 2
    done = learnloop("ledger", "show", "--run", "latest", cwd=root)
    assert done.out.count("\n") == 4
    assert "stage train, step 1, rollouts 2" in done.out


def test_a_purged_rollout_is_erased_everywhere_and_told_of(
    learnloop: Learnloop, root: Path, run_id: str
):
    name = rich_trace(0).id
    done = learnloop("db", "purge", "--rollout", name[:20], "--reason", "asked for", cwd=root)
    assert done.code == 0, done.err
    assert done.out.startswith("erased the texts of 1 rollouts in 1 runs\nremoved ")
    assert not (root / ".learnloop/runs" / run_id / "report.html").exists()
    told = learnloop("ledger", "verify", cwd=root)
    assert told.code == 0
    assert f"texts of 1 rollouts of run {run_id}, reason: asked for (entry 4)" in told.out
    shown = learnloop("show", name, cwd=root)
    assert "of what was said, the store kept: erased" in shown.out
    assert "ada.lovelace" not in shown.out


def test_a_run_and_old_runs_can_be_purged(learnloop: Learnloop, root: Path, run_id: str):
    assert learnloop("db", "purge", "--older-than", "1", "--json", cwd=root).json["rollouts"] == 0
    change(
        root,
        "UPDATE runs SET created_at = '20' || (substr(created_at, 3, 2) - 1) || substr(created_at, 5)",
    )
    data = learnloop("db", "purge", "--older-than", "1", "--json", cwd=root).json
    assert (data["rollouts"], data["runs"]) == (2, [run_id])
    assert learnloop("db", "purge", "--run", "latest", "--json", cwd=root).json["rollouts"] == 0
    change(
        root,
        "UPDATE runs SET created_at = '20' || (substr(created_at, 3, 2) + 1) || substr(created_at, 5)",
    )
    assert learnloop("ledger", "verify", cwd=root).code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("db", "purge"), "name what to erase, in one way"),
        (("db", "purge", "--run", "latest", "--older-than", "3"), "name what to erase, in one way"),
        (("db", "purge", "--run", "nope"), "no run 'nope'"),
        (("db", "purge", "--rollout", "trace_x"), "no trace 'trace_x'"),
        (("db", "purge", "--older-than", "-1"), "outside 0 to 36500"),
        (("ledger", "show", "--run", "nope"), "no run 'nope'"),
    ],
)
def test_a_mistake_is_one_line_and_2(
    learnloop: Learnloop, root: Path, run_id: str, words: tuple[str, ...], told: str
):
    done = learnloop(*words, cwd=root)
    assert (done.code, done.out) == (2, "")
    assert told in done.line


@pytest.mark.parametrize(
    "words",
    [("db", "backup"), ("db", "purge", "--run", "latest"), ("db", "upgrade"), ("ledger", "show")],
)
def test_a_project_without_runs_has_nothing_to_look_after(
    learnloop: Learnloop, root: Path, words: tuple[str, ...]
):
    done = learnloop(*words, cwd=root)
    assert (done.code, done.out) == (2, "")
    assert done.line == "error: this project has no runs yet. `learnloop train` makes one."
    assert not (root / ".learnloop" / "learnloop.db").exists()


def test_a_backup_is_a_whole_store(learnloop: Learnloop, root: Path, run_id: str, tmp_path: Path):
    target = tmp_path / "copy.db"
    data = learnloop("db", "backup", "--to", target, "--json", cwd=root).json
    assert data["backup"] == str(target)
    with Store.open(target) as copy:
        assert copy.audit().broken is None
        assert copy.trace(rich_trace(1).id) == rich_trace(1)
    done = learnloop("db", "backup", "--to", target, cwd=root)
    assert (done.code, "there is a file already" in done.line) == (2, True)
    assert learnloop("db", "backup", cwd=root).out.startswith(
        "backup: .learnloop/backups/learnloop-v"
    )
    purged = learnloop("db", "purge", "--run", run_id, cwd=root)
    assert "backups still hold the texts" in purged.err


def test_an_old_database_is_upgraded_when_asked_and_not_by_a_dry_run(
    learnloop: Learnloop, root: Path
):
    make_first_version(root / ".learnloop" / "learnloop.db")
    done = learnloop("db", "upgrade", "--dry-run", cwd=root)
    assert done.code == 0, done.err
    assert done.out.startswith("would run 0002: ")
    data = learnloop("db", "upgrade", "--json", cwd=root).json
    assert (data["from"], data["to"], len(data["migrations"])) == (1, 2, 1)
    assert Path(data["backup"]).exists()
    assert learnloop("db", "upgrade", cwd=root).out == "the database has version 2, the newest\n"
    assert learnloop("ledger", "verify", cwd=root).code == 0


@pytest.mark.parametrize("words", [("runs",), ("db", "upgrade"), ("ledger", "verify")])
def test_an_old_database_is_not_upgraded_while_another_process_works_on_it(
    learnloop: Learnloop, root: Path, words: tuple[str, ...]
):
    path = make_first_version(root / ".learnloop" / "learnloop.db")
    before = path.read_bytes()
    with Project.open(root).lock():
        done = learnloop(*words, cwd=root)
    assert (done.code, done.out) == (1, "")
    assert "the database must be upgraded, but another learnloop (process" in done.line
    assert done.line.endswith("Wait for it or stop it.")
    assert (path.read_bytes(), backups(path)) == (before, [])
    assert learnloop(*words, cwd=root).code == 0
    assert len(backups(path)) == 1


def test_the_holder_of_the_project_upgrades_it(root: Path):
    make_first_version(root / ".learnloop" / "learnloop.db")
    with project_store(Project.open(root)) as store:
        assert store.backup is not None
        assert [run.id for run in store.runs()] == ["run-1"]


def test_a_purge_beside_a_busy_reader_says_so_and_ends_with_1(
    learnloop: Learnloop, root: Path, run_id: str
):
    database = root / ".learnloop" / "learnloop.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        done = learnloop("db", "purge", "--run", run_id, "--json", cwd=root)
        assert done.code == 1
        assert (done.json["rollouts"], done.json["log_emptied"]) == (2, False)
        assert "another process is reading the database" in done.err
        assert "the texts are not overwritten yet. End what reads" in done.err.splitlines()[-1]
        reader.execute("COMMIT")
        again = learnloop("db", "purge", "--run", run_id, "--json", cwd=root)
    assert (again.code, again.json["rollouts"], again.json["log_emptied"]) == (0, 0, True)
