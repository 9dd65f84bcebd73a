"""Backups: whole copies of the database file, made while others read and write it."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from learnloop.errors import ConfigError, UsageError

KEPT = 3
"""How many automatic backups are kept; those that somebody asked for are all kept."""

FOLDER = "backups"


def backup_file(database: Path, name: str) -> Path:
    """Return where a backup of now goes, beside the database."""
    now = datetime.now(UTC)
    return database.parent / FOLDER / f"{database.stem}-{name}-{now:%Y%m%d-%H%M%S-%f}.db"


def backups(database: Path) -> list[Path]:
    """Return the backups beside a database, the newest first."""
    found = (database.parent / FOLDER).glob(f"{database.stem}-*.db")
    return sorted(found, key=lambda path: path.name.split("-", 2)[-1], reverse=True)


def back_up(database: Path, target: Path) -> Path:
    """Copy a database to a new file, with everything committed so far; it appears whole or not.

    Raises:
        UsageError: the file exists already.
        ConfigError: it cannot be written, or the database cannot be read.
    """
    if target.exists():
        raise UsageError("there is a file already", where=str(target), fix="Name another one.")
    staging = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(staging)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        staging.replace(target)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", where=str(target)) from None
    except sqlite3.Error as error:
        raise ConfigError(f"cannot back up the database: {error}", where=str(target)) from None
    finally:
        staging.unlink(missing_ok=True)
    return target


def keep_last(database: Path, prefix: str) -> None:
    """Delete all but the last automatic backups, whose names begin so."""
    made = [p for p in backups(database) if p.name.startswith(f"{database.stem}-{prefix}")]
    for old in made[KEPT:]:
        old.unlink(missing_ok=True)
