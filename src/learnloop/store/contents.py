"""Shared texts: each is stored once, under its hash, as long as a rollout holds it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update

from learnloop.store.tables import CONTENTS
from learnloop.store.texts import put_back, take_out
from learnloop.store.upsert import upsert
from learnloop.trace import Trace

T = TypeVar("T")

_AT_ONCE = 500
"""Most values in one statement; databases have a limit."""

# Built once: building a statement takes longer than running it.
_KNOWN = select(CONTENTS.c.sha256, CONTENTS.c.id).where(
    CONTENTS.c.sha256.in_(bindparam("hashes", expanding=True))
)
_HOLD_MORE = (
    update(CONTENTS)
    .where(CONTENTS.c.id.in_(bindparam("ids", expanding=True)))
    .values(refs=CONTENTS.c.refs + 1)
)


def pack(connection: Connection, trace: Trace) -> tuple[bytes, str]:
    """Store a trace's longer texts; return the rest of it with references, and what is hashed.

    The second value depends on every bit of the trace, and not on where its texts are stored.
    """
    shell, texts = take_out(trace)
    raw = [text.encode("utf-8", "surrogatepass") for text in texts]
    hashes = [hashlib.sha256(body).digest() for body in raw]
    refs = _hold(connection, dict(zip(hashes, raw, strict=True)))
    packed = zlib.compress(f"{json.dumps([refs[name] for name in hashes])}\n{shell}".encode())
    return packed, _hashed(shell, hashes)


def hashed(packed: bytes, bodies: Mapping[int, str]) -> str:
    """Return of a packed trace what is hashed, from what is stored now."""
    refs, shell = _split(packed)
    raw = (bodies[ref].encode("utf-8", "surrogatepass") for ref in refs)
    return _hashed(shell, [hashlib.sha256(body).digest() for body in raw])


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


def _hold(connection: Connection, texts: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """Count one more holder of each text, by hash, and store new ones; return their references."""
    refs = _known(connection, list(texts))
    for some in _parts(list(refs.values())):
        connection.execute(_HOLD_MORE, {"ids": some})
    new = [name for name in texts if name not in refs]
    if new:
        rows = [{"sha256": name, "body": zlib.compress(texts[name]), "refs": 1} for name in new]
        adding = upsert(connection.dialect.name, CONTENTS, ("refs",), ("sha256",))
        connection.execute(adding, rows)
        refs |= _known(connection, new)
    return refs


def _known(connection: Connection, hashes: Sequence[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for some in _parts(hashes):
        rows = connection.execute(_KNOWN, {"hashes": some})
        found |= {row.sha256: row.id for row in rows}
    return found


def _hashed(shell: str, hashes: Iterable[bytes]) -> str:
    return "\n".join([shell, *(name.hex() for name in hashes)])


def _split(packed: bytes) -> tuple[list[int], str]:
    head, _, shell = zlib.decompress(packed).decode().partition("\n")
    return json.loads(head), shell


def _text(body: bytes) -> str:
    return zlib.decompress(body).decode("utf-8", "surrogatepass")


def _parts(values: Sequence[T]) -> Iterable[Sequence[T]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
