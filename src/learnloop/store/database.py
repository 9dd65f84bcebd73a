"""The store: runs, events and rollouts in one SQLite file that survives `kill -9`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    func,
    insert,
    select,
    tuple_,
    update,
)

from learnloop.budget import Spend
from learnloop.codec import config_hash, config_json
from learnloop.config import Config
from learnloop.errors import UsageError
from learnloop.event import Event
from learnloop.ledger import Audit, Entry
from learnloop.store import chain, rollouts
from learnloop.store.access import Access
from learnloop.store.audit import audit, entries
from learnloop.store.records import (
    Erased,
    EventRecord,
    Page,
    RolloutRecord,
    RunRecord,
    RunStatus,
    StepTotals,
    ToolCount,
)
from learnloop.store.rollups import step_totals, tool_counts
from learnloop.store.tables import BEGUN, EVENTS, LEAVES, LEDGER, ROLLOUTS, RUNS
from learnloop.trace import Content, Trace

_SOON_S = 0.2
"""Training is not held up by a reader: a log that is still due is emptied later."""
_PLACE = [
    ROLLOUTS.c[name] for name in ("stage", "step", "task_id", "attempt", "candidate_id", "trace_id")
]
"""The order of rollouts: what they are, because the order in which they finished is chance."""


class Store(Access):
    """Keeps the state of a project.

    Every method is one transaction, so that a process that is killed leaves whole records. Other
    processes may read, and write, at the same time.
    """

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
        with self.writing() as connection:
            connection.execute(insert(RUNS).values(values))
        return self.run(str(values["id"]))

    def set_status(self, run_id: str, status: RunStatus) -> None:
        """Change how a run stands."""
        with self.writing() as connection:
            connection.execute(update(RUNS).where(RUNS.c.id == run_id).values(status=status))

    def runs(self) -> list[RunRecord]:
        """Return every run, the newest first."""
        newest = select(RUNS).order_by(RUNS.c.created_at.desc(), RUNS.c.id.desc())
        return [_run(row) for row in self.read(newest)]

    def run(self, name: str = "latest") -> RunRecord:
        """Return a run by id, by a unique beginning of it, or as `latest`, `latest~1` and so on.

        Raises:
            UsageError: there is no such run, or several.
        """
        head, _, back = name.partition("~")
        if head == "latest":
            return self._newest(name, int(back) if back.isdecimal() else 0 if not back else -1)
        return _run(self.only("run", RUNS, RUNS.c.id, name))

    def _newest(self, name: str, back: int) -> RunRecord:
        """Return the run that many before the newest."""
        runs = self.runs()
        if not 0 <= back < len(runs):
            fix = "See `learnloop runs`." if runs else "Start one first."
            raise UsageError(f"no run {name!r}: there are {len(runs)}", fix=fix)
        return runs[back]

    # --- events ---

    def append_event(self, event: Event) -> int:
        """Add an event and return its id; events are never changed.

        The ledger gets an entry for it, after one for the rollouts that have none yet.
        """
        with self.writing() as connection:
            return self._append(connection, event)

    def _append(self, connection: Connection, event: Event) -> int:
        values = {
            "run_id": event.run_id,
            "kind": event.kind,
            "data_json": _json(event.data),
            "created_at": datetime.now(UTC).isoformat(),
        }
        result = connection.execute(insert(EVENTS).values(values).returning(EVENTS.c.id))
        made = result.scalar_one()
        chain.record_event(connection, made, event.run_id, event.kind, dict(event.data))
        return made

    def events(self, run_id: str, kind: str | None = None, *, after: int = 0) -> list[EventRecord]:
        """Return a run's events in order, of one kind or all, those with an id above `after`."""
        asked = select(EVENTS).where(EVENTS.c.run_id == run_id, EVENTS.c.id > after)
        if kind is not None:
            asked = asked.where(EVENTS.c.kind == kind)
        return [_event(row) for row in self.read(asked.order_by(EVENTS.c.id))]

    # --- rollouts ---

    def begin_rollout(self, run_id: str, trace_id: str) -> None:
        """Note that a rollout is under way; storing its trace ends that."""
        with self.writing() as connection:
            rollouts.begin(connection, run_id, trace_id)

    def under_way(self) -> list[str]:
        """Return the runs that have rollouts under way."""
        return [row["run_id"] for row in self.read(select(BEGUN.c.run_id).distinct())]

    def take_unfinished(
        self, run_id: str, data: Mapping[str, Any], kind: str = "repeated"
    ) -> Event | None:
        """Record which rollouts a process that ended left under way, and forget them.

        What their calls cost was paid: the event that says so, with the ids of their traces and the
        given data, is stored in the same transaction.
        """
        with self.writing() as connection:
            found = rollouts.under_way(connection, run_id)
            if not found:
                return None
            rollouts.end(connection, found)
            event = Event(kind=kind, run_id=run_id, data={"rollouts": found, **data})
            self._append(connection, event)
            return event

    def save_trace(
        self, run_id: str, stage: str, step: int, trace: Trace, content: Content = "full"
    ) -> bool:
        """Store a rollout with as much content as asked for, and return whether it is new.

        A trace id that is already there stays as it is, so a late duplicate does no harm; only
        one that was lost to a fault is replaced, which is what a resumed run needs.
        """
        with self.writing() as connection:
            place = rollouts.place_of(run_id, stage, step)
            return rollouts.add(connection, place, trace, content)

    def reduce(self, run_id: str, content: Content, stage: str, *, upto: int) -> int:
        """Reduce rollouts of a stage that are stored in full, up to a step; return how many."""
        if content == "full":
            return 0
        with self.writing() as connection:
            full = LEAVES.c.content == "full"
            where = [*_matching(run_id, stage, None), ROLLOUTS.c.step <= upto, full]
            found = _with_content(connection, where)
            told = {"content": content, "reason": "content policy of the project"}
            if found:
                rollouts.reduce_rows(connection, chain.CONTENT_REDUCED, found, told)
        if found:
            self.empty_log(wait_s=_SOON_S)
        return len(found)

    def replaced(self, run_id: str) -> Spend:
        """Return what rollouts of a run took that were lost to faults and made anew since."""
        return self.reading(lambda connection: rollouts.replaced(connection, run_id))

    # --- erasure ---

    def erase(
        self,
        *,
        reason: str,
        trace_id: str | None = None,
        run_id: str | None = None,
        older_than: timedelta | None = None,
        on_runs: Callable[[Sequence[str]], None] | None = None,
    ) -> Erased:
        """Erase what was said in rollouts; their numbers stay, and the ledger tells of it.

        Afterwards `is_log_due` says whether a reader kept the texts from being overwritten.

        Args:
            reason: why, for the ledger.
            trace_id: only this rollout.
            run_id: only those of this run.
            older_than: only those of runs that began longer ago than this.
            on_runs: is told their runs before anything is erased for good.
        """
        where: list[ColumnElement[bool]] = [LEAVES.c.content != "erased"]
        if trace_id is not None:
            where.append(ROLLOUTS.c.trace_id == trace_id)
        if run_id is not None:
            where.append(ROLLOUTS.c.run_id == run_id)
        if older_than is not None:
            before = (datetime.now(UTC) - older_than).isoformat()
            old = select(RUNS.c.id).where(RUNS.c.created_at < before)
            where.append(ROLLOUTS.c.run_id.in_(old))
        with self.writing() as connection:
            by_run: dict[str, list[RowMapping]] = {}
            for row in _with_content(connection, where):
                by_run.setdefault(row["run_id"], []).append(row)
            for rows in by_run.values():
                told: dict[str, Any] = {"content": "erased", "reason": reason}
                if trace_id is not None:
                    told["rollout"] = trace_id
                rollouts.reduce_rows(connection, chain.CONTENT_ERASED, rows, told)
            if on_runs is not None:
                on_runs(tuple(by_run))
        if by_run or self.is_log_due:
            self.empty_log(wait_s=_SOON_S)
        return Erased(rollouts=sum(map(len, by_run.values())), runs=tuple(by_run))

    def erased_at(self) -> dict[str, datetime]:
        """Return the runs that lost texts on purpose, and when each did last."""
        names: list[ColumnElement[Any]] = [LEDGER.c.run_id, func.max(LEDGER.c.time).label("time")]
        erased = select(*names).where(LEDGER.c.kind == chain.CONTENT_ERASED)
        found = self.read(erased.group_by(LEDGER.c.run_id))
        return {row["run_id"]: datetime.fromisoformat(row["time"]) for row in found}

    @property
    def holds_less_than_said(self) -> bool:
        """Return whether any rollout was reduced or erased after it was stored."""
        kinds = (chain.CONTENT_ERASED, chain.CONTENT_REDUCED)
        return bool(self.read(select(LEDGER.c.seq).where(LEDGER.c.kind.in_(kinds)).limit(1)))

    # --- ledger ---

    def ledger(self) -> list[Entry]:
        """Return the whole ledger in order."""
        return self.reading(entries)

    def audit(self) -> Audit:
        """Look whether everything that is stored still agrees with the ledger."""
        return self.reading(audit)

    # --- rollups ---

    def tool_distribution(self, run_id: str) -> list[ToolCount]:
        """Return how often each step of a run ran each tool, in order."""
        return self.reading(lambda connection: tool_counts(connection, run_id))

    def totals(self, run_id: str) -> list[StepTotals]:
        """Return sums over a run's rollouts by stage, step and outcome, in order."""
        return self.reading(lambda connection: step_totals(connection, run_id))

    # --- reading rollouts ---

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
        return [
            _rollout(row) for row in self.read(_in_order(select(*rollouts.LIGHT).where(*where)))
        ]

    def traces(self, run_id: str, stage: str | None = None, step: int | None = None) -> list[Trace]:
        """Return whole traces, ordered by stage, step, task, attempt and candidate."""
        where = _matching(run_id, stage, step)
        asked = _in_order(select(ROLLOUTS.c.trace_json).where(*where))
        return self.reading(
            lambda connection: rollouts.read_all(
                connection, list(connection.execute(asked).mappings())
            )
        )

    def page(
        self, run_id: str, stage: str | None = None, *, after: str = "", size: int = 50
    ) -> Page:
        """Return some rollouts in the order of `rows`: those after a trace id, or the first.

        However far in, a page costs the same: it begins at a place in an index.

        Raises:
            UsageError: `after` is no rollout of this run.
        """
        where = _matching(run_id, stage, None)
        if after:
            row = self.only("trace", ROLLOUTS, ROLLOUTS.c.trace_id, after)
            if row["run_id"] != run_id:
                raise UsageError(f"trace {after!r} is not of run {run_id}")
            key = [row[column.name] for column in _PLACE]
            where.append(tuple_(*_PLACE) > tuple_(*key))
        asked = _in_order(select(*rollouts.LIGHT).where(*where)).limit(size + 1)
        found = [_rollout(row) for row in self.read(asked)]
        more = len(found) > size
        return Page(rows=tuple(found[:size]), after=found[size - 1].trace_id if more else "")

    def trace(self, name: str) -> Trace:
        """Return one trace by id or by a unique beginning of it.

        Raises:
            UsageError: there is no such trace, or several.
        """
        row = self.only("trace", ROLLOUTS, ROLLOUTS.c.trace_id, name)
        return self.reading(lambda connection: rollouts.read_one(connection, row))


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
    return asked.order_by(*_PLACE)


def _with_content(connection: Connection, where: list[ColumnElement[bool]]) -> list[RowMapping]:
    """Return whole rows of rollouts, chosen by themselves or by their present leaf."""
    asked = select(ROLLOUTS).join(LEAVES, LEAVES.c.trace_id == ROLLOUTS.c.trace_id)
    return list(connection.execute(asked.where(LEAVES.c.salt.is_not(None), *where)).mappings())


def _run(row: RowMapping) -> RunRecord:
    fields = dict(row)
    return RunRecord(meta=json.loads(fields.pop("meta_json")), **fields)


def _event(row: RowMapping) -> EventRecord:
    fields = dict(row)
    return EventRecord(data=json.loads(fields.pop("data_json")), **fields)


def _rollout(row: RowMapping) -> RolloutRecord:
    fields = dict(row)
    return RolloutRecord(tools=json.loads(fields.pop("tools_json")), **fields)


def _json(data: Mapping[str, Any]) -> str:
    """Return JSON text in ASCII: lone surrogates of a model's output must not stop a write."""
    return json.dumps(dict(data))
