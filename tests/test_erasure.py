"""Erasure: no report quotes what was erased, no rollout stays under way, whoever was killed."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.store.rich_trace import SAID, rich_trace
from tests.tiny_project import edit, make_project

from learnloop.event import Event
from learnloop.project import Project
from learnloop.session import project_store
from learnloop.store import Store

FILES = ("report.html", "report.json", "report.md", ".report.md.1.partial")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.open(make_project(tmp_path / "tiny"))


@pytest.fixture
def run_id(project: Project) -> str:
    """Return a run of old with two rollouts and a report that quotes them."""
    with project.open_store() as store:
        made = store.create_run(project.config, command="train", seed=0)
        store.append_event(Event(kind="run_started", run_id=made.id))
        for number in range(2):
            store.save_trace(made.id, "train", 1, rich_trace(number))
        store.append_event(Event(kind="run_ended", run_id=made.id))
        store.set_status(made.id, "done")
    began(project, "2020-01-01T00:00:00+00:00")
    write_report(project, made.id)
    return made.id


def began(project: Project, when: str) -> None:
    """Date the runs, which the ledger knows better: an audit after it finds that."""
    with closing(sqlite3.connect(project.database)) as raw:
        raw.execute("UPDATE runs SET created_at = ?", (when,))
        raw.commit()


def write_report(project: Project, run_id: str) -> None:
    folder = project.run_folder(run_id)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text(SAID)


def reports(project: Project, run_id: str) -> list[str]:
    return sorted(path.name for path in project.run_folder(run_id).iterdir())


def contents(store: Store, run_id: str) -> set[str]:
    return {trace.content for trace in store.traces(run_id)}


def keeping_days(project: Project) -> Project:
    edit(project.root, "[network]", "[store]\nretention_days = 30\n\n[network]")
    return Project.open(project.root)


@contextmanager
def reading(project: Project) -> Generator[sqlite3.Connection]:
    """Read the database, and be in the middle of it, as another process would."""
    with closing(sqlite3.connect(project.database, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        assert raw.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        yield raw


def left_on_disk(project: Project) -> bytes:
    log = project.database.with_name("learnloop.db-wal")
    return project.database.read_bytes() + (log.read_bytes() if log.exists() else b"")


def test_retention_takes_the_reports_with_the_texts(project: Project, run_id: str) -> None:
    told: list[str] = []
    with project_store(keeping_days(project), tell=told.append) as store:
        assert contents(store, run_id) == {"erased"}
    assert reports(project, run_id) == []
    assert len(told) == len(FILES)
    assert all("quoted texts older than 30 days" in words for words in told)


def test_reports_are_gone_before_texts_are_erased_for_good(project: Project, run_id: str) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from learnloop.store import Store\n"
        "with Store.open(Path(sys.argv[1])) as store:\n"
        "    store.erase(reason='x', on_runs=lambda runs: os.kill(os.getpid(), signal.SIGKILL))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(project.database)], check=False)
    assert killed.returncode == -signal.SIGKILL
    stamp = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    began(project, stamp.isoformat())
    with project_store(project) as store:
        assert contents(store, run_id) == {"full"}
        assert store.audit().broken is None
    assert len(reports(project, run_id)) == len(FILES)


def test_a_report_that_an_erasure_left_is_removed_by_the_next_start(
    project: Project, run_id: str
) -> None:
    with project.open_store() as store:
        store.erase(reason="killed right after", run_id=run_id)
    told: list[str] = []
    with project_store(project, tell=told.append):
        assert reports(project, run_id) == []
    assert len(told) == len(FILES)
    # One that was made since then quotes nothing, and stays.
    time.sleep(0.02)
    write_report(project, run_id)
    with project_store(project, tell=told.append):
        pass
    assert len(reports(project, run_id)) == len(told) == len(FILES)


def test_a_busy_reader_is_told_of_and_the_next_start_overwrites_the_texts(
    project: Project, run_id: str
) -> None:
    with closing(sqlite3.connect(project.database)) as raw:
        gone = [row[0] for row in raw.execute("SELECT body FROM contents")]
    told: list[str] = []
    with reading(project) as reader:
        began_s = time.monotonic()
        with project_store(keeping_days(project), tell=told.append) as store:
            assert contents(store, run_id) == {"erased"}
            assert store.is_log_due
        assert 4 < time.monotonic() - began_s < 25
        assert "erased texts may still be in learnloop.db and learnloop.db-wal" in told[-1]
        assert any(body in left_on_disk(project) for body in gone)
        reader.execute("COMMIT")
        with project_store(project, tell=told.append) as store:
            assert not store.is_log_due
            assert not any(body in left_on_disk(project) for body in gone)
    assert len(told) == len(FILES) + 1


def test_reduced_texts_are_overwritten_when_the_reader_is_done(
    project: Project, run_id: str
) -> None:
    with closing(sqlite3.connect(project.database)) as raw:
        gone = [row[0] for row in raw.execute("SELECT body FROM contents")]
    with reading(project) as reader, project_store(project) as store:
        assert store.reduce(run_id, "none", "train", upto=1) == 2
        assert store.is_log_due
        assert any(body in left_on_disk(project) for body in gone)
        reader.execute("COMMIT")
        assert store.empty_log()
        assert not any(body in left_on_disk(project) for body in gone)


@pytest.mark.parametrize("command", ["eval", "probe"])
def test_rollouts_of_a_killed_run_that_nothing_goes_on_with_are_recorded_and_forgotten(
    project: Project, command: str
) -> None:
    with project.open_store() as store:
        run_id = store.create_run(project.config, command=command, seed=0).id
        store.append_event(Event(kind="run_started", run_id=run_id, data={"spent_s": 1.5}))
        for name in ("trace_b", "trace_a"):
            store.begin_rollout(run_id, name)
    with project_store(project) as store:
        [event] = store.events(run_id, "abandoned")
        assert event.data == {"rollouts": ["trace_a", "trace_b"], "spent_s": 1.5}
        assert store.under_way() == []
        assert [e.kind for e in store.ledger()] == ["run_started", "abandoned"]
        assert store.audit().broken is None
    with project_store(project) as store:
        assert len(store.events(run_id, "abandoned")) == 1


def test_rollouts_of_a_stopped_training_run_wait_for_its_resumption(project: Project) -> None:
    with project.open_store() as store:
        run_id = store.create_run(project.config, command="train", seed=0).id
        store.begin_rollout(run_id, "trace_a")
    with project_store(project) as store:
        assert store.under_way() == [run_id]
        store.set_status(run_id, "done")  # as one whose opening of the test was killed
    with project_store(project, going_on=run_id) as store:
        assert store.under_way() == [run_id]
    with project_store(project) as store:
        assert store.under_way() == []
        assert len(store.events(run_id, "abandoned")) == 1
