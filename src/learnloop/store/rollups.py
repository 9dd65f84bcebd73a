"""Rollups: counts by stage and step, kept with every rollout, so that charts need not scan them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from math import isclose
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from learnloop.store.records import StepTotals, ToolCount
from learnloop.store.tables import ROLLOUTS, STEP_TOTALS, TOOL_COUNTS
from learnloop.store.upsert import add_up

_PLACE = ("run_id", "stage", "step")
_SUMS = tuple(c.name for c in STEP_TOTALS.c if not c.primary_key)


def count(connection: Connection, row: Mapping[str, Any], sign: int = 1) -> None:
    """Add a rollout's numbers to the rollups; with a sign of -1 take them out again."""
    place, sums = {name: row[name] for name in _PLACE}, _numbers(row)
    values = {**place, "outcome": row["outcome"], **{k: sign * v for k, v in sums.items()}}
    connection.execute(add_up(connection, STEP_TOTALS, _SUMS), values)
    tools: Mapping[str, int] = json.loads(row["tools_json"])
    rows = [{**place, "tool": name, "calls": sign * calls} for name, calls in tools.items()]
    if rows:
        connection.execute(add_up(connection, TOOL_COUNTS, ("calls",)), rows)


def _numbers(row: Mapping[str, Any] | RowMapping) -> dict[str, float]:
    """Return what one rollout adds to the totals of its step."""
    is_scored = row["value"] is not None
    return {
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


def disagreeing(connection: Connection) -> list[str]:
    """Return the runs whose rollups are not the sums of their rollouts, in order."""
    totals: dict[tuple[Any, ...], Counter[str]] = defaultdict(Counter)
    tools: Counter[tuple[Any, ...]] = Counter()
    names = (*_PLACE, "outcome", "value", "correct", "calls", "rounds", "tokens", "latency_s")
    asked = select(*(ROLLOUTS.c[name] for name in (*names, "tools_json")))
    for row in connection.execute(asked).mappings():
        place = tuple(row[name] for name in _PLACE)
        totals[(*place, row["outcome"])].update(_numbers(row))
        for name, calls in json.loads(row["tools_json"]).items():
            tools[(*place, name)] += calls
    wrong = {
        row["run_id"]
        for row in connection.execute(select(STEP_TOTALS)).mappings()
        if not _agree(row, totals.pop(tuple(row[n] for n in (*_PLACE, "outcome")), Counter()))
    }
    wrong |= {
        row["run_id"]
        for row in connection.execute(select(TOOL_COUNTS)).mappings()
        if row["calls"] != tools.pop(tuple(row[n] for n in (*_PLACE, "tool")), 0)
    }
    left = {place[0] for place in totals} | {place[0] for place, calls in tools.items() if calls}
    return sorted(wrong | left)


def _agree(row: RowMapping, sums: Mapping[str, float]) -> bool:
    """Return whether stored totals are these sums; floats are added in another order here."""
    return all(isclose(row[n], sums.get(n, 0), rel_tol=1e-9, abs_tol=1e-6) for n in _SUMS)


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
