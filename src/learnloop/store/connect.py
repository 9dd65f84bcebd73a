"""Opens the database file: settings of the connection and the version of its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, StaticPool, create_engine, event, insert
from sqlalchemy.exc import DatabaseError

from learnloop.errors import ConfigError, UserError
from learnloop.store.tables import METADATA, REVISION, VERSION

WAIT_S = 30.0
"""How long a write waits for another process to finish its own."""
Hold = Callable[[], AbstractContextManager[None]]
"""Holds whatever keeps others from writing while an older file is backed up and upgraded."""
_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "foreign_keys = ON",
    "secure_delete = ON",
)


def open_engine(path: Path, hold: Hold = nullcontext) -> tuple[Engine, Path | None]:
    """Return an engine on the file, whose tables are there and of this version.

    An older file is upgraded in place under `hold`; the second value is the backup made of it before.

    Raises:
        ConfigError: the file is no database of ours, or is newer, or cannot be made.
        UserError: the disk is full or fails, or `hold` refuses an upgrade.
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
        connect_args={"check_same_thread": False, "timeout": WAIT_S},
    )
    event.listen(engine, "connect", _configure)
    try:
        made = _prepare(engine, path, hold)
    except DatabaseError as error:
        engine.dispose()
        raise refusal(error, path, "cannot open the database") from None
    except UserError:
        engine.dispose()
        raise
    return engine, made


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
    cut can lose the last ones, and even that leaves no damage. What is deleted is overwritten, so
    that erased texts are not left in the file.
    """
    for setting in _SETTINGS:
        connection.execute(f"PRAGMA {setting}")


def file_version(path: Path) -> int:
    """Return the version of a file's tables without changing it; 0 where there are none.

    Raises:
        ConfigError: it is no database.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as raw:
            return int(raw.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise ConfigError(f"cannot open the database: {error}", where=str(path)) from None


def begin_write(connection: Connection) -> None:
    """Begin a transaction that may write from its first statement on.

    SQLite would otherwise let two writers read the same state first. Another database would lock
    the ledger here instead.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def begin_read(connection: Connection) -> None:
    """Begin a transaction whose queries all see one state."""
    connection.exec_driver_sql("BEGIN")


def _prepare(engine: Engine, path: Path, hold: Hold) -> Path | None:
    """Make the tables of a new file, upgrade an older one, refuse a newer one.

    Returns the backup that an upgrade made.
    """
    with engine.connect() as connection:
        version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        connection.rollback()
    if version == VERSION:
        return None
    # A process of the older version may still be at work on an older file.
    with hold() if 0 < version < VERSION else nullcontext(), engine.connect() as connection:
        # Taken at once, so that two processes do not both make the tables.
        begin_write(connection)
        version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        if version > VERSION:
            raise ConfigError(
                f"the database has version {version}, this learnloop knows {VERSION}",
                where=str(path),
                fix="Upgrade learnloop.",
            )
        made = None
        if version == 0:
            METADATA.create_all(connection)
            REVISION.create(connection)
            connection.execute(insert(REVISION).values(version_num=f"{VERSION:04}"))
        elif version < VERSION:
            from learnloop.store.upgrade import upgrade  # here, because it loads Alembic

            made = upgrade(connection, path, version)
        connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")
        connection.commit()
        return made
