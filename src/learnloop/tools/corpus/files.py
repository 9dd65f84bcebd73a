"""The documents of a folder: which files count, and their text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LONGEST_BYTES = 20_000_000


@dataclass(frozen=True, kw_only=True)
class Found:
    """A file of the corpus: its path from the folder, and its size and time, which tell changes."""

    path: str
    size: int
    mtime_ns: int


def find_files(folder: Path) -> Iterator[Found]:
    """Yield the files below a folder by path; hidden ones and links that lead out are left out."""
    root = folder.resolve()
    for here, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(here, name)
            if name.startswith("."):
                continue
            try:
                if not path.resolve().is_relative_to(root):
                    continue
                state = path.stat()
            except (OSError, RuntimeError):
                continue  # a link that leads nowhere, or in a circle
            place = path.relative_to(root).as_posix()
            if path.is_file() and place.isprintable():
                yield Found(path=place, size=state.st_size, mtime_ns=state.st_mtime_ns)


def read_text(folder: Path, found: Found) -> str | None:
    """Return a document's text; None for one that is no text, cannot be read or is too large."""
    if found.size > _LONGEST_BYTES:
        return None
    try:
        data = (folder / found.path).read_bytes()
        return None if b"\0" in data else data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
