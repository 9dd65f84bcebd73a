"""A run that is killed with `kill -9` at any place loses nothing, and says what it pays for twice."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.loopback import Answer, Loopback, Seen, serving
from tests.tiny_project import CONFIG, a_row, make_project, write_rows

from learnloop.store import Store

SETTINGS = """
[grader]
type = "numeric"

[probe]
tasks = 4
attempts = 2

[train]
eval_tasks = 4
max_concurrency = 3
"""
ROLLOUTS = {("screen", 0): 4, ("probe", 0): 8, ("confirm", 0): 12}
PLACES = 92
"""Places of a run that nobody kills, about: events, and both sides of each tool call."""


@dataclass(frozen=True)
class Driver:
    """The process that forks runs; see `killed.py`."""

    process: subprocess.Popen[str]

    def run(self, folder: Path, place: int = 0) -> int:
        """Return how a run ended that kills itself at a place; 0 is the end in peace."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{folder} {place}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def driving() -> Generator[Driver]:
    command = [sys.executable, "-m", "tests.e2e.killed"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as process:
        yield Driver(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="module")
def driver() -> Generator[Driver]:
    with driving() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Generator[Loopback]:
    def answer(seen: Seen) -> Answer:
        return Answer(body={"call_id": seen.data["call_id"], "output": "found"})

    with serving(answer) as found:
        yield found


def a_project(folder: Path, server: Loopback) -> Path:
    head, _, tail = CONFIG.partition("[[services]]")
    config = head.replace("{service:box}", server.url) + tail[tail.index("[network]") :] + SETTINGS
    make_project(folder, config=config)
    splits = ("train", "train", "screen", "confirm")
    write_rows(folder, *(a_row(i, split=splits[i % 4], answer=i % 3) for i in range(32)))
    return folder


def assert_nothing_lost(folder: Path, server: Loopback) -> None:
    """Compare what is stored with what was planned, and with what the tool server was asked."""
    with Store.open(folder / ".learnloop" / "learnloop.db") as store:
        [run] = store.runs()
        assert run.status == "done"
        rows = store.rows(run.id)
        assert Counter((r.stage, r.step) for r in rows) == ROLLOUTS
        tried = Counter((r.stage, r.candidate_id, r.task_id, r.attempt) for r in rows)
        assert set(tried.values()) == {1}
        assert all(r.outcome == "graded" for r in rows)
        stored = [call.call.id for t in store.traces(run.id) for call in t.calls]
        events = store.events(run.id, "repeated")
        audit = store.audit()
    assert audit.broken is None
    assert audit.rollouts == sum(ROLLOUTS.values())
    told = {name for event in events for name in event.data["rollouts"]}
    asked = Counter((seen.data["trace_id"], seen.data["call_id"]) for seen in server.seen)
    assert Counter(stored) == Counter({call: 1 for _, call in asked})
    twice = {trace for (trace, _), times in asked.items() if times > 1}
    assert twice <= told, "a call was paid for twice, and nothing says so"
    assert told <= {trace for trace, _ in asked} | {r.trace_id for r in rows}


def survive(driver: Driver, server: Loopback, folder: Path, places: list[int]) -> None:
    """Kill a run at some places, one after the other, and let it end in peace."""
    server.seen.clear()
    a_project(folder, server)
    for place in places:
        assert driver.run(folder, place) in {-signal.SIGKILL, 0}
    assert driver.run(folder) == 0
    assert_nothing_lost(folder, server)


def test_a_run_that_nobody_kills_is_the_measure(
    driver: Driver, server: Loopback, tmp_path: Path
) -> None:
    survive(driver, server, tmp_path / "calm", [])
    with Store.open(tmp_path / "calm" / ".learnloop" / "learnloop.db") as store:
        [run] = store.runs()
        assert store.events(run.id, "repeated") == []
        kinds = Counter(event.kind for event in store.events(run.id))
    places = sum(kinds.values()) + sum(ROLLOUTS.values()) + 2 * len(server.seen)
    assert abs(places - PLACES) <= 12
    assert driver.run(tmp_path / "calm", places + 50) == 0  # a place that is never reached


@pytest.mark.parametrize("part", range(4))
def test_a_run_killed_at_a_place_loses_nothing(
    driver: Driver, server: Loopback, tmp_path: Path, part: int
) -> None:
    """Ten of forty places, spread over the whole run."""
    for number in range(part, 40, 4):
        place = 1 + number * (PLACES - 1) // 40
        survive(driver, server, tmp_path / str(place), [place])


def test_a_run_killed_again_and_again_loses_nothing(
    driver: Driver, server: Loopback, tmp_path: Path
) -> None:
    rng = random.Random(3)
    survive(driver, server, tmp_path / "often", [rng.randrange(2, 25) for _ in range(12)])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_killed_at_every_place_loses_nothing(
    driver: Driver, server: Loopback, tmp_path: Path
) -> None:
    for place in range(1, PLACES + 13):
        survive(driver, server, tmp_path / f"at-{place}", [place])
    rng = random.Random(5)
    for number in range(200 - PLACES - 12):
        places = [rng.randrange(1, PLACES) for _ in range(3)]
        survive(driver, server, tmp_path / f"thrice-{number}", places)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_killed_at_random_times_loses_nothing(server: Loopback, tmp_path: Path) -> None:
    rng = random.Random(7)
    for number in range(200):
        folder = tmp_path / str(number)
        server.seen.clear()
        a_project(folder, server)
        with driving() as doomed:
            assert doomed.process.stdin is not None
            doomed.process.stdin.write(f"{folder} 0\n")
            doomed.process.stdin.flush()
            time.sleep(rng.uniform(0.3, 2.5))
            subprocess.run(["pkill", "-9", "-P", str(doomed.process.pid)], check=False)
        with driving() as calm:
            assert calm.run(folder) == 0
        assert_nothing_lost(folder, server)
