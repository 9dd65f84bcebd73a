"""The ledger: whole after honest work, and broken by every kind of change from outside."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.store.rich_trace import rich_trace

from learnloop.config import Config
from learnloop.event import Event
from learnloop.ledger import GENESIS, merkle_root
from learnloop.store import Store
from learnloop.trace import Failure


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "learnloop.db") as opened:
        yield opened


def begin(store: Store) -> str:
    run_id = store.create_run(Config(), command="train", seed=3).id
    tell(store, run_id, "run_started", project="p")
    return run_id


def tell(store: Store, run_id: str, kind: str, **data: object) -> None:
    store.append_event(Event(kind=kind, run_id=run_id, data=data))


def a_run(store: Store) -> str:
    """Store two steps of rollouts with their events."""
    run_id = begin(store)
    for step in (1, 2):
        tell(store, run_id, "stage_started", stage=f"step {step}")
        for number in range(3):
            trace = rich_trace(number, candidate=f"cand_{step}")
            store.save_trace(run_id, "train", step, trace)
        tell(store, run_id, "step", step=step, loss=float("nan"))
    tell(store, run_id, "gate", outcome="adopt")
    return run_id


def change(store: Store, *statements: str) -> None:
    with closing(sqlite3.connect(store.path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def test_stages_and_decisions_are_entries_and_each_follows_from_the_last(store: Store) -> None:
    run_id = a_run(store)
    entries = store.ledger()
    stored = "rollouts_stored"
    assert [e.kind for e in entries] == ["run_started", stored, "step", stored, "step", "gate"]
    assert {e.run_id for e in entries} == {run_id}
    assert entries[0].prev_hash == GENESIS
    assert [e.prev_hash for e in entries[1:]] == [e.hash for e in entries[:-1]]
    assert (entries[1].data["stage"], entries[1].data["step"], entries[1].data["rollouts"]) == (
        "train",
        1,
        3,
    )
    found = store.audit()
    assert (found.broken, found.entries, found.rollouts, found.pending) == (None, 6, 6, 0)
    assert found.head == entries[-1].hash


def test_rollouts_of_an_open_stage_wait_for_their_entry(store: Store) -> None:
    run_id = begin(store)
    store.save_trace(run_id, "train", 1, rich_trace())
    found = store.audit()
    assert (found.broken, found.pending) == (None, 1)
    tell(store, run_id, "paused", reason="interrupted")
    assert store.audit().pending == 0


ALTERATIONS = {
    "an entry's words": ("UPDATE ledger SET data_json = '{}' WHERE seq = 6", 6, "altered"),
    "an entry's time": ("UPDATE ledger SET time = '2020' WHERE seq = 3", 3, "altered"),
    "an entry in the middle": ("DELETE FROM ledger WHERE seq = 5", 5, "missing"),
    "the last entry": ("DELETE FROM ledger WHERE seq = 6", 6, "no entry tells of event"),
    "a score": ("UPDATE rollouts SET value = 1.0 WHERE step = 2", 4, "numbers"),
    "a step": ("UPDATE rollouts SET step = 1 WHERE step = 2", 4, "numbers"),
    "a rollout's leaf": ("UPDATE leaves SET leaf = x'00' WHERE id = 1", 2, "altered"),
    "a leaf": ("DELETE FROM leaves WHERE id = 4", 4, "altered"),
    "a salt": ("UPDATE leaves SET salt = NULL WHERE id = 1", 2, "salt"),
    "an event": ("UPDATE events SET data_json = '{\"step\": 9}' WHERE kind = 'step'", 3, "event"),
    "an event's row": ("DELETE FROM events WHERE kind = 'gate'", 6, "gone"),
    "a configuration": ("UPDATE runs SET config_json = '{}'", 1, "settings"),
    "an event's time": ("UPDATE events SET created_at = '2020-01-01T00:00:00+00:00'", 1, "time"),
    "a run's time": ("UPDATE runs SET created_at = '2020-01-01T00:00:00+00:00'", 1, "time"),
    "a run's status": ("UPDATE runs SET status = 'done'", 1, "status"),
    "a policy": ("UPDATE leaves SET content = 'none' WHERE id = 1", 2, "content"),
    "a trace": ("UPDATE rollouts SET trace_json = x'00' WHERE step = 1", 2, "content"),
    "a rollout": ("DELETE FROM rollouts WHERE step = 2", 4, "gone"),
    "a shared text": (
        "UPDATE contents SET body = (SELECT body FROM contents LIMIT 1)",
        2,
        "content",
    ),
    "all shared texts": ("DELETE FROM contents", 2, "content"),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_a_change_from_outside_is_found_and_its_entry_named(store: Store, name: str) -> None:
    a_run(store)
    statement, seq, words = ALTERATIONS[name]
    change(store, statement)
    broken = store.audit().broken
    assert broken is not None
    assert (broken.seq, words in broken.what) == (seq, True), broken


def test_a_rollout_slipped_in_beside_the_ledger_is_found(store: Store) -> None:
    a_run(store)
    columns = [c for c in _columns(store) if c != "trace_id"]
    names = ", ".join(columns)
    change(
        store,
        f"INSERT INTO rollouts (trace_id, {names}) SELECT 'trace_new', {names} FROM rollouts LIMIT 1",
    )
    broken = store.audit().broken
    assert broken is not None
    assert "trace_new" in broken.what


def _columns(store: Store) -> list[str]:
    with closing(sqlite3.connect(store.path)) as raw:
        return [row[1] for row in raw.execute("PRAGMA table_info(rollouts)")]


def test_erased_content_leaves_the_chain_whole_and_says_what_when_and_why(store: Store) -> None:
    run_id = a_run(store)
    target = store.rows(run_id)[0]
    before = len(store.ledger())
    done = store.erase(reason="asked by the person", trace_id=target.trace_id)
    assert (done.rollouts, done.runs) == (1, (run_id,))
    found = store.audit()
    assert found.broken is None
    [told] = found.erased
    assert (told.rollouts, told.reason, told.run_id) == (1, "asked by the person", run_id)
    assert told.seq == before + 1
    assert store.ledger()[-1].data["rollout"] == target.trace_id
    assert target in store.rows(run_id)  # numbers stay
    assert store.trace(target.trace_id).content == "erased"
    assert store.erase(reason="again", trace_id=target.trace_id).rollouts == 0


def test_an_erased_rollout_is_still_proven_by_its_numbers(store: Store) -> None:
    run_id = a_run(store)
    name = store.rows(run_id)[0].trace_id
    store.erase(reason="x", trace_id=name)
    change(store, f"UPDATE rollouts SET value = 0.1 WHERE trace_id = '{name}'")
    broken = store.audit().broken
    assert broken is not None
    assert broken.seq == 2


def test_erased_texts_and_salts_are_not_left_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as store:
        run_id = begin(store)
        store.save_trace(run_id, "train", 1, rich_trace())
        tell(store, run_id, "step", step=1)
        with closing(sqlite3.connect(path)) as raw:
            gone = [row[0] for row in raw.execute("SELECT body FROM contents")]
            gone += [row[0] for row in raw.execute("SELECT salt FROM leaves")]
            gone += [row[0] for row in raw.execute("SELECT trace_json FROM rollouts")]
        assert all(secret in path.read_bytes() + wal(path) for secret in gone)
        store.erase(reason="x", run_id=run_id)
        left = path.read_bytes() + wal(path)
        assert [len(secret) for secret in gone if secret in left] == []


def wal(path: Path) -> bytes:
    log = path.with_name(path.name + "-wal")
    return log.read_bytes() if log.exists() else b""


def test_old_runs_are_erased_and_young_ones_are_not(store: Store) -> None:
    old = a_run(store)
    young = begin(store)
    store.save_trace(young, "train", 1, rich_trace(7))
    began = store.run(old).created_at
    when = "UPDATE runs SET created_at = '{}' WHERE id = '{}'"
    change(store, when.format("2020-01-01T00:00:00+00:00", old))
    done = store.erase(older_than=timedelta(days=30), reason="retention of 30 days")
    assert (done.rollouts, done.runs) == (6, (old,))
    assert store.trace(rich_trace(7).id).content == "full"
    change(store, when.format(began, old))
    assert store.audit().broken is None


def test_a_lost_rollout_that_is_made_again_is_in_the_ledger_twice(store: Store) -> None:
    run_id = begin(store)
    good = rich_trace()
    failure = Failure(boundary="tool", kind="5xx", message="gone")
    lost = replace(good, outcome="infra_fault", score=None, failure=failure)
    store.save_trace(run_id, "train", 1, lost)
    store.save_trace(run_id, "train", 1, replace(lost, seed=5))
    tell(store, run_id, "paused", reason="x")
    assert store.save_trace(run_id, "train", 1, good)
    assert store.audit().broken is None
    tell(store, run_id, "step", step=1)
    kinds = [e.kind for e in store.ledger()]
    assert kinds == [
        "run_started",
        "rollout_replaced",  # before any entry told of it: only what it took is kept
        "rollouts_stored",
        "paused",
        "rollout_replaced",
        "rollouts_stored",
        "step",
    ]
    found = store.audit()
    assert (found.broken, found.rollouts) == (None, 1)
    assert store.traces(run_id) == [good]


def test_a_lost_rollout_that_was_erased_and_then_made_again_breaks_nothing(store: Store) -> None:
    run_id = begin(store)
    good = rich_trace()
    failure = Failure(boundary="tool", kind="5xx", message="gone")
    store.save_trace(
        run_id, "screen", 0, replace(good, outcome="infra_fault", score=None, failure=failure)
    )
    tell(store, run_id, "paused", reason="x")
    store.erase(reason="asked for", run_id=run_id)
    assert store.save_trace(run_id, "screen", 0, good)
    tell(store, run_id, "evaluation", step=0)
    assert store.audit().broken is None
    assert store.traces(run_id) == [good]


def test_two_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as first, Store.open(path) as second:
        runs = [begin(first), begin(second)]

        def work(store: Store, run_id: str) -> None:
            for number in range(25):
                trace = rich_trace(number, candidate=run_id)
                store.save_trace(run_id, "train", number, trace)
                tell(store, run_id, "step", step=number)

        threads = [
            threading.Thread(target=work, args=pair)
            for pair in zip((first, second), runs, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entries = first.ledger()
        assert [e.seq for e in entries] == list(range(1, 2 + 2 * 50 + 1))
        assert first.audit().broken is None


def test_an_event_that_cannot_be_stored_leaves_no_entry(store: Store) -> None:
    run_id = begin(store)
    with pytest.raises(TypeError):
        tell(store, run_id, "step", odd=object())
    assert len(store.ledger()) == 1
    assert json.loads(store.ledger()[0].data_json)["event"] == 1


def test_the_root_depends_on_every_leaf_and_on_their_order() -> None:
    leaves = [bytes([n]) * 32 for n in range(5)]
    roots = {merkle_root(leaves), merkle_root(leaves[:4]), merkle_root(leaves[::-1])}
    roots |= {merkle_root([*leaves[:n], b"x" * 32, *leaves[n + 1 :]]) for n in range(5)}
    assert len(roots) == 8
    assert merkle_root(leaves[:1]) == leaves[0].hex()
