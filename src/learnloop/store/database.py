"""The store: runs, events and rollouts in one SQLite file that survives `kill -9`."""

from __future__ import annotations

import json
import secrets
import threading
import zlib
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, Table, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import DatabaseError

from learnloop.codec import config_hash, config_json, trace_from_json, trace_to_json
from learnloop.config import Config
from learnloop.errors import UsageError
from learnloop.event import Event
from learnloop.store.connect import open_engine, refusal
from learnloop.store.records import EventRecord, RolloutRecord, RunRecord, RunStatus
from learnloop.store.tables import EVENTS, ROLLOUTS, RUNS
from learnloop.trace import Trace

_LIGHT = [c for c in ROLLOUTS.c if c.name != "trace_json"]


class Store:
    """Keeps the state of a project.

    Synchronous, because writes are small; one lock makes it usable from several threads. Every
    method is one transaction, so that a process that is killed leaves whole records. Other
    processes may read, and write, at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._engine = open_engine(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database file, and make it when it is missing.

        Raises:
            ConfigError: it is no database of ours, is of a newer version, or cannot be written.
        """
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        with self._lock:
            self._engine.dispose()

    # --- runs ---

    def create_run(
        self,
        config: Config,
        *,
        command: str,
        seed: int,
        meta: Mapping[str, Any] | None = None,
    ) -> RunRecord:
        """Add a run with status `running`; `meta` is for versions, host and the like."""
        now = datetime.now(UTC)
        values = {
            "id": f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
            "created_at": now.isoformat(),
            "command": command,
            "config_json": config_json(config),
            "config_hash": config_hash(config),
            "status": "running",
            "seed": seed,
            "meta_json": _json(meta or {}),
        }
        with self._transaction() as connection:
            connection.execute(insert(RUNS).values(values))
        return self.run(str(values["id"]))

    def set_status(self, run_id: str, status: RunStatus) -> None:
        """Change how a run stands."""
        with self._transaction() as connection:
            connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(status=status))

    def runs(self) -> list[RunRecord]:
        """Return every run, the newest first."""
        newest = select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
        return [_run(row) for row in self._read(newest)]

    def run(self, name: str = "latest") -> RunRecord:
        """Return a run by id, by a unique beginning of it, or as `latest`, `latest~1` and so on.

        Raises:
            UsageError: there is no such run, or several.
        """
        head, _, back = name.partition("~")
        if head == "latest":
            return self._newest(name, int(back) if back.isdecimal() else 0 if not back else -1)
        return _run(self._only("run", RUNS, RUNS.c.id, name))

    def _newest(self, name: str, back: int) -> RunRecord:
        """Return the run that many before the newest."""
        runs = self.runs()
        if not 0 <= back < len(runs):
            fix = "See `learnloop runs`." if runs else "Start one first."
            raise UsageError(f"no run {name!r}: there are {len(runs)}", fix=fix)
        return runs[back]

    # --- events ---

    def append_event(self, event: Event) -> int:
        """Add an event and return its id; events are never changed."""
        values = {
            "run_id": event.run_id,
            "kind": event.kind,
            "data_json": _json(event.data),
            "created_at": datetime.now(UTC).isoformat(),
        }
        with self._transaction() as connection:
            result = connection.execute(insert(EVENTS).values(values).returning(EVENTS.c.id))
            return result.scalar_one()

    def events(self, run_id: str, kind: str | None = None, *, after: int = 0) -> list[EventRecord]:
        """Return a run's events in order, of one kind or all, those with an id above `after`."""
        asked = select(EVENTS).where(EVENTS.c.run_id == run_id, EVENTS.c.id > after)
        if kind is not None:
            asked = asked.where(EVENTS.c.kind == kind)
        return [_event(row) for row in self._read(asked.order_by(EVENTS.c.id))]

    # --- rollouts ---

    def save_trace(self, run_id: str, stage: str, step: int, trace: Trace) -> bool:
        """Store a rollout, and return whether it is new.

        A trace id that is already there stays as it is, so a late duplicate does no harm; only
        one that was lost to a fault is replaced, which is what a resumed run needs.
        """
        values = {
            **_light_values(trace),
            "run_id": run_id,
            "stage": stage,
            "step": step,
            "trace_json": zlib.compress(trace_to_json(trace).encode()),
        }
        adding = insert(ROLLOUTS).values(values)
        replacing = adding.on_conflict_do_update(
            index_elements=[ROLLOUTS.c.trace_id],
            set_=values,
            where=ROLLOUTS.c.outcome == "infra_fault",
        )
        with self._transaction() as connection:
            return connection.execute(replacing).rowcount > 0

    def rows(
        self,
        run_id: str,
        stage: str | None = None,
        step: int | None = None,
        *,
        candidate_id: str | None = None,
    ) -> list[RolloutRecord]:
        """Return rollouts in numbers, without decoding their traces; order as in `traces`."""
        where = _matching(run_id, stage, step)
        if candidate_id is not None:
            where.append(ROLLOUTS.c.candidate_id == candidate_id)
        return [_rollout(row) for row in self._read(_in_order(select(*_LIGHT).where(*where)))]

    def traces(self, run_id: str, stage: str | None = None, step: int | None = None) -> list[Trace]:
        """Return whole traces, ordered by stage, step, task, attempt and candidate."""
        where = _matching(run_id, stage, step)
        found = self._read(_in_order(select(ROLLOUTS.c.trace_json).where(*where)))
        return [_trace(row) for row in found]

    def trace(self, name: str) -> Trace:
        """Return one trace by id or by a unique beginning of it.

        Raises:
            UsageError: there is no such trace, or several.
        """
        return _trace(self._only("trace", ROLLOUTS, ROLLOUTS.c.trace_id, name))

    # --- access ---

    def _only(self, noun: str, table: Table, column: ColumnElement[str], name: str) -> RowMapping:
        """Return the one row whose id is `name` or alone begins with it."""
        found = self._read(select(table).where(column == name))
        if not found and name:
            begins = column.startswith(name, autoescape=True)
            found = self._read(select(table).where(begins).limit(2))
        if not found:
            raise UsageError(
                f"no {noun} {name!r}", where=str(self.path), fix="See `learnloop runs`."
            )
        if len(found) > 1:
            raise UsageError(f"{noun} {name!r} is ambiguous", fix="Give more of the id.")
        return found[0]

    def _read(self, asked: Select[Any]) -> list[RowMapping]:
        """Return all rows of a query."""
        with self._transaction() as connection:
            return list(connection.execute(asked).mappings())

    @contextmanager
    def _transaction(self) -> Generator[Connection]:
        """Hold the lock and a transaction; what the disk refuses is told to the user."""
        with self._lock:
            try:
                with self._engine.begin() as connection:
                    yield connection
            except DatabaseError as error:
                raise refusal(error, self.path, "database") from error


