"""Shared texts: stored once, read back bit-equal, and gone with the last rollout that holds them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.store.rich_trace import ODD, SYSTEM, rich_trace

from learnloop.config import Config
from learnloop.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "learnloop.db") as opened:
        yield opened


def begin(store: Store) -> str:
    return store.create_run(Config(), command="train", seed=3).id


def shared(store: Store) -> list[tuple[bytes, int]]:
    with closing(sqlite3.connect(store.path)) as raw:
        return raw.execute("SELECT sha256, refs FROM contents").fetchall()


def test_equal_texts_of_many_rollouts_are_stored_once_and_counted(store: Store) -> None:
    run_id = begin(store)
    traces = [rich_trace(n, said="y") for n in range(30)]
    for trace in traces:
        store.save_trace(run_id, "train", 1, trace)
    # The system prompt and the tool's result; all else is short.
    assert sorted(refs for _, refs in shared(store)) == [30, 30]
    assert store.traces(run_id) == sorted(traces, key=lambda t: t.task_id)


def test_texts_come_back_bit_equal_wherever_they_lie(store: Store) -> None:
    run_id = begin(store)
    trace = rich_trace()
    store.save_trace(run_id, "train", 1, trace)
    found = store.trace(trace.id)
    assert found == trace
    assert repr(found) == repr(trace)  # -0.0 and lone surrogates too
    assert ODD in found.calls[0].output


def test_texts_that_look_like_references_are_texts(store: Store) -> None:
    run_id = begin(store)
    traces = [
        rich_trace(n, said=said) for n, said in enumerate(("#0", "=x", "#", "=" * 200, "#" * 99))
    ]
    for trace in traces:
        store.save_trace(run_id, "train", 1, trace)
    assert store.traces(run_id) == traces


def test_a_text_goes_with_the_last_rollout_that_holds_it(store: Store) -> None:
    run_id = begin(store)
    one, two = rich_trace(1, said="y"), rich_trace(2, said="y")
    store.save_trace(run_id, "train", 1, one)
    store.save_trace(run_id, "train", 1, two)
    store.erase(reason="test", trace_id=one.id)
    assert [refs for _, refs in shared(store)] == [1, 1]
    assert store.trace(two.id) == two
    store.erase(reason="test", trace_id=two.id)
    assert shared(store) == []
    assert SYSTEM not in repr(store.trace(two.id))
