"""A database file as the first version of the store wrote it, before there were migrations."""

from __future__ import annotations

import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from tests.store.rich_trace import rich_trace

from learnloop.codec import trace_to_json
from learnloop.trace import Trace

FIRST = """
CREATE TABLE runs (id TEXT NOT NULL, created_at TEXT NOT NULL, command TEXT NOT NULL,
    config_json TEXT NOT NULL, config_hash TEXT NOT NULL, status TEXT NOT NULL,
    seed INTEGER NOT NULL, meta_json TEXT NOT NULL, PRIMARY KEY (id));
CREATE TABLE events (id INTEGER NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL,
    data_json TEXT NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES runs (id));
CREATE INDEX events_by_run ON events (run_id, kind, id);
CREATE TABLE rollouts (trace_id TEXT NOT NULL, run_id TEXT NOT NULL, stage TEXT NOT NULL,
    step INTEGER NOT NULL, candidate_id TEXT NOT NULL, task_id TEXT NOT NULL,
    attempt INTEGER NOT NULL, outcome TEXT NOT NULL, finish_reason TEXT NOT NULL, value FLOAT,
    correct FLOAT, calls INTEGER NOT NULL, rounds INTEGER NOT NULL, tokens INTEGER NOT NULL,
    latency_s FLOAT NOT NULL, failure_kind TEXT NOT NULL, tools_json TEXT NOT NULL,
    trace_json BLOB NOT NULL, PRIMARY KEY (trace_id),
    FOREIGN KEY(run_id) REFERENCES runs (id));
CREATE INDEX rollouts_by_run ON rollouts (run_id, stage, step);
PRAGMA user_version = 1;
"""
TRACES = tuple(rich_trace(n) for n in range(8))


def first_row(trace: Trace) -> tuple[object, ...]:
    score = trace.score
    assert score
    numbers = (score.value, score.correct, 1, trace.rounds, trace.tokens_total, trace.latency_s)
    place = ("run-1", "train", 1, trace.candidate_id, trace.task_id, trace.attempt)
    body = zlib.compress(trace_to_json(trace).encode())
    return (trace.id, *place, "graded", "answer", *numbers, "", '{"search": 1}', body)


def make_first_version(path: Path) -> Path:
    """Write a run, two events and eight rollouts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.executescript(FIRST)
        run = ("run-1", "2026-11-01T00:00:00+00:00", "train", "{}", "cfg_1", "stopped", 3, "{}")
        raw.execute(f"INSERT INTO runs VALUES ({', '.join('?' * 8)})", run)
        for number, kind in enumerate(("run_started", "step"), start=1):
            event = (number, "run-1", kind, json.dumps({"step": number}), "2026-11-01")
            raw.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", event)
        for trace in TRACES:
            raw.execute(f"INSERT INTO rollouts VALUES ({', '.join('?' * 18)})", first_row(trace))
        raw.commit()
    return path