def _light_values(trace: Trace) -> dict[str, Any]:
    """Return a trace's numbers as columns."""
    score = trace.score
    return {
        "trace_id": trace.id,
        "candidate_id": trace.candidate_id,
        "task_id": trace.task_id,
        "attempt": trace.attempt,
        "outcome": trace.outcome,
        "finish_reason": trace.finish_reason,
        "value": score.value if score else None,
        "correct": score.correct if score else None,
        "calls": len(trace.calls_run),
        "rounds": trace.rounds,
        "tokens": trace.tokens_total,
        "latency_s": trace.latency_s,
        "failure_kind": trace.failure.kind if trace.failure else "",
        "tools_json": _json(Counter(record.call.name for record in trace.calls_run)),
    }


def _matching(run_id: str, stage: str | None, step: int | None) -> list[ColumnElement[bool]]:
    """Return the conditions that choose rollouts."""
    where: list[ColumnElement[bool]] = [ROLLOUTS.c.run_id == run_id]
    if stage is not None:
        where.append(ROLLOUTS.c.stage == stage)
    if step is not None:
        where.append(ROLLOUTS.c.step == step)
    return where


def _in_order(asked: Select[Any]) -> Select[Any]:
    """Order rollouts by what they are: the order in which they finished is chance."""
    c = ROLLOUTS.c
    return asked.order_by(c.stage, c.step, c.task_id, c.attempt, c.candidate_id, c.trace_id)


def _run(row: RowMapping) -> RunRecord:
    fields = dict(row)
    return RunRecord(meta=json.loads(fields.pop("meta_json")), **fields)


def _event(row: RowMapping) -> EventRecord:
    fields = dict(row)
    return EventRecord(data=json.loads(fields.pop("data_json")), **fields)


def _rollout(row: RowMapping) -> RolloutRecord:
    fields = dict(row)
    return RolloutRecord(tools=json.loads(fields.pop("tools_json")), **fields)


def _trace(row: RowMapping) -> Trace:
    return trace_from_json(zlib.decompress(cast("bytes", row["trace_json"])).decode())


def _json(data: Mapping[str, Any]) -> str:
    """Return JSON text in ASCII: lone surrogates of a model's output must not stop a write."""
    return json.dumps(dict(data))
