"""Upgrades: files of the first version come along whole, after a backup."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from tests.store.first_version import TRACES, make_first_version

from learnloop.errors import ConfigError, UsageError
from learnloop.store import VERSION, Store, back_up, backup_file, backups, file_version
from learnloop.store.upgrade import migrate_new, missing


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a file as the first version wrote it, with a run, two events and eight rollouts."""
    return make_first_version(tmp_path / "a folder of 100%" / "learnloop.db")


def schema(path: Path) -> Mapping[str, object]:
    """Return what a database's tables and indexes are made of."""
    with closing(sqlite3.connect(path)) as raw:
        names = raw.execute("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        found: dict[str, object] = {}
        for name, kind in names.fetchall():
            if kind == "table":
                columns = raw.execute(f"PRAGMA table_info({name})").fetchall()
                keys = sorted(r[2:5] for r in raw.execute(f"PRAGMA foreign_key_list({name})"))
                found[name] = (columns, keys)
            else:
                parts = [r[2] for r in raw.execute(f"PRAGMA index_info({name})")]
                sql = raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
                found[name] = (parts, "WHERE" in sql.fetchone()[0])
        return found


def test_an_old_file_is_upgraded_in_place_without_losing_a_row(old: Path) -> None:
    assert file_version(old) == 1
    with Store.open(old) as store:
        assert store.traces("run-1") == list(TRACES)
        assert [r.task_id for r in store.rows("run-1")] == [t.task_id for t in TRACES]
        assert [e.kind for e in store.events("run-1")] == ["run_started", "step"]
        assert store.run("run-1").status == "stopped"
        assert [(t.tool, t.calls) for t in store.tool_distribution("run-1")] == [("search", 8)]
        assert sum(t.rollouts for t in store.totals("run-1")) == 8
        found = store.audit()
        assert (found.broken, found.rollouts, found.pending) == (None, 8, 0)
        assert [e.kind for e in store.ledger()] == ["ledger_started", "rollouts_stored"]
    assert file_version(old) == VERSION


def test_the_file_before_an_upgrade_is_kept_and_only_the_last_ones_are(old: Path) -> None:
    before = old.read_bytes()
    with Store.open(old) as store:
        made = store.backup
    assert made is not None
    assert made.name.startswith("learnloop-before-upgrade-v1-20")
    assert file_version(made) == 1
    with closing(sqlite3.connect(made)) as raw:
        assert raw.execute("SELECT count(*) FROM rollouts").fetchone() == (8,)
    kept = back_up(old, backup_file(old, "v2"))
    for _ in range(5):
        old.write_bytes(before)
        Store.open(old).close()
    assert len(backups(old)) == 4
    assert kept in backups(old)  # one that was asked for is never deleted


def test_a_file_of_this_version_makes_no_backup_and_loads_no_alembic(old: Path) -> None:
    Store.open(old).close()
    code = (
        "import sys; from pathlib import Path; from learnloop.store import Store\n"
        f"store = Store.open(Path({str(old)!r})); assert store.backup is None\n"
        "store.runs(); store.close(); assert 'alembic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(backups(old)) == 1


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(old: Path) -> None:
    with closing(sqlite3.connect(old)) as raw:
        raw.execute("UPDATE rollouts SET trace_json = x'00' WHERE task_id = 'task-5'")
        raw.commit()
    with pytest.raises(ConfigError, match=r"task-5|cannot be upgraded"):
        Store.open(old)
    assert file_version(old) == 1
    assert "ledger" not in schema(old)


def test_migrations_make_what_new_files_have(tmp_path: Path, old: Path) -> None:
    new, migrated = tmp_path / "new.db", tmp_path / "migrated.db"
    Store.open(new).close()
    engine = create_engine(f"sqlite:///{migrated}")
    with engine.begin() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        migrate_new(connection)
    engine.dispose()
    Store.open(old).close()
    assert schema(migrated) == schema(new)
    assert schema(old) == schema(new)
    with closing(sqlite3.connect(new)) as raw:
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [("0002",)]


def test_there_is_one_migration_for_every_version() -> None:
    assert [line[:4] for line in missing(0)] == [f"{n:04}" for n in range(1, VERSION + 1)]
    assert missing(VERSION) == []


def test_two_processes_may_open_an_old_file_at_once(old: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from learnloop.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store: print(len(store.traces('run-1')))"
    )
    command = [sys.executable, "-c", code, str(old)]
    openers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [opener.communicate()[0] for opener in openers] == ["8\n"] * 3
    assert len(backups(old)) == 1


def test_a_backup_holds_what_is_only_in_the_log_yet(tmp_path: Path) -> None:
    path, target = tmp_path / "learnloop.db", tmp_path / "copies" / "mine.db"
    with Store.open(path) as store, Store.open(path) as other:
        with store.writing() as connection:
            connection.exec_driver_sql(
                "INSERT INTO runs VALUES ('r', 'now', 'train', '{}', 'cfg', 'done', 1, '{}')"
            )
        assert back_up(path, target) == target
        assert other.run("r").status == "done"
    with Store.open(target) as copy:
        assert copy.run("r").status == "done"
    with pytest.raises(UsageError, match="file already"):
        back_up(path, target)
    assert list(target.parent.glob("*.partial*")) == []


def test_a_backup_of_no_database_is_refused(tmp_path: Path) -> None:
    notes = tmp_path / "notes.db"
    notes.write_text("somebody's notes" * 100)
    with pytest.raises(ConfigError, match="cannot back up"):
        back_up(notes, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()
