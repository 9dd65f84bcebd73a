"""The tables of the store as the newest migration leaves them; `VERSION` is that migration's number."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

VERSION = 2

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
    Index(
        "rollouts_by_place",
        *("run_id", "stage", "step", "task_id", "attempt", "candidate_id", "trace_id"),
    ),
)
"""All columns but the last are light: lists and charts read them without decoding a trace."""

BEGUN = Table(
    "begun",
    METADATA,
    Column("trace_id", Text, primary_key=True),
    Column("run_id", Text, ForeignKey(RUNS.c.id), nullable=False),
    Index("begun_by_run", "run_id"),
)
"""Rollouts under way: a row that is there when a run is resumed tells of calls that nobody recorded."""

CONTENTS = Table(
    "contents",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
    Column("refs", Integer, nullable=False),
)
"""Texts of messages, once each; `refs` counts the rollouts that hold one, the last takes it along."""

LEDGER = Table(
    "ledger",
    METADATA,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("time", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("data_json", Text, nullable=False),
    Column("prev_hash", Text, nullable=False),
    Column("hash", Text, nullable=False),
)

_PENDING = text("seq IS NULL")

LEAVES = Table(
    "leaves",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("seq", Integer, ForeignKey(LEDGER.c.seq)),
    Column("trace_id", Text, ForeignKey(ROLLOUTS.c.trace_id), nullable=False),
    Column("content", Text, nullable=False),
    Column("salt", LargeBinary),
    Column("content_hash", LargeBinary, nullable=False),
    Column("leaf", LargeBinary, nullable=False),
    Index("leaves_by_trace", "trace_id"),
    Index("leaves_by_entry", "seq"),
    Index("leaves_pending", "id", sqlite_where=_PENDING, postgresql_where=_PENDING),
)
"""What the ledger's entries are made over: one row for each rollout and each content it has had.

`seq` is the entry, NULL until the stage's is written. Only the row of the present content has a salt.
"""

TOOL_COUNTS = Table(
    "tool_counts",
    METADATA,
    Column("run_id", Text, ForeignKey(RUNS.c.id), primary_key=True),
    Column("stage", Text, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("calls", Integer, nullable=False),
)

STEP_TOTALS = Table(
    "step_totals",
    METADATA,
    Column("run_id", Text, ForeignKey(RUNS.c.id), primary_key=True),
    Column("stage", Text, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("outcome", Text, primary_key=True),
    Column("rollouts", Integer, nullable=False),
    Column("scored", Integer, nullable=False),
    Column("value_sum", Float, nullable=False),
    Column("correct_sum", Float, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("scored_calls", Integer, nullable=False),
    Column("rounds", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("latency_s", Float, nullable=False),
)

REVISION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), primary_key=True),
)
"""Alembic's own table; apart, because its migrations do not describe it."""
