"""Reporting: the report of a run made from its store, and kept up to date while it runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from learnloop.arms import Arm
from learnloop.codec import config_from_json
from learnloop.errors import ConfigError, WriteError, writing
from learnloop.event import Event
from learnloop.history import checkpoint_rows
from learnloop.project import Project
from learnloop.provenance import dataset_fingerprint, task_set_hash, words_of
from learnloop.render.html import to_html
from learnloop.render.markdown import to_markdown
from learnloop.report import Report, ReportInputs, Seal, SignOff, build, report_to_json
from learnloop.session import Session
from learnloop.store import RunRecord, Store
from learnloop.summary import ArmSummary, compare, summarize
from learnloop.task import Split, Task
from learnloop.trial import answers_alike, visible_gain

SHORTEST_S = 2.0
"""A report that is younger is not written again, unless it is the last one."""

_WRITES = {"stage_started", "run_ended", "paused", "test"}
"""Events after which the report is written; a step is followed by the start of the next stage."""
_LAST = {"run_ended", "paused", "test"}


def report_inputs(
    session: Session, known: ReportInputs | None = None, rivals: Sequence[Arm] = ()
) -> ReportInputs:
    """Return everything that a run knows so far; parts that do not exist yet are absent.

    Stages never change once they are done: those of `known`, made before, are taken over. `rivals`
    are other arms on the same tasks to hold the result against.
    """
    history, record, tasks = session.history, session.record, session.tasks
    config = config_from_json(record.config_json)
    blank = ReportInputs(run_id=record.id, project=config.project.name, command="", created="")
    known, attempts = known or blank, config.probe.attempts
    looks = history.evaluations(known.evaluations)
    gate, noise = history.gate, history.noise
    confirm = sum(task.split == "confirm" for task in tasks.values())
    return ReportInputs(
        run_id=record.id,
        project=config.project.name,
        command=str(record.meta.get("command", record.command)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        config=json.loads(record.config_json),
        tasks=tasks,
        probe_before=known.probe_before or history.probe("probe", tasks, attempts),
        probe_after=known.probe_after or history.probe("probe_after", tasks, attempts),
        # Before the gate has spoken, arms are unequally far and their difference says nothing.
        confirm=known.confirm or (history.compared("confirm") if gate else {}),
        test=known.test or (history.compared("test") if history.done("test") else {}),
        steps=history.steps,
        steps_planned=config.train.steps,
        evaluations=looks,
        noise=noise,
        detectable=visible_gain(
            config.gate,
            noise.share,
            tasks=confirm,
            once=answers_alike(noise, config.model.temperature),
        )
        if noise and noise.pairs and confirm
        else None,
        gate=gate,
        rivals={arm.name: arm.splits for arm in rivals},
        checkpoints=checkpoint_rows(looks, tasks) if history.chosen else (),
        seals=seals(session.store, tasks) if history.done("seal_opened") else (),
        sign_offs=sign_offs(session.store, record.id),
        meta={k: v for k, v in words_of(record.meta).items() if k != "command"},
        finished=history.done("run_ended"),
        stage=history.stage,
    )


def seals(store: Store, tasks: Mapping[str, Task]) -> tuple[Seal, ...]:
    """Return every opening of this test set by runs of the project, the first one first."""
    test_set = task_set_hash(tasks.values(), "test")
    opened = [
        Seal(run_id=run.id, opened=event.created_at[:19] + "Z")
        for run in store.runs()
        for event in store.events(run.id, "seal_opened")
        if event.data.get("test_set") == test_set
    ]
    return tuple(sorted(opened, key=lambda seal: seal.opened))


def sign_offs(store: Store, run_id: str) -> tuple[SignOff, ...]:
    """Return who accepted a run, the first one first."""
    return tuple(
        SignOff(name=e.data["name"], signed=e.created_at[:19] + "Z", note=e.data["note"])
        for e in store.events(run_id, "signed_off")
    )


def tasks_of_run(project: Project, record: RunRecord) -> dict[str, Task]:
    """Return the tasks that a run used.

    Raises:
        ConfigError: the dataset is not the one of the run any more.
    """
    dataset = dataset_fingerprint(project)
    if record.meta.get("dataset", dataset) != dataset:
        raise ConfigError(
            f"the dataset has changed since run {record.id}",
            where=project.config.data.path,
            fix="Put back the rows that the run used.",
        )
    return {task.id: task for task in project.tasks()}


def write_report(report: Report, page: Path) -> Path:
    """Write a report as HTML, and as JSON and Markdown beside it; return the page's path.

    Each file appears whole or not at all, so that a browser never loads half a page.
    """
    with writing(page):
        page.parent.mkdir(parents=True, exist_ok=True)
    _replace(page.with_suffix(".json"), report_to_json(report))
    _replace(page.with_suffix(".md"), to_markdown(report))
    _replace(page, to_html(report))
    return page


def _replace(path: Path, text: str) -> None:
    staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with writing(path):
            staging.write_text(text, encoding="utf-8")
            staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


class ReportWriter:
    """A sink that rewrites a run's report as it goes."""

    def __init__(self, session: Session, page: Path, rivals: Sequence[Arm] = ()) -> None:
        self._session, self.page, self._rivals = session, page, rivals
        self._known: ReportInputs | None = None
        self._written_s = 0.0

    def emit(self, event: Event) -> None:
        """Write the report after an event that changed something, if the last is old enough.

        A disk that takes no report must not end a run; whoever calls `write` at the end is told.
        """
        young = time.monotonic() - self._written_s < SHORTEST_S
        if event.kind in _WRITES and (event.kind in _LAST or not young):
            with suppress(WriteError):
                self.write()

    def write(self) -> Report:
        """Write the report now and return it."""
        self._known = report_inputs(self._session, self._known, self._rivals)
        report = build(self._known)
        write_report(report, self.page)
        self._written_s = time.monotonic()
        return report


