"""Rollouts as rows: numbers, packed trace, the leaf of the ledger, and counts, always together."""

from __future__ import annotations

import gc
import json
import secrets
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, RowMapping, bindparam, delete, insert, select, update

from learnloop.budget import Spend
from learnloop.ledger import content_hash, leaf_hash
from learnloop.store import chain
from learnloop.store.content import reduce
from learnloop.store.contents import let_go, load, pack, unpack
from learnloop.store.rollups import count
from learnloop.store.tables import BEGUN, LEAVES, LEDGER, ROLLOUTS
from learnloop.store.upsert import upsert
from learnloop.trace import Content, Trace

LIGHT = [c for c in ROLLOUTS.c if c.name != "trace_json"]
"""A rollout's numbers."""

# Built once: building a statement takes longer than running it, and these run with every rollout.
_NAMED = select(ROLLOUTS).where(ROLLOUTS.c.trace_id == bindparam("name"))
_NEW_ROLLOUT, _NEW_LEAF = insert(ROLLOUTS), insert(LEAVES)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of a rollout's content: which policy's, its salt, and the text that is hashed."""

    content: Content
    salt: bytes
    hashed: str


def begin(connection: Connection, run_id: str, trace_id: str) -> None:
    """Note that a rollout is under way, before it costs anything; a second time does nothing."""
    values = {"trace_id": trace_id, "run_id": run_id}
    connection.execute(upsert(connection.dialect.name, BEGUN, (), ("trace_id",)), values)


def under_way(connection: Connection, run_id: str) -> list[str]:
    """Return the rollouts of a run that were begun and not stored."""
    asked = select(BEGUN.c.trace_id).where(BEGUN.c.run_id == run_id)
    return list(connection.execute(asked.order_by(BEGUN.c.trace_id)).scalars())


def end(connection: Connection, names: Sequence[str]) -> None:
    """Note that rollouts are not under way any more."""
    connection.execute(delete(BEGUN).where(BEGUN.c.trace_id.in_(names)))


def add(connection: Connection, place: Mapping[str, Any], trace: Trace, content: Content) -> bool:
    """Store a rollout, and return whether it is new; one that was lost to a fault is replaced."""
    end(connection, [trace.id])
    known = _row(connection, trace.id)
    if known is not None and known["outcome"] != "infra_fault":
        return False
    if known is not None:
        _take_away(connection, known)
    numbers = {**place, **_numbers(trace)}
    packed, kept = _keep(connection, trace, content)
    values = {**numbers, "trace_json": packed}
    if known is None:
        connection.execute(_NEW_ROLLOUT, values)
    else:
        connection.execute(_at(trace.id).values(values))
    add_leaf(connection, numbers, kept)
    count(connection, numbers)
    return True


def replaced(connection: Connection, run_id: str) -> Spend:
    """Return what those rollouts of a run took that were lost to faults and made anew since."""
    asked = select(LEDGER.c.data_json).where(
        LEDGER.c.run_id == run_id, LEDGER.c.kind == chain.ROLLOUT_REPLACED
    )
    told = [json.loads(text) for text in connection.execute(asked).scalars()]
    # Entries of before do not say what was spent.
    known = [Spend(rollouts=1, **data["spent"]) for data in told if "spent" in data]
    silent = len(told) - len(known)
    return sum(known, Spend(rollouts=silent, unknown=silent))


def reduce_rows(
    connection: Connection, kind: str, rows: Sequence[RowMapping], told: Mapping[str, Any]
) -> None:
    """Reduce the content of stored rollouts of one run to `told["content"]`, in one entry.

    Their old salts are destroyed, so that the hashes in the chain say nothing about the texts.
    """
    ordered = sorted(rows, key=lambda row: str(row["trace_id"]))
    run_id = str(ordered[0]["run_id"])
    chain.seal(connection, run_id)
    for row in ordered:
        trace = read_one(connection, row)
        let_go(connection, row["trace_json"])
        packed, kept = _keep(connection, trace, cast("Content", told["content"]))
        connection.execute(_at(trace.id).values(trace_json=packed))
        _forget_salt(connection, trace.id)
        add_leaf(connection, {c.name: row[c.name] for c in LIGHT}, kept)
    # All other leaves of the run have their entry by now.
    names = [row["trace_id"] for row in ordered]
    leaves = pending_leaves(connection, names)
    chain.cover(
        connection,
        chain.append(connection, kind, run_id, {**told, **chain.root_of(leaves)}),
        leaves,
    )


def pending_leaves(connection: Connection, names: Sequence[str]) -> list[RowMapping]:
    """Return the leaves of some rollouts that no entry covers yet, by trace id."""
    wanted = set(names)
    asked = select(LEAVES.c.id, LEAVES.c.leaf, LEAVES.c.trace_id).where(LEAVES.c.seq.is_(None))
    found = connection.execute(asked.order_by(LEAVES.c.trace_id)).mappings()
    return [row for row in found if row["trace_id"] in wanted]


def read_one(connection: Connection, row: RowMapping) -> Trace:
    """Return the trace of a row."""
    packed = cast("bytes", row["trace_json"])
    return unpack(packed, load(connection, [packed]))


def read_all(connection: Connection, rows: Sequence[RowMapping]) -> list[Trace]:
    """Return the traces of some rows; shared texts are read once."""
    bodies = load(connection, (row["trace_json"] for row in rows))
    with _collected_later():
        return [unpack(row["trace_json"], bodies) for row in rows]


@contextmanager
def _collected_later() -> Generator[None]:
    """Put off the search for unused cycles: traces hold none, and it looks through all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def place_of(run_id: str, stage: str, step: int) -> dict[str, Any]:
    """Return the columns that say where a rollout is filed."""
    return {"run_id": run_id, "stage": stage, "step": step}


