"""Opening the sealed test is recorded like any other work on a run, and survives a kill."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.conftest import Done, Small

from learnloop.project import Project
from learnloop.store import EventRecord

pytestmark = pytest.mark.timeout(400)


def is_rolling(small: Small) -> bool:
    """Return whether the test is open and rollouts on it are under way."""
    opened = "select 1 from events where kind = 'seal_opened'"
    return bool(small.rows(opened)) and bool(small.rows("select 1 from begun"))


def since_training(small: Small) -> list[EventRecord]:
    events = small.events()
    ended = next(i for i, event in enumerate(events) if event.kind == "run_ended")
    return events[ended + 1 :]


def test_a_killed_opening_of_the_test_is_recorded_and_goes_on(
    undisturbed: tuple[Small, Done], tmp_path: Path
) -> None:
    small = Small(tmp_path / "small")
    shutil.copytree(undisturbed[0].root, small.root)
    with small.start("report", "latest", "--open-test") as process:
        small.wait(is_rolling, process)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=100)
    cut = sorted(row[0] for row in small.rows("select trace_id from begun"))
    assert cut, "the kill came too late"
    assert small.record().status == "done"

    again = small.run("report", "latest", "--open-test", "--json")
    assert again.code == 0, again.err
    assert again.json["split"] == "test"
    events = since_training(small)
    assert [event.kind for event in events] == [
        *("run_started", "stage_started", "seal_opened"),
        *("run_started", "repeated", "stage_started", "test", "run_ended"),
    ]
    assert [e.data["resumed"] for e in events if e.kind == "run_started"] == [True, True]
    [repeated] = [event for event in events if event.kind == "repeated"]
    assert repeated.data["rollouts"] == cut
    assert small.rows("select 1 from begun") == []
    with Project.open(small.root).open_store() as store:
        rows = store.rows(again.json["run"], "test")
        assert store.audit().broken is None
    tried = Counter((row.candidate_id, row.task_id, row.attempt) for row in rows)
    assert set(tried.values()) == {1}


def test_an_interrupted_opening_of_the_test_pauses(
    undisturbed: tuple[Small, Done], tmp_path: Path
) -> None:
    small = Small(tmp_path / "small")
    shutil.copytree(undisturbed[0].root, small.root)
    with small.start("report", "latest", "--open-test") as process:
        small.wait(is_rolling, process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    assert process.returncode == 130
    assert [event.kind for event in since_training(small)][-1] == "paused"
    assert small.record().status == "done", "the training itself is over"