def outcome(session: Session) -> dict[str, Any]:
    """Return what a run ended with, as `train --json` prints it.

    `score` is accuracy before any shaping: the measure of the gain and of the gate. `baseline` is
    the agent after its warm-up where there was one, `untrained` the model as it was pulled.
    """
    history, record, tasks = session.history, session.record, session.tasks
    split: Split = "test" if history.done("test") else "confirm"
    arms = history.compared(split) if history.gate else {}
    before, after = arms.get("warm") or arms.get("baseline", ()), arms.get("final", ())
    found = compare(before, after, tasks).correct if before and after else None
    gate, steps = history.gate, history.steps
    planned, graded = sum(s.planned for s in steps), sum(s.graded for s in steps)
    return {
        "run": record.id,
        "optimizer": config_from_json(record.config_json).train.optimizer,
        "split": split,
        "untrained": arm_fields(summarize(arms.get("baseline", ()), tasks)),
        "baseline": arm_fields(summarize(before, tasks)),
        "final": arm_fields(summarize(after, tasks)),
        "gain": found.difference.value if found else None,
        "gain_ci": [found.difference.low, found.difference.high] if found else None,
        "gate": {"outcome": gate.outcome, "words": gate.words} if gate else None,
        "checkpoint": history.chosen,
        "steps": len(steps),
        "rollouts": {"planned": planned, "graded": graded, "lost": planned - graded},
        "minutes": round(history.spent_s / 60, 2),
    }


def arm_fields(arm: ArmSummary) -> dict[str, Any]:
    """Return one arm in numbers; None where there is nothing to measure."""
    costs = arm.costs
    return {
        "tasks": arm.tasks,
        "score": arm.correct.value if arm.correct else None,
        "ci": [arm.correct.low, arm.correct.high] if arm.correct else None,
        "tool_calls_mean": costs["calls"].mean.value if costs else None,
        "tokens_mean": costs["tokens"].mean.value if costs else None,
        "latency_s_p50": costs["latency_s"].p50 if costs else None,
    }