def _numbers(trace: Trace) -> dict[str, Any]:
    """Return a trace's numbers as columns, of the types with which they are read again."""
    score = trace.score
    return {
        "trace_id": trace.id,
        "candidate_id": trace.candidate_id,
        "task_id": trace.task_id,
        "attempt": trace.attempt,
        "outcome": trace.outcome,
        "finish_reason": trace.finish_reason,
        "value": float(score.value) if score else None,
        "correct": float(score.correct) if score else None,
        "calls": len(trace.calls_run),
        "rounds": trace.rounds,
        "tokens": trace.tokens_total,
        "latency_s": float(trace.latency_s),
        "failure_kind": trace.failure.kind if trace.failure else "",
        "tools_json": json.dumps(Counter(record.call.name for record in trace.calls_run)),
    }


def _row(connection: Connection, trace_id: str) -> RowMapping | None:
    return connection.execute(_NAMED, {"name": trace_id}).mappings().first()


def _take_away(connection: Connection, row: RowMapping) -> None:
    """Undo what a lost rollout added, as far as the ledger has not told of it.

    What it took stays in the ledger: it was paid for.
    """
    name, spend = row["trace_id"], Spend.of(read_one(connection, row))
    count(connection, dict(row), -1)
    let_go(connection, row["trace_json"])
    its_leaves = LEAVES.c.trace_id == name
    connection.execute(delete(LEAVES).where(its_leaves, LEAVES.c.seq.is_(None)))
    _forget_salt(connection, name)
    # Those of contents it had before, too: their numbers will not be the new ones either.
    told = connection.execute(select(LEAVES.c.seq).where(its_leaves)).scalars()
    data = {
        "rollout": name,
        "entries": sorted(told),
        "failure": row["failure_kind"],
        "spent": {n: getattr(spend, n) for n in ("calls", "tokens_in", "tokens_out")},
    }
    chain.append(connection, chain.ROLLOUT_REPLACED, row["run_id"], data)


def _keep(connection: Connection, trace: Trace, content: Content) -> tuple[bytes, Kept]:
    """Pack as much of a trace as a policy keeps, under a new salt."""
    salt = secrets.token_bytes(16)
    kept = reduce(trace, content, salt)
    packed, hashed = pack(connection, kept)
    return packed, Kept(content=kept.content, salt=salt, hashed=hashed)


def add_leaf(connection: Connection, numbers: Mapping[str, Any], kept: Kept) -> None:
    """Add what the ledger's next entry on this rollout is made over."""
    content = content_hash(kept.salt, kept.content, kept.hashed)
    values = {
        "trace_id": numbers["trace_id"],
        "content": kept.content,
        "salt": kept.salt,
        "content_hash": content,
        "leaf": leaf_hash(numbers, content),
    }
    connection.execute(_NEW_LEAF, values)


def _forget_salt(connection: Connection, trace_id: str) -> None:
    old = update(LEAVES).where(LEAVES.c.trace_id == trace_id, LEAVES.c.salt.is_not(None))
    connection.execute(old.values(salt=None))


def _at(trace_id: str) -> Any:
    return update(ROLLOUTS).where(ROLLOUTS.c.trace_id == trace_id)
