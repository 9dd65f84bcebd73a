"""Upserts: the one kind of statement that databases spell their own way."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def add_up(
    connection: Connection, table: Table, counted: Iterable[str]
) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that adds its counts to those of a row with the same key, if there is one."""
    return upsert(connection, table, counted, key=[c.name for c in table.primary_key.columns])


def upsert(
    connection: Connection, table: Table, counted: Iterable[str], *, key: list[str]
) -> sqlite.Insert | postgresql.Insert:
    """Return an insert that adds the `counted` columns to those of a row with the same `key`."""
    if connection.dialect.name == "postgresql":
        adding = postgresql.insert(table)
        sums = {name: table.c[name] + adding.excluded[name] for name in counted}
        return adding.on_conflict_do_update(index_elements=key, set_=sums)
    into = sqlite.insert(table)
    sums = {name: table.c[name] + into.excluded[name] for name in counted}
    return into.on_conflict_do_update(index_elements=key, set_=sums)
