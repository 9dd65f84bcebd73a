"""A new folder of files: written whole or not at all, and never over something that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from learnloop.errors import UsageError, writing


def write_folder(target: Path, files: Mapping[str, str], verify: Callable[[Path], None]) -> None:
    """Write files, by relative path, into a folder that is new or empty.

    Args:
        target: the folder to make.
        files: texts by path.
        verify: looks at the finished folder before it gets its name; what it raises undoes all.

    Raises:
        UsageError: the folder holds something, or is no folder; or its parent is missing.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = "is there already and is never overwritten"
        raise UsageError(what, where=str(target), fix="Name another folder with --to.")
    place = target.absolute()
    if not place.parent.is_dir():
        raise UsageError("there is no such folder", where=str(target.parent), fix="Make it first.")
    staging = place.parent / f".{place.name}.{os.getpid()}.partial"
    try:
        for name, text in files.items():
            path = staging / name
            with writing(place / name):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
        verify(staging)
        staging.rename(place)  # an empty folder of that name gives way; a full one would not
    finally:
        shutil.rmtree(staging, ignore_errors=True)
