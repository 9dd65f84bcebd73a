"""The audit: does everything that is stored still agree with the ledger?"""

from __future__ import annotations

import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select

from learnloop.ledger import (
    GENESIS,
    Audit,
    Break,
    Entry,
    Erasure,
    canonical,
    chain_break,
    content_hash,
    leaf_hash,
    merkle_root,
    run_hash,
)
from learnloop.store import chain, rollups
from learnloop.store.contents import hashed, load
from learnloop.store.rollouts import LIGHT
from learnloop.store.tables import EVENTS, LEAVES, LEDGER, ROLLOUTS, RUNS

_COVERING = {chain.ROLLOUTS_STORED, chain.CONTENT_REDUCED, chain.CONTENT_ERASED}
"""Kinds of entry that are made over leaves."""
_STANDING = {
    "run_started": {"running", "stopped", "failed"},
    "paused": {"running", "stopped", "failed"},
    "run_ended": {"running", "stopped", "done"},
}
"""How a run may stand after its last entry of these; a kill leaves it `running`, then `stopped`."""
_APART_S = 120.0
"""Most seconds between the time of an event and that of its entry, which one transaction writes."""
_AT_ONCE = 200
"""Rollouts that are read together."""


def entries(connection: Connection) -> list[Entry]:
    """Return the whole ledger in order."""
    rows = connection.execute(select(LEDGER).order_by(LEDGER.c.seq)).mappings()
    return [Entry(**row) for row in rows]


def audit(connection: Connection) -> Audit:
    """Look over the chain, and over every event and rollout that it speaks of."""
    found = entries(connection)
    broken = chain_break(found)
    if broken is None:
        # What is stored is blamed on the entry that told of it; the first one is named.
        look = _Look(connection=connection, entries={entry.seq: entry for entry in found})
        broken = min(look.breaks(), key=lambda b: b.seq, default=None)
        # Sums last: an altered rollout does not agree with them either.
        broken = broken or next(look.totals(), None)
    pending = select(func.count()).select_from(LEAVES).where(LEAVES.c.seq.is_(None))
    rollouts = select(func.count()).select_from(ROLLOUTS)
    return Audit(
        entries=len(found),
        rollouts=connection.execute(rollouts).scalar_one(),
        pending=connection.execute(pending).scalar_one(),
        head=found[-1].hash if found else GENESIS,
        erased=tuple(_erasure(e) for e in found if e.kind == chain.CONTENT_ERASED),
        broken=broken,
    )


