"""A table: rows of an arm as columns, for means and sums over tasks and units of many rollouts at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learnloop.summary.row import COSTS, CostName, Row

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Mask = NDArray[np.bool_]
_ROUNDING = 1e-12
"""Means that are equal on paper may differ by so much, as their terms were added in another order."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Numbers for tasks, units and kinds, in the order of their names; arms that are compared share them."""

    tasks: Mapping[str, int]
    units: Mapping[str, int]
    kinds: Mapping[str, int]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Names:
        """Return the names that rows hold."""
        first = {row.task_id: row for row in rows}
        return cls(
            tasks=_ranks(first),
            units=_ranks(row.unit for row in first.values()),
            kinds=_ranks(row.kind for row in first.values()),
        )


def _ranks(names: Iterable[str]) -> dict[str, int]:
    return {name: rank for rank, name in enumerate(sorted({*names}))}


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of one arm, N of them, on T tasks in U units; tasks and units come in order of their names.

    Attributes:
        source: the rows of the arm; `places` tells which of them these are, (N,).
        names: what the codes mean.
        columns: one number a row, (N,), by name: score, correct, valid, solved, bad_call, lost, kind, and costs.
        codes: number of each row's task and unit, (N,) each.
        task: index of each row's task among the T, (N,).
        unit: index of each row's unit among the U, (N,).
        unit_of_task: index of each task's unit, (T,).
        first: one row of each task, (T,).
        unit_count: U.
    """

    source: Sequence[Row]
    places: Ints
    names: Names
    columns: Mapping[str, Floats]
    codes: tuple[Ints, Ints]
    task: Ints
    unit: Ints
    unit_of_task: Ints
    first: Ints
    unit_count: int

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @property
    def costs(self) -> tuple[CostName, ...]:
        """Return the costs there are a column of: those of every rollout, and money with prices."""
        return (*COSTS, "usd") if "usd" in self.columns else COSTS

    @property
    def task_count(self) -> int:
        """Return T."""
        return len(self.first)

    @property
    def rows(self) -> list[Row]:
        """Return the rows themselves, (N,)."""
        places: list[int] = self.places.tolist()
        return [self.source[place] for place in places]

    @property
    def task_ids(self) -> list[str]:
        """Return the ids of the tasks, (T,)."""
        places: list[int] = self.places[self.first].tolist()
        return [self.source[place].task_id for place in places]

    @property
    def kinds(self) -> list[str]:
        """Return the kinds of task there are."""
        codes = {*np.unique(self["kind"]).tolist()}
        return [kind for kind, code in self.names.kinds.items() if code in codes]

    @property
    def rows_of_task(self) -> Ints:
        """Return how many rows each task has, (T,)."""
        return np.bincount(self.task, minlength=self.task_count)

    def where(self, kept: Mask) -> Table:
        """Return the table of some rows only."""
        return _indexed(
            (self.source, self.places[kept], self.names),
            {name: column[kept] for name, column in self.columns.items()},
            (self.codes[0][kept], self.codes[1][kept]),
        )

    def of_kind(self, kind: str) -> Table:
        """Return the table of one kind of task."""
        return self.where(self["kind"] == self.names.kinds.get(kind, -1))

    def on_tasks_of(self, other: Table) -> Table:
        """Return the table of the tasks that another one has too; both must share their names."""
        return self.where(np.isin(self.codes[0], other.codes[0]))

    def task_means(self, values: Floats) -> Floats:
        """Return the mean of each task's rows, (T,)."""
        return np.bincount(self.task, values, self.task_count) / self.rows_of_task

    def unit_means_of_tasks(self, values: Floats) -> Floats:
        """Return the mean of each unit's tasks, (U,), of one value a task."""
        counts = np.bincount(self.unit_of_task, minlength=self.unit_count)
        return np.bincount(self.unit_of_task, values, self.unit_count) / counts

    def unit_means(self, values: Floats) -> Floats:
        """Return one mean a unit, (U,): attempts are averaged within tasks, tasks within units."""
        return self.unit_means_of_tasks(self.task_means(values))

    def unit_sums(self, values: Floats) -> list[float]:
        """Return the sum of each unit's rows, (U,)."""
        return np.bincount(self.unit, values, self.unit_count).tolist()

    def gain_of_tasks(self, after: Table, name: str) -> Floats:
        """Return by how much each task's mean is higher in a table on the same tasks, (T,)."""
        gain = after.task_means(after[name]) - self.task_means(self[name])
        gain[np.abs(gain) < _ROUNDING] = 0.0
        return gain


def table_of(
    rows: Sequence[Row], names: Names | None = None, *, priced: bool | None = None
) -> Table:
    """Return rows as a table, numbered by `names`, which must hold all of theirs.

    `priced` says whether money is a cost; without it the rows tell, of which lost ones have no cost.
    """
    names = names or Names.of(rows)
    columns = {
        "score": _column(row.score for row in rows),
        "correct": _column(row.correct for row in rows),
        "valid": _column(row.valid for row in rows),
        "solved": _column(row.solved for row in rows),
        "bad_call": _column(row.bad_call for row in rows),
        "lost": _column(bool(row.lost) for row in rows),
        "kind": _column(names.kinds[row.kind] for row in rows),
    }
    if priced is None:
        priced = any("usd" in row.costs for row in rows)
    for cost in (*COSTS, "usd") if priced else COSTS:
        columns[cost] = _column(row.costs.get(cost, 0.0) for row in rows)
    tasks = np.fromiter((names.tasks[row.task_id] for row in rows), np.intp, len(rows))
    units = np.fromiter((names.units[row.unit] for row in rows), np.intp, len(rows))
    return _indexed((rows, np.arange(len(rows)), names), columns, (tasks, units))


def _column(values: Iterable[float]) -> Floats:
    return np.fromiter(values, np.float64)


def _indexed(
    origin: tuple[Sequence[Row], Ints, Names],
    columns: Mapping[str, Floats],
    codes: tuple[Ints, Ints],
) -> Table:
    _, first, task = np.unique(codes[0], return_index=True, return_inverse=True)
    units, unit = np.unique(codes[1], return_inverse=True)
    source, places, names = origin
    return Table(
        source=source,
        places=places,
        names=names,
        columns=columns,
        codes=codes,
        task=task,
        unit=unit,
        unit_of_task=unit[first],
        first=first,
        unit_count=len(units),
    )
