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

_TASKS, _CASSETTE = "train.report_tasks", "tools_replay.cassette"


def evaluate(
    folder: Path | None = None,
    /,
    *,
    candidate: str = "untrained",
    split: Split = "screen",
    tasks: int | None = None,
    attempts: int = 1,
    record_tools: Path | None = None,
    replay_tools: Path | None = None,
    common: InProject | None = None,
) -> None:
    """Measure one candidate on one split; this is a run of its own in the store.

    Args:
        folder: the project's folder.
        candidate: `untrained`, a training run (its chosen checkpoint), or `RUN/step-5`.
        split: which tasks; on `test` it counts as an opening of the sealed test.
        tasks: most tasks; `train.report_tasks` when left out, 0 takes all.
        attempts: attempts on each task.
        record_tools: a cassette to write every answer of a tool to.
        replay_tools: a cassette to answer calls from, in place of the tools.
        common: how to print, and which project.
    """
    common = common or InProject()
    if attempts < 1:
        raise UsageError("one attempt is the least", where="--attempts")
    project = _project(common.folder(folder), tasks, replay_tools)
    if attempts > 1 and project.config.model.temperature == 0:
        common.output.note("model.temperature is 0: attempts on a task repeat each other")
    weights = find_weights(project, candidate)
    words = _words(weights, split, attempts)
    with new_session(project, "eval", words) as session:
        work = partial(measure_one, weights=weights, split=split, attempts=attempts)
        recorded = replace(session.project, record_tools=record_tools)
        with watched(replace(session, project=recorded), common.output) as working:
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


def _project(folder: Path | None, tasks: int | None, cassette: Path | None) -> Project:
    """Open the project; flags stand for settings that have other names."""
    if tasks is not None and tasks < 0:
        raise UsageError(f"cannot be {tasks}", where="--tasks", fix="0 takes all tasks.")
    given: dict[str, tuple[object, str]] = {}
    if tasks is not None:
        given[_TASKS] = (tasks, "--tasks")
    if cassette is not None:
        given[_CASSETTE] = (str(cassette.resolve()), "--replay-tools")
    project = Project.open(folder, flags={key: value for key, (value, _) in given.items()})
    named = {key: flag for key, (_, flag) in given.items()}
    return replace(project, origins={**project.origins, **named})


def _words(weights: str, split: Split, attempts: int) -> list[str]:
    """Return the words that choose what is measured; `latest` would mean another run tomorrow."""
    chosen = ["--candidate", weights] if weights else []
    return [*chosen, "--split", split, "--attempts", str(attempts)]
