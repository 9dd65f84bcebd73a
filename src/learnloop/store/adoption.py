"""Adoption: rows of files older than the ledger get contents, leaves, entries and counts."""

from __future__ import annotations

import secrets
import zlib

from sqlalchemy import Connection, func, select, update

from learnloop.codec import trace_from_json
from learnloop.errors import ConfigError
from learnloop.store import chain
from learnloop.store.contents import pack
from learnloop.store.rollouts import LIGHT, Kept, add_leaf
from learnloop.store.rollups import count
from learnloop.store.tables import EVENTS, ROLLOUTS, RUNS


def adopt(connection: Connection) -> None:
    """Take over the rows of version 1; the first entry tells from which event on the ledger speaks."""
    names = connection.execute(select(ROLLOUTS.c.trace_id).order_by(ROLLOUTS.c.trace_id)).scalars()
    for name in list(names):
        _adopt_one(connection, name)
    last = connection.execute(select(func.max(EVENTS.c.id))).scalar_one()
    runs = list(connection.execute(select(RUNS.c.id).order_by(RUNS.c.created_at)).scalars())
    chain.append(
        connection, chain.LEDGER_STARTED, "", {"after_event": last or 0, "runs": len(runs)}
    )
    for run_id in runs:
        chain.seal(connection, run_id)


def _adopt_one(connection: Connection, name: str) -> None:
    row = connection.execute(select(ROLLOUTS).where(ROLLOUTS.c.trace_id == name)).mappings().one()
    try:
        trace = trace_from_json(zlib.decompress(row["trace_json"]).decode())
    except (zlib.error, ValueError) as error:
        raise ConfigError(
            f"the database cannot be upgraded, rollout {name} is damaged: {error}",
            fix="Put back a backup, or delete this rollout's row.",
        ) from error
    packed, hashed = pack(connection, trace)
    connection.execute(
        update(ROLLOUTS).where(ROLLOUTS.c.trace_id == name).values(trace_json=packed)
    )
    numbers = {c.name: row[c.name] for c in LIGHT}
    add_leaf(connection, numbers, Kept(content="full", salt=secrets.token_bytes(16), hashed=hashed))
    count(connection, numbers)
