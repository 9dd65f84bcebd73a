"""Shared texts: each is stored once, under its hash, as long as a rollout holds it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, delete, select, update

from learnloop.store.tables import CONTENTS
from learnloop.store.texts import put_back, take_out
from learnloop.store.upsert import upsert
from learnloop.trace import Trace

T = TypeVar("T")

_AT_ONCE = 500
"""Most values in one statement; databases have a limit."""


def pack(connection: Connection, trace: Trace) -> bytes:
    """Store a trace's longer texts, and return the rest of it with references to them."""
    shell, texts = take_out(trace)
    refs = _hold(connection, texts)
    return zlib.compress(f"{json.dumps(refs)}\n{shell}".encode())


def unpack(packed: bytes, bodies: Mapping[int, str]) -> Trace:
    """Return the trace that `pack` packed; `bodies` are those of `load`."""
    refs, shell = _split(packed)
    return put_back(shell, [bodies[ref] for ref in refs])


def load(connection: Connection, packed: Iterable[bytes]) -> dict[int, str]:
    """Return the shared texts of some packed traces, by reference."""
    refs = sorted({ref for one in packed for ref in _split(one)[0]})
    found: dict[int, str] = {}
    for some in _parts(refs):
        asked = select(CONTENTS.c.id, CONTENTS.c.body).where(CONTENTS.c.id.in_(some))
        found |= {row.id: _text(row.body) for row in connection.execute(asked)}
    return found


def let_go(connection: Connection, packed: bytes) -> None:
    """Take a trace's hold off its shared texts; those that nobody holds any more are deleted."""
    for some in _parts(_split(packed)[0]):
        held = CONTENTS.c.id.in_(some)
        connection.execute(update(CONTENTS).where(held).values(refs=CONTENTS.c.refs - 1))
        connection.execute(delete(CONTENTS).where(held, CONTENTS.c.refs <= 0))


def _hold(connection: Connection, texts: Sequence[str]) -> list[int]:
    """Store texts, or count one more holder of those that are there; return their references."""
    if not texts:
        return []
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    hashes = [hashlib.sha256(body).digest() for body in raw]
    rows = [
        {"sha256": name, "body": zlib.compress(body), "refs": 1}
        for name, body in zip(hashes, raw, strict=True)
    ]
    connection.execute(upsert(connection, CONTENTS, ["refs"], key=["sha256"]), rows)
    ids: dict[bytes, int] = {}
    for some in _parts(hashes):
        asked = select(CONTENTS.c.sha256, CONTENTS.c.id).where(CONTENTS.c.sha256.in_(some))
        ids |= {row.sha256: row.id for row in connection.execute(asked)}
    return [ids[name] for name in hashes]


def _split(packed: bytes) -> tuple[list[int], str]:
    head, _, shell = zlib.decompress(packed).decode().partition("\n")
    return json.loads(head), shell


def _text(body: bytes) -> str:
    return zlib.decompress(body).decode("utf-8", "surrogatepass")


def _parts(values: Sequence[T]) -> Iterable[Sequence[T]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
