"""The index of a corpus: one SQLite file with every document, ranked by BM25."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from learnloop.errors import ConfigError
from learnloop.tools.corpus.files import Found, find_files, read_text

_TABLES = """
create table if not exists files (
    id integer primary key, path text unique, size int, mtime_ns int, sha256 text
);
create virtual table if not exists docs using fts5(path, text, tokenize = 'porter unicode61');
"""
_SEARCH = """
select path, snippet(docs, 1, '', '', '...', 24) from docs where docs match ?
order by bm25(docs, 2.0, 1.0), path limit ?
"""
# By id, which both tables share: a full-text table finds nothing else without reading all of it.
_TEXT = "select text from docs where rowid = (select id from files where path = ?)"
_MOST_WORDS = 64
"""Words of a query that are looked for; SQLite refuses expressions of thousands."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A document that was found, with the words around what was looked for."""

    path: str
    snippet: str


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """An indexed folder. `skipped` are files that are no text or cannot be read."""

    index: Path
    paths: tuple[str, ...]
    skipped: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path, index: Path) -> Self:
        """Index a folder, or bring its index up to date: only files that changed are read.

        Raises:
            ConfigError: there is no such folder, or no document in it.
        """
        fix = "Correct `corpus.path`; it counts from the project."
        if not folder.is_dir():
            raise ConfigError("no such folder", where=f"corpus {folder.name}", fix=fix)
        try:
            with _connected(index) as base, base:
                base.executescript(_TABLES)
                _update(base, folder, list(find_files(folder)))
                rows = base.execute("select path, sha256 from files order by path").fetchall()
        except sqlite3.DatabaseError as error:
            what = f"the index cannot be used ({error})"
            raise ConfigError(what, where=str(index), fix="Delete it: it is made anew.") from None
        paths = tuple(str(path) for path, digest in rows if digest)
        if not paths:
            raise ConfigError("holds no text", where=f"corpus {folder.name}", fix=fix)
        skipped = tuple(str(path) for path, digest in rows if not digest)
        return cls(index=index, paths=paths, skipped=skipped)

    def search(self, query: str, results: int) -> list[Hit]:
        """Return the documents that fit best; each word of the query may be missing."""
        words = list(dict.fromkeys(re.findall(r"\w+", query)))[:_MOST_WORDS]
        if not words:
            return []
        wanted = " OR ".join(f'"{word}"' for word in words)
        with _connected(self.index) as base:
            rows = base.execute(_SEARCH, (wanted, results)).fetchall()
        return [Hit(path=path, snippet=" ".join(text.split())) for path, text in rows]

    def text(self, path: str) -> str | None:
        """Return a document, or None when the corpus has none of this path."""
        with _connected(self.index) as base:
            row = base.execute(_TEXT, (path,)).fetchone()
        return None if row is None else str(row[0])

    def fingerprint(self) -> str:
        """Return a hash of all documents: equal texts under equal paths, equal hash."""
        joined = hashlib.sha256()
        with _connected(self.index) as base:
            for path, digest in base.execute("select path, sha256 from files order by path"):
                joined.update(f"{path}\0{digest}\0".encode())
        return f"sha256 {joined.hexdigest()[:16]}"


@contextmanager
def _connected(index: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(index, timeout=60)) as base:
        yield base


def _update(base: sqlite3.Connection, folder: Path, found: list[Found]) -> None:
    """Take away what is gone or changed, and read what is new."""
    base.execute("begin immediate")
    known = {
        (str(path), int(size), int(mtime_ns))
        for path, size, mtime_ns in base.execute("select path, size, mtime_ns from files")
    }
    now = {(f.path, f.size, f.mtime_ns): f for f in found}
    for path, *_ in known - now.keys():
        base.execute(
            "delete from docs where rowid = (select id from files where path = ?)", (path,)
        )
        base.execute("delete from files where path = ?", (path,))
    for key, file in now.items():
        if key not in known:
            text = read_text(folder, file)
            digest = "" if text is None else hashlib.sha256(text.encode()).hexdigest()
            row = base.execute("insert into files values (null, ?, ?, ?, ?)", (*key, digest))
            if text is not None:
                entry = (row.lastrowid, file.path, text)
                base.execute("insert into docs (rowid, path, text) values (?, ?, ?)", entry)
