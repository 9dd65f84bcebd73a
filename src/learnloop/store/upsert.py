"""Upserts: the one kind of statement that databases spell their own way."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Connection, Executable, Table
from sqlalchemy.dialects import postgresql, sqlite


def add_up(connection: Connection, table: Table, counted: tuple[str, ...]) -> Executable:
    """Return an insert that adds its counts to those of a row with the same key, if there is one."""
    key = tuple(c.name for c in table.primary_key.columns)
    return upsert(connection.dialect.name, table, counted, key)


# Building such a statement takes longer than running it.
@cache
def upsert(
    dialect: str, table: Table, counted: tuple[str, ...], key: tuple[str, ...]
) -> Executable:
    """Return an insert that adds the `counted` columns to those of a row with the same `key`.

    Without such columns the row that is there stays as it is.
    """
    into = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    if not counted:
        return into.on_conflict_do_nothing(index_elements=list(key))
    sums = {name: table.c[name] + into.excluded[name] for name in counted}
    return into.on_conflict_do_update(index_elements=list(key), set_=sums)
