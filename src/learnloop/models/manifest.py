"""The manifest of a model folder: the size and sha256 of each file, written last.

A folder without its manifest is unfinished; a file that differs from it is damaged.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

MANIFEST = "manifest.json"


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def write_manifest(folder: Path, *, source: str) -> None:
    """Record every file of a finished folder; `source` says where its content came from."""
    files = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": file_sha256(path),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    text = json.dumps({"source": source, "files": files}, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def find_damage(folder: Path) -> str:
    """Return what is wrong with a folder, naming the file; empty when all is well."""
    try:
        listed = _listed_files(folder)
    except (OSError, ValueError, KeyError, AttributeError):
        return f"{MANIFEST} is missing or unreadable"
    if not listed:
        return f"{MANIFEST} lists no files"
    found = (_file_damage(folder / name, *expected) for name, expected in listed.items())
    return next((damage for damage in found if damage), "")


def _file_damage(path: Path, size: int, digest: str) -> str:
    if not path.is_file():
        return f"{path.name} is missing"
    if path.stat().st_size != size:
        return f"{path.name} has {path.stat().st_size:,} bytes instead of {size:,}"
    return "" if file_sha256(path) == digest else f"{path.name} differs from its recorded sha256"


def _listed_files(folder: Path) -> dict[str, tuple[int, str]]:
    content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return {
        str(name): (int(entry["size"]), str(entry["sha256"]))
        for name, entry in content["files"].items()
    }
