"""The tables of the store; `VERSION` grows with every change to them."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, Table, Text

VERSION = 1

METADATA = MetaData()

RUNS = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("created_at", Text, nullable=False),
    Column("command", Text, nullable=False),
    Column("config_json", Text, nullable=False),
    Column("config_hash", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("meta_json", Text, nullable=False),
)

EVENTS = Table(
    "events",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", Text, ForeignKey(RUNS.c.id), nullable=False),
    Column("kind", Text, nullable=False),
    Column("data_json", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Index("events_by_run", "run_id", "kind", "id"),
)

ROLLOUTS = Table(
    "rollouts",
    METADATA,
    Column("trace_id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey(RUNS.c.id), nullable=False),
    Column("stage", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("candidate_id", Text, nullable=False),
    Column("task_id", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("finish_reason", Text, nullable=False),
    Column("value", Float),
    Column("correct", Float),
    Column("calls", Integer, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("latency_s", Float, nullable=False),
    Column("failure_kind", Text, nullable=False),
    Column("tools_json", Text, nullable=False),
    Column("trace_json", LargeBinary, nullable=False),
    Index("rollouts_by_run", "run_id", "stage", "step"),
)
"""All columns but the last are light: lists and charts read them without decoding a trace."""
