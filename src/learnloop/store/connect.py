"""Opens the database file: settings of the connection and the version of its tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, StaticPool, create_engine, event
from sqlalchemy.exc import DatabaseError

from learnloop.errors import ConfigError, UserError
from learnloop.store.tables import METADATA, VERSION

_WAIT_S = 30.0
"""How long a write waits for another process to finish its own."""


def open_engine(path: Path) -> Engine:
    """Return an engine on the file, whose tables are there and of this version.

    Raises:
        ConfigError: the file is no database of ours, or is newer, or cannot be made.
        UserError: the disk is full or fails.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make its folder: {error.strerror}", where=str(path)) from None
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        # One connection under the store's lock: simple, and readers of other processes are not
        # disturbed by it.
        poolclass=StaticPool,
        connect_args={"check_same_thread": False, "timeout": _WAIT_S},
    )
    event.listen(engine, "connect", _configure)
    try:
        _prepare(engine, path)
    except DatabaseError as error:
        engine.dispose()
        raise refusal(error, path, "cannot open the database") from None
    except ConfigError:
        engine.dispose()
        raise
    return engine


def refusal(error: DatabaseError, path: Path, what: str) -> UserError:
    """Return the error of the user that a database error means.

    A disk that is full or fails is no mistake in the project: it has an exit code of its own.
    """
    # The lower byte is the kind of an extended code, such as a failed write among I/O errors.
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}:
        return UserError(f"{what}: {error.orig}", where=str(path), fix="Make room on the disk.")
    return ConfigError(f"{what}: {error.orig}", where=str(path))


def _configure(connection: Any, _: object) -> None:
    """Set what SQLite keeps per connection.

    In WAL mode NORMAL keeps every committed transaction when the process is killed; only a power
    cut can lose the last ones, and even that leaves no damage.
    """
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")


def _prepare(engine: Engine, path: Path) -> None:
    """Make the tables of a new file; refuse a file of a newer version."""
    with engine.connect() as connection:
        # Taken at once, so that two processes do not both make the tables.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        if version > VERSION:
            raise ConfigError(
                f"the database has version {version}, this learnloop knows {VERSION}",
                where=str(path),
                fix="Upgrade learnloop.",
            )
        if version < VERSION:
            METADATA.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
        connection.commit()
