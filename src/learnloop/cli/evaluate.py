"""`learnloop eval`: one candidate on one split."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from learnloop.arms import find_weights
from learnloop.cli.options import InProject
from learnloop.cli.working import new_session, watched
from learnloop.errors import UsageError
from learnloop.learn import measure_one
from learnloop.project import Project
from learnloop.render.tables import eval_table
from learnloop.reporting import arm_fields
from learnloop.session import conduct
from learnloop.summary import summarize
from learnloop.task import Split

_TASKS = "train.report_tasks"


def evaluate(
    folder: Path | None = None,
    /,
    *,
    candidate: str = "untrained",
    split: Split = "screen",
    tasks: int | None = None,
    attempts: int = 1,
    common: InProject | None = None,
) -> None:
    """Measure one candidate on one split; this is a run of its own in the store.

    Args:
        folder: the project's folder.
        candidate: `untrained`, a training run (its chosen checkpoint), or `RUN/step-5`.
        split: which tasks; on `test` it counts as an opening of the sealed test.
        tasks: most tasks; `train.report_tasks` when left out, 0 takes all.
        attempts: attempts on each task.
        common: how to print, and which project.
    """
    common = common or InProject()
    if attempts < 1:
        raise UsageError("one attempt is the least", where="--attempts")
    project = _project(common.folder(folder), tasks)
    if attempts > 1 and project.config.model.temperature == 0:
        common.output.note("model.temperature is 0: attempts on a task repeat each other")
    weights = find_weights(project, candidate)
    words = _words(weights, split, attempts)
    with new_session(project, "eval", words) as session:
        work = partial(measure_one, weights=weights, split=split, attempts=attempts)
        with watched(session, common.output) as working:
            traces = anyio.run(conduct, working, work)
    arm = summarize(traces, {t.task_id: session.tasks[t.task_id] for t in traces})
    if common.output.json:
        lost = arm.planned - arm.graded
        common.output.data(
            {
                "run": session.record.id,
                "candidate": weights or "untrained",
                "split": split,
                "attempts": attempts,
                **arm_fields(arm),
                "kinds": {kind: arm_fields(part) for kind, part in arm.kinds.items()},
                "rollouts": {"planned": arm.planned, "graded": arm.graded, "lost": lost},
            }
        )
    else:
        common.output.show(eval_table(arm, name=f"{weights or 'untrained'} on {split}"))
    common.output.next(common.command(f"show {session.record.id}", folder))


def _project(folder: Path | None, tasks: int | None) -> Project:
    """Open the project; `--tasks` stands for a setting that has another name."""
    if tasks is None:
        return Project.open(folder)
    if tasks < 0:
        raise UsageError(f"cannot be {tasks}", where="--tasks", fix="0 takes all tasks.")
    project = Project.open(folder, flags={_TASKS: tasks})
    return replace(project, origins={**project.origins, _TASKS: "--tasks"})


def _words(weights: str, split: Split, attempts: int) -> list[str]:
    """Return the words that choose what is measured; `latest` would mean another run tomorrow."""
    chosen = ["--candidate", weights] if weights else []
    return [*chosen, "--split", split, "--attempts", str(attempts)]
