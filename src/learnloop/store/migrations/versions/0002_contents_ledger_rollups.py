"""Rollouts under way, shared contents, the ledger with its leaves, and rollups for charts.

The rows of the new tables are made from the old ones by `store.adoption`, in the same transaction.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the tables, and an index in the order of pages."""
    op.create_table(
        "begun",
        sa.Column("trace_id", sa.Text, primary_key=True),
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), nullable=False),
    )
    op.create_index("begun_by_run", "begun", ["run_id"])
    op.create_table(
        "contents",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("sha256", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("refs", sa.Integer, nullable=False),
    )
    _ledger()
    _rollups()
    op.drop_index("rollouts_by_run", "rollouts")
    place = ["run_id", "stage", "step", "task_id", "attempt", "candidate_id", "trace_id"]
    op.create_index("rollouts_by_place", "rollouts", place)


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("data_json", sa.Text, nullable=False),
        sa.Column("prev_hash", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.create_table(
        "leaves",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("seq", sa.Integer, sa.ForeignKey("ledger.seq")),
        sa.Column("trace_id", sa.Text, sa.ForeignKey("rollouts.trace_id"), nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("salt", sa.LargeBinary),
        sa.Column("content_hash", sa.LargeBinary, nullable=False),
        sa.Column("leaf", sa.LargeBinary, nullable=False),
    )
    op.create_index("leaves_by_trace", "leaves", ["trace_id"])
    op.create_index("leaves_by_entry", "leaves", ["seq"])
    pending = sa.text("seq IS NULL")
    op.create_index(
        "leaves_pending", "leaves", ["id"], sqlite_where=pending, postgresql_where=pending
    )


def _rollups() -> None:
    op.create_table(
        "tool_counts",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("stage", sa.Text, primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("calls", sa.Integer, nullable=False),
    )
    op.create_table(
        "step_totals",
        sa.Column("run_id", sa.Text, sa.ForeignKey("runs.id"), primary_key=True),
        sa.Column("stage", sa.Text, primary_key=True),
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("outcome", sa.Text, primary_key=True),
        sa.Column("rollouts", sa.Integer, nullable=False),
        sa.Column("scored", sa.Integer, nullable=False),
        sa.Column("value_sum", sa.Float, nullable=False),
        sa.Column("correct_sum", sa.Float, nullable=False),
        sa.Column("calls", sa.Integer, nullable=False),
        sa.Column("scored_calls", sa.Integer, nullable=False),
        sa.Column("rounds", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("latency_s", sa.Float, nullable=False),
    )
