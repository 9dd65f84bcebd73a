"""Vectors of a corpus, kept in its index: made once for each text, and compared with a query's."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Self

import anyio.to_thread
import numpy as np

from learnloop.tools.corpus.embedding import Embedder, Passage
from learnloop.tools.corpus.index import Corpus, Hit
from learnloop.tools.corpus.minilm import Floats

# By the hash of a text: a document that moves keeps its vectors, and copies share them. `last` is
# set on a text's last passage, which is written after all others: so it tells that none is missing.
_TABLE = """
create table if not exists passages (
    model text, sha256 text, start int, until int, last int, vector blob,
    primary key (model, sha256, start)
) without rowid;
"""
_MISSING = """
select min(path), sha256 from files where sha256 != '' and sha256 not in
    (select sha256 from passages where model = ? and last) group by sha256 order by 1
"""
_UNUSED = "delete from passages where model != ? or sha256 not in (select sha256 from files)"
_ALL = """
select path, start, until, vector from files join passages using (sha256)
where model = ? order by path, start
"""
_BATCH = 32
"""Passages between two commits: about two seconds of work, after which Ctrl-C is heard."""
_SNIPPET = 240


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One passage on its way into the index."""

    sha256: str
    passage: Passage
    is_last: bool


@dataclass(frozen=True, kw_only=True)
class Vectors:
    """The vectors of all passages, in one matrix; `places` says where each passage is."""

    corpus: Corpus
    embedder: Embedder
    places: tuple[tuple[str, int, int], ...]
    matrix: Floats

    @classmethod
    async def open(cls, corpus: Corpus, embedder: Embedder) -> Self:
        """Embed what is new in the corpus, a batch at a time, and load all vectors.

        What was embedded stays when this is interrupted.
        """
        rows = _missing(corpus, embedder)
        while await anyio.to_thread.run_sync(_embed_some, corpus, embedder, rows):
            pass
        return await anyio.to_thread.run_sync(cls._loaded, corpus, embedder)

    @classmethod
    def _loaded(cls, corpus: Corpus, embedder: Embedder) -> Self:
        with closing(_connected(corpus)) as base:
            found = base.execute(_ALL, (embedder.version,)).fetchall()
        data = np.frombuffer(b"".join(row[3] for row in found), "<f4")
        places = tuple((str(path), int(start), int(until)) for path, start, until, _ in found)
        matrix = data.reshape(len(places), -1)
        return cls(corpus=corpus, embedder=embedder, places=places, matrix=matrix)

    def search(self, query: str, results: int) -> list[Hit]:
        """Return the documents with the passages that are nearest to a query by cosine."""
        if not query.strip():
            return []
        cosines = self.matrix @ self.embedder.embed_query(query)
        found: dict[str, tuple[int, int]] = {}
        for at in np.argsort(-cosines, kind="stable"):
            path, start, until = self.places[int(at)]
            found.setdefault(path, (start, until))
            if len(found) >= results:
                break
        return [
            Hit(path=path, snippet=self._snippet(path, *place)) for path, place in found.items()
        ]

    def _snippet(self, path: str, start: int, until: int) -> str:
        words = " ".join((self.corpus.text(path) or "")[start:until].split())
        head = "..." if start else ""
        if len(words) <= _SNIPPET:
            return head + words
        return f"{head}{words[:_SNIPPET].rpartition(' ')[0] or words[:_SNIPPET]}..."


def _connected(corpus: Corpus) -> sqlite3.Connection:
    base = sqlite3.connect(corpus.index, timeout=60)
    base.executescript(_TABLE)
    return base


def _missing(corpus: Corpus, embedder: Embedder) -> Iterator[_Row]:
    """Yield the passages of every text without vectors; those without a text are dropped first."""
    with closing(_connected(corpus)) as base, base:
        base.execute(_UNUSED, (embedder.version,))
        texts = base.execute(_MISSING, (embedder.version,)).fetchall()
    for path, digest in texts:
        passages = list(embedder.passages(corpus.text(path) or ""))
        for number, passage in enumerate(passages, start=1):
            yield _Row(sha256=digest, passage=passage, is_last=number == len(passages))


def _embed_some(corpus: Corpus, embedder: Embedder, rows: Iterator[_Row]) -> bool:
    """Embed and store the next passages; return whether there were any."""
    batch = list(islice(rows, _BATCH))
    if not batch:
        return False
    vectors = embedder.embed([row.passage for row in batch])
    entries = [
        (embedder.version, row.sha256, row.passage.start, row.passage.end, row.is_last, v.tobytes())
        for row, v in zip(batch, vectors, strict=True)
    ]
    with closing(_connected(corpus)) as base, base:
        base.executemany("insert or replace into passages values (?, ?, ?, ?, ?, ?)", entries)
    return True
