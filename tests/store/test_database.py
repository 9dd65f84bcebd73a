"""The store: exact round trips, no duplicates, and whole records after a kill."""

from __future__ import annotations

import math
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from learnloop.config import Config, TrainConfig
from learnloop.errors import ConfigError, UsageError, UserError
from learnloop.event import Event
from learnloop.message import Message, ToolCall
from learnloop.store import Store
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn, trace_id

CALL = ToolCall(id="call_1", name="cat", arguments='{"path": "\u00e9\ud800"}')
TRACE = Trace(
    id=trace_id("r", "c", "t1", 0),
    task_id="t1",
    candidate_id="cand_1",
    attempt=0,
    seed=7,
    messages=(
        Message(role="user", content="na\u00efve \ud83d \x00 text"),
        Message(role="assistant", content="", tool_calls=(CALL,)),
        Message(role="tool", content="12", tool_call_id="call_1", name="cat"),
        Message(role="assistant", content="12"),
    ),
    turns=(
        Turn(
            text="",
            tool_calls=(CALL,),
            finish_reason="tool_calls",
            token_ids=(1, 2, 3),
            logprobs=(-0.1, -1e-17, -math.pi),
            version=3,
            tokens_in=50,
            tokens_reused=40,
            tokens_out=3,
            latency_s=0.1 + 0.2,
        ),
        Turn(text="12", token_ids=(9,), logprobs=(-0.0,), tokens_in=60, tokens_out=1),
    ),
    calls=(CallRecord(call=CALL, round=0, output="12", latency_s=1 / 3, retries=2),),
    score=Score(value=0.9, correct=1.0, parts={"valid": 1.0}, explanation="ok", flags=("late",)),
    latency_s=2 / 3,
)
LOST = replace(
    TRACE,
    outcome="infra_fault",
    score=None,
    failure=Failure(boundary="tool", kind="5xx", message="gone"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "state" / "learnloop.db") as opened:
        yield opened


def begin(store: Store, command: str = "train") -> str:
    return store.create_run(Config(), command=command, seed=3).id


def numbered(number: int) -> Trace:
    return replace(TRACE, id=trace_id("r", "c", f"t{number:05}", 0), task_id=f"t{number:05}")


def test_a_trace_comes_back_exactly(store: Store) -> None:
    run_id = begin(store)
    assert store.save_trace(run_id, "train", 1, TRACE)
    found = store.trace(TRACE.id)
    assert found == TRACE
    assert math.copysign(1, found.turns[1].logprobs[0]) == -1
    assert store.traces(run_id) == [TRACE]


def test_a_trace_outlives_the_process(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as store:
        run_id = begin(store)
        store.save_trace(run_id, "train", 1, TRACE)
    with Store.open(path) as store:
        assert store.traces(run_id, "train", 1) == [TRACE]


def test_the_same_id_twice_is_kept_once(store: Store) -> None:
    run_id = begin(store)
    assert store.save_trace(run_id, "train", 1, TRACE)
    assert not store.save_trace(run_id, "train", 2, replace(TRACE, seed=99))
    assert store.traces(run_id) == [TRACE]
    assert [row.step for row in store.rows(run_id)] == [1]


def test_a_lost_rollout_is_replaced_by_one_that_worked_and_not_the_other_way(store: Store) -> None:
    run_id = begin(store)
    store.save_trace(run_id, "train", 1, LOST)
    assert store.save_trace(run_id, "train", 1, TRACE)
    assert not store.save_trace(run_id, "train", 1, LOST)
    assert store.traces(run_id) == [TRACE]


def test_rows_hold_the_numbers_and_a_lost_rollout_has_no_zero_in_it(store: Store) -> None:
    run_id = begin(store)
    store.save_trace(run_id, "train", 1, TRACE)
    store.save_trace(run_id, "train", 1, replace(LOST, id="trace_lost", task_id="t2"))
    good, lost = store.rows(run_id, "train", 1)
    assert (good.value, good.correct, good.calls, good.rounds) == (0.9, 1.0, 1, 1)
    assert (good.tokens, good.latency_s, good.failure_kind) == (61, 2 / 3, "")
    assert good.tools == {"cat": 1}
    refused = CallRecord(call=CALL, round=1, output="error", is_error=True, ran=False)
    busy = replace(TRACE, id="trace_busy", calls=(*TRACE.calls, refused))
    store.save_trace(run_id, "train", 2, busy)
    [row] = store.rows(run_id, "train", 2)
    assert (row.calls, row.rounds, row.tools) == (1, 1, {"cat": 1})
    assert store.traces(run_id, "train", 2) == [busy]
    assert (lost.value, lost.correct, lost.failure_kind) == (None, None, "5xx")
    assert (lost.outcome, lost.finish_reason) == ("infra_fault", "answer")


def test_stage_step_and_candidate_choose_rollouts(store: Store) -> None:
    run_id, other = begin(store), begin(store)
    for number, (stage, step) in enumerate((("train", 1), ("train", 2), ("probe", 1))):
        store.save_trace(run_id, stage, step, numbered(number))
    store.save_trace(other, "train", 1, numbered(9))
    assert len(store.rows(run_id)) == 3
    assert [r.task_id for r in store.rows(run_id, "train")] == ["t00000", "t00001"]
    assert [t.task_id for t in store.traces(run_id, "train", 2)] == ["t00001"]
    assert store.rows(run_id, candidate_id="cand_2") == []


def test_order_does_not_depend_on_what_finished_first(store: Store) -> None:
    run_id = begin(store)
    for number in (3, 1, 2):
        store.save_trace(run_id, "train", 1, numbered(number))
    assert [t.task_id for t in store.traces(run_id)] == ["t00001", "t00002", "t00003"]


def test_ten_thousand_rows_are_read_in_seconds_without_their_traces(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as store:
        run_id = begin(store)
        store.save_trace(run_id, "train", 1, TRACE)
    with sqlite3.connect(path) as raw:
        columns = [r[1] for r in raw.execute("PRAGMA table_info(rollouts)") if r[1] != "trace_id"]
        copy = ",".join("x'00'" if c == "trace_json" else c for c in columns)
        raw.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
            f"INSERT INTO rollouts (trace_id, {','.join(columns)}) "
            f"SELECT 'trace_' || i, {copy} FROM rollouts, n"
        )
    raw.close()
    with Store.open(path) as store:
        start_s = time.monotonic()
        assert len(store.rows(run_id, "train")) == 10_000
        assert time.monotonic() - start_s < 3


def test_a_run_keeps_its_configuration_and_meta(store: Store) -> None:
    config = Config(train=TrainConfig(steps=2))
    made = store.create_run(config, command="train", seed=3, meta={"host": "a"})
    assert store.run(made.id) == made
    assert (made.status, made.command, made.seed, made.meta) == (
        "running",
        "train",
        3,
        {"host": "a"},
    )
    assert '"steps":2' in made.config_json
    assert made.config_hash.startswith("cfg_")
    store.set_status(made.id, "done")
    assert store.run(made.id).status == "done"


def test_runs_are_found_by_age_and_by_the_beginning_of_their_id(store: Store) -> None:
    first, second = begin(store, "eval"), begin(store, "train")
    assert [r.id for r in store.runs()] == [second, first]
    assert store.run("latest").id == store.run().id == second
    assert store.run("latest~1").id == first
    assert store.run(second[:-1]).id == second


@pytest.mark.parametrize("name", ["latest~2", "latest~x", "latest~-1", "nope", "", "%"])
def test_a_run_that_is_not_there_is_a_usage_error(store: Store, name: str) -> None:
    begin(store)
    begin(store)
    with pytest.raises(UsageError, match="no run"):
        store.run(name)


def test_an_ambiguous_beginning_is_a_usage_error(store: Store) -> None:
    begin(store)
    begin(store)
    with pytest.raises(UsageError, match="ambiguous"):
        store.run("2")
    with pytest.raises(UsageError, match="no trace"):
        store.trace("trace_none")


def test_events_are_kept_in_order_and_read_from_where_one_was(store: Store) -> None:
    run_id, other = begin(store), begin(store)
    ids = [
        store.append_event(Event(kind=kind, run_id=run_id, data={"n": n, "nan": None}))
        for n, kind in enumerate(("run_started", "step", "step"))
    ]
    store.append_event(Event(kind="step", run_id=other))
    assert [e.data["n"] for e in store.events(run_id)] == [0, 1, 2]
    assert [e.id for e in store.events(run_id, "step")] == ids[1:]
    assert [e.id for e in store.events(run_id, after=ids[1])] == ids[2:]


def test_an_event_of_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="FOREIGN KEY"):
        store.append_event(Event(kind="step", run_id="nope"))


def test_several_threads_may_write(store: Store) -> None:
    run_id = begin(store)

    def write(worker: int) -> None:
        for number in range(20):
            store.save_trace(run_id, "train", 1, numbered(worker * 100 + number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.rows(run_id)) == 80


def test_two_processes_may_write_and_each_sees_the_others_records(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as one, Store.open(path) as two:
        run_id = begin(one)
        one.save_trace(run_id, "train", 1, numbered(1))
        two.save_trace(run_id, "train", 1, numbered(2))
        assert len(one.rows(run_id)) == len(two.rows(run_id)) == 2


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from learnloop.config import Config
from learnloop.store import Store
from learnloop.trace import Trace, trace_id

store = Store.open(Path(sys.argv[1]))
run = store.create_run(Config(), command="train", seed=0)
number = 0
while True:
    name = trace_id("r", "c", str(number), 0)
    trace = Trace(id=name, task_id=str(number), candidate_id="c", attempt=0, seed=0)
    store.save_trace(run.id, "train", 1, trace)
    print(name, flush=True)
    number += 1
"""


def test_a_killed_process_leaves_every_record_it_had_finished(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        told = [writer.stdout.readline().strip() for _ in range(50)]
        writer.send_signal(signal.SIGKILL)
    with Store.open(path) as store:
        assert store.run().status == "running"
        stored = {row.trace_id for row in store.rows(store.run().id)}
        assert stored >= set(told)
        assert {store.trace(name).id for name in stored} == stored
        assert store.save_trace(store.run().id, "train", 1, TRACE)


def test_a_file_that_is_no_database_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    path.write_text("not a database, but somebody's notes" * 10)
    with pytest.raises(ConfigError, match=r"learnloop\.db: .*not a database"):
        Store.open(path)
    assert path.read_text().startswith("not a database")


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    Store.open(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(ConfigError, match="version 99"):
        Store.open(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="folder"):
        Store.open(tmp_path / "file" / "learnloop.db")


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "learnloop.db"
    with Store.open(path) as store:
        run_id = begin(store)
        with store._transaction() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 30")

        def fill() -> None:
            for number in range(10_000):
                store.save_trace(run_id, "train", 1, numbered(number))

        with pytest.raises(UserError, match="full") as told:
            fill()
        assert told.value.exit_code == 1
        stored = len(store.rows(run_id))
        assert stored == len(store.traces(run_id)) > 0
