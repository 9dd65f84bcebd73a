"""The ledger: entries chained by their hashes, so that a changed past is found.

Contents are not hashed bare: a short text could be guessed from its hash. Each rollout has a random
salt of its own, which is destroyed with its content; what is left proves nothing about the text, and
the chain stays whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

GENESIS = "0" * 64
"""What the first entry names as the hash before it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger; `data_json` is the text that was hashed, `prev_hash` the line before."""

    seq: int
    time: str
    kind: str
    run_id: str
    data_json: str
    prev_hash: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """Return what the entry says beside its kind."""
        return json.loads(self.data_json)


@dataclass(frozen=True, kw_only=True)
class Break:
    """Where the ledger and what is stored differ first: an entry, and what is wrong there."""

    seq: int
    kind: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """Contents that were erased on purpose: how many rollouts of which run, when and why."""

    seq: int
    time: str
    run_id: str
    rollouts: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What a look at the whole ledger found.

    `pending` rollouts are stored and wait for the entry that ends their stage; `head` is the hash of
    the last entry: whoever notes it elsewhere can tell later that nothing before it has changed.
    """

    entries: int
    rollouts: int
    pending: int
    head: str
    erased: tuple[Erasure, ...] = field(default=())
    broken: Break | None = None


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A head that somebody noted: which entry of the chain it is, and how many came since.

    Entry 0 is the empty ledger. `entry` is None when the chain does not hold it.
    """

    hash: str
    entry: int | None
    since: int = 0


def find_head(entries: Sequence[Entry], noted: str) -> Expected:
    """Return where a whole chain holds a head that was noted earlier."""
    heads = [GENESIS, *(entry.hash for entry in entries)]
    if noted not in heads:
        return Expected(hash=noted, entry=None)
    place = heads.index(noted)
    return Expected(hash=noted, entry=place, since=len(entries) - place)


def make_entry(
    last: tuple[int, str] | None, *, time: str, kind: str, run_id: str, data: object
) -> Entry:
    """Return the entry after `last`, which is the number and the hash of the newest one."""
    seq, prev_hash = (last[0] + 1, last[1]) if last else (1, GENESIS)
    data_json = canonical(data)
    made = Entry(
        seq=seq,
        time=time,
        kind=kind,
        run_id=run_id,
        data_json=data_json,
        prev_hash=prev_hash,
        hash="",
    )
    return replace(made, hash=entry_hash(made))


def entry_hash(entry: Entry) -> str:
    """Return the hash of everything in an entry but its hash."""
    parts = (entry.seq, entry.time, entry.kind, entry.run_id, entry.data_json, entry.prev_hash)
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def chain_break(entries: Sequence[Entry]) -> Break | None:
    """Return the first entry that does not follow from the one before it."""
    for number, entry in enumerate(entries, start=1):
        if entry.seq != number:
            return Break(seq=number, kind=entry.kind, what="the entry is missing")
        if entry.hash != entry_hash(entry):
            return Break(seq=entry.seq, kind=entry.kind, what="the entry was altered")
    if entries and entries[0].prev_hash != GENESIS:
        return Break(seq=1, kind=entries[0].kind, what="something came before the first entry")
    for before, after in pairwise(entries):
        if after.prev_hash != before.hash:
            what = "the entry before it was altered or replaced"
            return Break(seq=after.seq, kind=after.kind, what=what)
    return None


def content_hash(salt: bytes, policy: str, text: str) -> bytes:
    """Return the salted hash of a rollout's content, and of the policy by which it was kept."""
    return hashlib.sha256(salt + f"{policy}\n{text}".encode()).digest()


def run_hash(run: Mapping[Any, Any]) -> str:
    """Return the hash of what a run was started with."""
    names = ("command", "config_json", "config_hash", "seed", "meta_json")
    return hashlib.sha256(canonical([run[name] for name in names]).encode()).hexdigest()


def leaf_hash(numbers: Mapping[str, object], content: bytes) -> bytes:
    """Return what stands for one rollout in the ledger: its numbers and its content's salted hash."""
    inner = hashlib.sha256(canonical(dict(numbers)).encode()).digest()
    return hashlib.sha256(b"\x00" + inner + content).digest()


def merkle_root(leaves: Iterable[bytes]) -> str:
    """Return the root of the tree over leaves in their order; one path proves one leaf."""
    level = list(leaves)
    if not level:
        return GENESIS
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [_node(left, right) for left, right in pairs] + odd
    return level[0].hex()


def canonical(value: object) -> str:
    """Return JSON that is equal for equal values; ASCII, because texts may hold lone surrogates."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _node(left: bytes, right: bytes) -> bytes:
    # Another prefix than a leaf's, so that no inner node can be passed off as a leaf.
    return hashlib.sha256(b"\x01" + left + right).digest()
