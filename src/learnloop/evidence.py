"""What is known of a project, collected for advice: the check, the last measurement, the last probe."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.advice import Evidence, Measured, Probed
from learnloop.arms import find_arm
from learnloop.check import CheckReport
from learnloop.codec import config_from_json
from learnloop.errors import ConfigError, UsageError
from learnloop.history import History
from learnloop.project import Project
from learnloop.reporting import tasks_of_run
from learnloop.splits import in_split
from learnloop.store import RunRecord, Store
from learnloop.summary import summarize
from learnloop.task import SPLITS, Task
from learnloop.trial import pool_after


def evidence(project: Project, report: CheckReport) -> Evidence:
    """Return what `report` of the check and the project's runs say; what is missing is None."""
    errors = tuple(f.line() for f in report.findings if f.level == "error")
    measured, probed = None, None
    if project.database.exists():
        with project.open_store() as store:
            runs = store.runs()
            measured = next(filter(None, (_measured(project, store, r) for r in runs)), None)
            probed = next(filter(None, (_probed(project, store, r) for r in runs)), None)
    tasks = _tasks(project)
    confirm = len(in_split(tasks, "confirm"))
    gate = project.config.gate
    # At temperature 0 a second attempt says nothing new: the tasks are the pairs.
    most = gate.looks[-1]
    return Evidence(
        errors=errors,
        measured=measured,
        probed=probed,
        tools=tuple(dict.fromkeys(tool.name for task in tasks for tool in task.tools)),
        confirm_tasks=confirm,
        trainable=True,
        alpha=pool_after(gate, ()).share,
        pairs=most if project.config.model.temperature else min(most, confirm),
    )


def _tasks(project: Project) -> Sequence[Task]:
    try:
        return project.tasks()
    except ConfigError:
        return ()  # the check has told why


def _measured(project: Project, store: Store, run: RunRecord) -> Measured | None:
    """Return what a run measured on its most telling split; None where it did not, or on other data."""
    if run.command not in ("eval", "train"):
        return None
    try:
        arm = find_arm(store, run.id)
        tasks = tasks_of_run(project, run)
    except (UsageError, ConfigError):
        return None
    for split in reversed(SPLITS):
        if traces := arm.splits.get(split):
            known = {t.task_id: tasks[t.task_id] for t in traces if t.task_id in tasks}
            return Measured(run=run.id, split=split, arm=summarize(traces, known))
    return None


def _probed(project: Project, store: Store, run: RunRecord) -> Probed | None:
    """Return a run's probe, the one after training where there is one."""
    history = History(store=store, run_id=run.id)
    attempts = config_from_json(run.config_json).probe.attempts
    for stage in ("probe_after", "probe"):
        if history.done(stage):
            try:
                found = history.probe(stage, tasks_of_run(project, run), attempts)
            except ConfigError:
                return None
            return found and Probed(run=run.id, probe=found)
    return None
