"""Entries of the ledger as they are written: in the transaction of what they tell of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from learnloop.ledger import make_entry, merkle_root, run_hash
from learnloop.store.tables import LEAVES, LEDGER, ROLLOUTS, RUNS

UNRECORDED = frozenset({"stage_started"})
"""Kinds of event that decide and result in nothing."""
ROLLOUTS_STORED = "rollouts_stored"
ROLLOUT_REPLACED = "rollout_replaced"
CONTENT_REDUCED = "content_reduced"
CONTENT_ERASED = "content_erased"
LEDGER_STARTED = "ledger_started"


def append(connection: Connection, kind: str, run_id: str, data: Mapping[str, Any]) -> int:
    """Add an entry and return its number.

    The transaction must hold the right to write since before it read anything, or two writers would
    both follow the same entry.
    """
    newest = select(LEDGER.c.seq, LEDGER.c.hash).order_by(LEDGER.c.seq.desc()).limit(1)
    last = connection.execute(newest).first()
    entry = make_entry(
        (last.seq, last.hash) if last else None,
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        kind=kind,
        run_id=run_id,
        data=data,
    )
    connection.execute(insert(LEDGER).values(entry.__dict__))
    return entry.seq


def record_event(
    connection: Connection, event_id: int, run_id: str, kind: str, data: object
) -> None:
    """Put an event into the ledger, after the rollouts that it rests on."""
    if kind in UNRECORDED:
        return
    seal(connection, run_id)
    told: dict[str, Any] = {"event": event_id, "data": data}
    if kind == "run_started":
        asked = select(RUNS).where(RUNS.c.id == run_id)
        told["run"] = run_hash(connection.execute(asked).mappings().one())
    append(connection, kind, run_id, told)


def seal(connection: Connection, run_id: str) -> None:
    """Write an entry for each stage and step that has rollouts in none yet."""
    asked = (
        select(LEAVES.c.id, LEAVES.c.leaf, ROLLOUTS.c.stage, ROLLOUTS.c.step)
        .join(ROLLOUTS, ROLLOUTS.c.trace_id == LEAVES.c.trace_id)
        .where(LEAVES.c.seq.is_(None), ROLLOUTS.c.run_id == run_id)
        .order_by(ROLLOUTS.c.stage, ROLLOUTS.c.step, LEAVES.c.trace_id)
    )
    pending = list(connection.execute(asked).mappings())
    for (stage, step), found in groupby(pending, key=lambda row: (row["stage"], row["step"])):
        rows = list(found)
        data = {"stage": stage, "step": step, **root_of(rows)}
        cover(connection, append(connection, ROLLOUTS_STORED, run_id, data), rows)


def root_of(rows: Sequence[RowMapping]) -> dict[str, object]:
    """Return what an entry says of the rollouts that it covers."""
    return {"rollouts": len(rows), "root": merkle_root(row["leaf"] for row in rows)}


def cover(connection: Connection, seq: int, rows: Sequence[RowMapping]) -> None:
    """Name the entry that covers some leaves."""
    for start in range(0, len(rows), 500):
        ids = [row["id"] for row in rows[start : start + 500]]
        connection.execute(update(LEAVES).where(LEAVES.c.id.in_(ids)).values(seq=seq))
