"""Access to the database file: one connection, one lock, transactions that read or write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, select
from sqlalchemy.exc import DatabaseError

from learnloop.errors import UsageError
from learnloop.store.connect import WAIT_S, Hold, begin_read, begin_write, open_engine, refusal

T = TypeVar("T")

LOG_WAIT_S = 5.0
"""Longest wait for readers that keep the log from being emptied."""


class Access:
    """An open database file.

    Synchronous, because writes are small; one lock makes it usable from several threads.

    Attributes:
        path: the file.
        backup: the copy made of it before it was upgraded; None when it was of this version.
        log: SQLite's log of changes beside it.
        is_log_due: whether the log is to be emptied and could not be yet.
    """

    def __init__(self, path: Path, hold: Hold = nullcontext) -> None:
        self.path = path
        self._lock = threading.RLock()
        self.log = path.with_name(f"{path.name}-wal")
        self.is_log_due = False
        self._engine, self.backup = open_engine(path, hold)

    @classmethod
    def open(cls, path: Path, hold: Hold = nullcontext) -> Self:
        """Open the database file; make it when it is missing, upgrade it when it is older.

        Args:
            path: the file.
            hold: is entered around the backup and the upgrade of an older file; what it raises
                leaves the file as it was.

        Raises:
            ConfigError: it is no database of ours, is of a newer version, or cannot be written.
        """
        return cls(path, hold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock:
            self._engine.dispose()

    def only(self, noun: str, table: Table, column: ColumnElement[str], name: str) -> RowMapping:
        """Return the one row whose id is `name` or alone begins with it.

        Raises:
            UsageError: there is no such row, or several.
        """
        found = self.read(select(table).where(column == name))
        if not found and name:
            begins = column.startswith(name, autoescape=True)
            found = self.read(select(table).where(begins).limit(2))
        if not found:
            raise UsageError(
                f"no {noun} {name!r}", where=str(self.path), fix="See `learnloop runs`."
            )
        if len(found) > 1:
            raise UsageError(f"{noun} {name!r} is ambiguous", fix="Give more of the id.")
        return found[0]

    def read(self, asked: Select[Any]) -> list[RowMapping]:
        """Return all rows of a query."""
        return self.reading(lambda connection: list(connection.execute(asked).mappings()))

    def reading(self, work: Callable[[Connection], T]) -> T:
        """Do some reading, all of it in one state of the database."""
        with self._transaction() as connection:
            begin_read(connection)
            return work(connection)

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Hold a transaction that alone may write."""
        with self._transaction() as connection:
            begin_write(connection)
            yield connection

    def empty_log(self, wait_s: float = LOG_WAIT_S) -> bool:
        """Write SQLite's log of changes into the file and empty it; return whether that was done.

        Until then what was erased is still there: the new pages are in the log, the old ones in the
        file. Other processes that are amid reading prevent it; they are waited for so long.
        """
        with self._transaction() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(wait_s * 1000)}")
            try:
                asked = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                self.is_log_due = bool(asked.one()[0])
            finally:
                connection.exec_driver_sql(f"PRAGMA busy_timeout = {round(WAIT_S * 1000)}")
        return not self.is_log_due

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        """Hold the lock and a transaction; what the disk refuses is told to the user."""
        with self._lock:
            try:
                with self._engine.begin() as connection:
                    yield connection
            except DatabaseError as error:
                raise refusal(error, self.path, "database") from error