def _erasure(entry: Entry) -> Erasure:
    data = entry.data
    return Erasure(
        seq=entry.seq,
        time=entry.time,
        run_id=entry.run_id,
        rollouts=data["rollouts"],
        reason=data["reason"],
    )


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A look at what is stored, beside a chain that is whole."""

    connection: Connection
    entries: Mapping[int, Entry]

    def breaks(self) -> Iterator[Break]:
        """Yield everything that the ledger does not agree with."""
        yield from self._events()
        yield from self._runs()
        yield from self._roots()
        yield from self._rollouts()

    def _break(self, seq: int, what: str) -> Break:
        entry = self.entries.get(seq)
        return Break(seq=seq, kind=entry.kind if entry else "missing", what=what)

    def _events(self) -> Iterator[Break]:
        """Compare events with their entries, both ways."""
        told_of = (EVENTS.c.run_id, EVENTS.c.kind, EVENTS.c.data_json, EVENTS.c.created_at)
        asked = select(EVENTS.c.id, *told_of)
        rows = {row.id: row for row in self.connection.execute(asked)}
        told: set[int] = set()
        after = 0
        for seq, entry in self.entries.items():
            data = entry.data
            if entry.kind == chain.LEDGER_STARTED:
                after = int(data["after_event"])
            if "event" not in data:
                continue
            told.add(data["event"])
            row = rows.get(data["event"])
            if row is None:
                yield self._break(seq, "its event is gone")
            elif (row.run_id, row.kind, _again(row.data_json)) != (
                entry.run_id,
                entry.kind,
                canonical(data["data"]),
            ):
                yield self._break(seq, "its event was altered")
            elif not _is_near(row.created_at, entry.time):
                yield self._break(seq, "the time of its event was altered")
        silent = [i for i, r in rows.items() if i > after and r.kind not in chain.UNRECORDED]
        if untold := set(silent) - told:
            yield self._break(len(self.entries) + 1, f"no entry tells of event {min(untold)}")

    def _runs(self) -> Iterator[Break]:
        runs = {r["id"]: r for r in self.connection.execute(select(RUNS)).mappings()}
        last: dict[str, Entry] = {}
        for seq, entry in self.entries.items():
            if entry.kind in _STANDING:
                last[entry.run_id] = entry
            if entry.kind != "run_started":
                continue
            run = runs.get(entry.run_id)
            if run is None or run_hash(run) != entry.data["run"]:
                yield self._break(seq, f"the settings of run {entry.run_id} were altered")
            elif not run["id"].startswith(_second(run["created_at"])):
                yield self._break(seq, f"the time of run {entry.run_id} was altered")
        for run_id, entry in last.items():
            if run_id in runs and runs[run_id]["status"] not in _STANDING[entry.kind]:
                yield self._break(entry.seq, f"the status of run {run_id} was altered")

    def _roots(self) -> Iterator[Break]:
        """Compare roots with the leaves they were made over."""
        asked = (
            select(LEAVES.c.seq, LEAVES.c.leaf)
            .where(LEAVES.c.seq.is_not(None))
            .order_by(LEAVES.c.seq, LEAVES.c.trace_id)
        )
        rows = list(self.connection.execute(asked))
        roots = {
            seq: merkle_root(row.leaf for row in found)
            for seq, found in groupby(rows, key=lambda row: row.seq)
        }
        for seq, entry in self.entries.items():
            wanted = entry.data["root"] if entry.kind in _COVERING else None
            if roots.get(seq) != wanted:
                yield self._break(seq, "the hashes of its rollouts were altered")

    def _rollouts(self) -> Iterator[Break]:
        """Compare every rollout with its leaves."""
        known: dict[str, list[RowMapping]] = defaultdict(list)
        for leaf in self.connection.execute(select(LEAVES).order_by(LEAVES.c.id)).mappings():
            known[leaf["trace_id"]].append(leaf)
        replaced = {
            (e.data["rollout"], seq)
            for e in self.entries.values()
            if e.kind == chain.ROLLOUT_REPLACED
            for seq in e.data["entries"]
        }
        for row, bodies in self._stored():
            yield from self._rollout(row, bodies, known.pop(row["trace_id"], []), replaced)
        for name, leaves in known.items():
            yield self._break(_seq(leaves[0], self.entries), f"rollout {name} is gone")

    def totals(self) -> Iterator[Break]:
        """Compare the sums that charts are drawn from with the rollouts they are sums of."""
        for run_id in rollups.disagreeing(self.connection):
            told = (
                e.seq
                for e in self.entries.values()
                if e.kind == chain.ROLLOUTS_STORED and e.run_id == run_id
            )
            seq = next(told, len(self.entries) + 1)
            yield self._break(seq, f"the totals of run {run_id} are not those of its rollouts")

    def _stored(self) -> Iterator[tuple[RowMapping, Mapping[int, str]]]:
        """Yield every rollout with the shared texts it needs, some at a time."""
        names = select(ROLLOUTS.c.trace_id).order_by(ROLLOUTS.c.trace_id)
        stored = list(self.connection.execute(names).scalars())
        for start in range(0, len(stored), _AT_ONCE):
            some = stored[start : start + _AT_ONCE]
            asked = select(ROLLOUTS).where(ROLLOUTS.c.trace_id.in_(some))
            rows = list(self.connection.execute(asked).mappings())
            bodies = _bodies(self.connection, rows)
            for row in rows:
                yield row, bodies if bodies is not None else _bodies(self.connection, [row]) or {}

    def _rollout(
        self,
        row: RowMapping,
        bodies: Mapping[int, str],
        leaves: Sequence[RowMapping],
        replaced: set[tuple[str, int]],
    ) -> Iterator[Break]:
        name, numbers = row["trace_id"], {c.name: row[c.name] for c in LIGHT}
        for leaf in leaves:
            is_told = leaf_hash(numbers, leaf["content_hash"]) == leaf["leaf"]
            if not is_told and (name, leaf["seq"]) not in replaced:
                what = f"the numbers of rollout {name} were altered"
                yield self._break(_seq(leaf, self.entries), what)
        current = [leaf for leaf in leaves if leaf["salt"] is not None]
        seq = _seq(leaves[-1], self.entries) if leaves else len(self.entries) + 1
        if not leaves:
            yield self._break(seq, f"the ledger does not know rollout {name}")
        elif len(current) != 1 or current[0] is not leaves[-1]:
            yield self._break(seq, f"the salt of rollout {name} is gone")
        elif not _is_unchanged(row, bodies, current[0]):
            yield self._break(seq, f"the content of rollout {name} was altered")


def _seq(leaf: RowMapping, known: Mapping[int, Entry]) -> int:
    """Return the entry that covers a leaf, or the next one."""
    seq = leaf["seq"]
    return len(known) + 1 if seq is None else int(seq)


def _bodies(connection: Connection, rows: Sequence[RowMapping]) -> dict[int, str] | None:
    """Return the shared texts of some rollouts; None when one of them cannot be read."""
    try:
        return load(connection, [row["trace_json"] for row in rows])
    except (zlib.error, ValueError, TypeError):
        return None


def _is_unchanged(row: RowMapping, bodies: Mapping[int, str], leaf: RowMapping) -> bool:
    try:
        text = hashed(row["trace_json"], bodies)
    except (zlib.error, ValueError, KeyError, TypeError):
        return False
    return content_hash(leaf["salt"], leaf["content"], text) == leaf["content_hash"]


def _is_near(one: str, other: str) -> bool:
    """Return whether two times, as they are stored, are about the same."""
    try:
        apart = datetime.fromisoformat(one) - datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return False
    return abs(apart.total_seconds()) <= _APART_S


def _second(time: str) -> str:
    """Return a stored time as ids of runs begin."""
    return re.sub(r"[-:]", "", time[:19]).replace("T", "-")


def _again(data_json: str) -> str:
    """Return stored JSON in the form that is hashed."""
    value: Any = json.loads(data_json)
    return canonical(value)
