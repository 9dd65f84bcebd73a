"""Rollups: counts by stage and step, kept with every rollout, so that charts need not scan them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from learnloop.store.records import StepTotals, ToolCount
from learnloop.store.tables import STEP_TOTALS, TOOL_COUNTS
from learnloop.store.upsert import add_up

_SUMS = tuple(c.name for c in STEP_TOTALS.c if not c.primary_key)


def count(connection: Connection, row: Mapping[str, Any], sign: int = 1) -> None:
    """Add a rollout's numbers to the rollups; with a sign of -1 take them out again."""
    place = {name: row[name] for name in ("run_id", "stage", "step")}
    is_scored = row["value"] is not None
    sums = {
        "rollouts": 1,
        "scored": int(is_scored),
        "value_sum": row["value"] or 0.0,
        "correct_sum": row["correct"] or 0.0,
        "calls": row["calls"],
        "scored_calls": row["calls"] if is_scored else 0,
        "rounds": row["rounds"],
        "tokens": row["tokens"],
        "latency_s": row["latency_s"],
    }
    values = {**place, "outcome": row["outcome"], **{k: sign * v for k, v in sums.items()}}
    connection.execute(add_up(connection, STEP_TOTALS, _SUMS), values)
    tools: Mapping[str, int] = json.loads(row["tools_json"])
    rows = [{**place, "tool": name, "calls": sign * calls} for name, calls in tools.items()]
    if rows:
        connection.execute(add_up(connection, TOOL_COUNTS, ("calls",)), rows)


def tool_counts(connection: Connection, run_id: str) -> list[ToolCount]:
    """Return a run's calls by stage, step and tool."""
    c = TOOL_COUNTS.c
    asked = select(c.stage, c.step, c.tool, c.calls).where(c.run_id == run_id, c.calls > 0)
    rows = connection.execute(asked.order_by(c.stage, c.step, c.tool)).mappings()
    return [ToolCount(**row) for row in rows]


def step_totals(connection: Connection, run_id: str) -> list[StepTotals]:
    """Return a run's totals by stage, step and outcome."""
    c = STEP_TOTALS.c
    kept = [column for column in c if column.name != "run_id"]
    asked = select(*kept).where(c.run_id == run_id, c.rollouts > 0)
    rows = connection.execute(asked.order_by(c.stage, c.step, c.outcome)).mappings()
    return [StepTotals(**row) for row in rows]
