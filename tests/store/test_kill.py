"""A writer that is killed anywhere leaves whole rollouts, right counts and a whole ledger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STRIKES = """
import itertools, os, random, signal, sys, time
from pathlib import Path
from tests.store.rich_trace import rich_trace
from learnloop.config import Config
from learnloop.event import Event
from learnloop.store import Store

path, strikes = Path(sys.argv[1]), int(sys.argv[2])
rng = random.Random(7)
with Store.open(path) as store:
    run = store.create_run(Config(), command="train", seed=0).id


def write(first, told):
    def note():
        os.write(told, b".")

    with Store.open(path) as store:
        store.append_event(Event(kind="run_started", run_id=run, data={}))
        note()
        for number in itertools.count(first):
            store.save_trace(run, "train", number // 3, rich_trace(number))
            note()
            if number % 3 == 2:
                data = {"step": number // 3}
                store.append_event(Event(kind="step", run_id=run, data=data))
                note()
                store.reduce(run, "masked", "train", upto=number // 3 - 1)
                note()
            if number % 7 == 6:
                store.erase(reason="test", trace_id=rich_trace(number - 5).id)
                note()


stored = []
for strike in range(strikes):
    heard, told = os.pipe()
    child = os.fork()
    if not child:
        try:
            write(len(stored), told)
        finally:
            os._exit(1)
    os.close(told)
    for _ in range(rng.randint(1, 10)):  # writes that are whole, however slow the machine
        assert os.read(heard, 1), "the writer ended by itself"
    time.sleep(rng.random() * 0.02)  # into the middle of one that follows
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(heard)
    with Store.open(path) as store:
        found = store.audit()
        assert found.broken is None, (strike, found.broken)
        before, stored = stored, store.rows(run)
        assert len(stored) >= len(before)
        assert len(store.traces(run)) == len(stored) == sum(t.rollouts for t in store.totals(run))
        assert sum(t.calls for t in store.tool_distribution(run)) == sum(r.calls for r in stored)
        for record in stored:
            trace = store.trace(record.trace_id)
            whole = rich_trace(trace.seed)
            assert trace == whole or trace.content in ("masked", "erased"), record.trace_id
            assert len(trace.messages) == len(whole.messages)
print(strikes, len(stored), found.entries)
"""


def strike(path: Path, strikes: int) -> tuple[int, int, int]:
    """Kill a writer so many times; return strikes, rollouts and entries at the end."""
    command = [sys.executable, "-c", STRIKES, str(path), str(strikes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    count, rollouts, entries = map(int, done.stdout.split())
    return count, rollouts, entries


def test_a_writer_killed_forty_times_leaves_no_half_record(tmp_path: Path) -> None:
    count, rollouts, entries = strike(tmp_path / "learnloop.db", 40)
    assert count == 40
    assert rollouts > 20
    assert entries > 40


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_writer_killed_two_hundred_times_leaves_no_half_record(tmp_path: Path) -> None:
    count, rollouts, _ = strike(tmp_path / "learnloop.db", 200)
    assert count == 200
    assert rollouts > 100
