"""`learnloop probe`: where can the agent learn?"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio

from learnloop.cli.options import InProject
from learnloop.cli.working import new_session, watched
from learnloop.learn import look_for_variance
from learnloop.probe import ProbeResult, discordant_share
from learnloop.project import Project
from learnloop.render.tables import probe_table
from learnloop.run import UNTRAINED
from learnloop.session import conduct
from learnloop.trial import visible_gain


def probe(
    folder: Path | None = None,
    /,
    *,
    attempts: int | None = None,
    tasks: int | None = None,
    common: InProject | None = None,
) -> None:
    """Try some training tasks several times and say what they can teach; nothing is trained.

    Args:
        folder: the project's folder.
        attempts: attempts on each task.
        tasks: most tasks; 0 takes all.
        common: how to print, and which project.
    """
    common = common or InProject()
    given = {"probe.attempts": attempts, "probe.tasks": tasks}
    flags = {key: value for key, value in given.items() if value is not None}
    project = Project.open(common.folder(folder), flags=flags)
    with (
        new_session(project, common.output, "probe") as session,
        watched(session, common.output) as working,
    ):
        anyio.run(conduct, working, partial(look_for_variance, weights=UNTRAINED, stage="probe"))
        times = project.config.probe.attempts
        found = session.history.probe("probe", session.tasks, times)
    assert found, "the work has just stored it"
    share = discordant_share(found.tasks)
    confirm = sum(task.split == "confirm" for task in session.tasks.values())
    # Of evaluations at temperature 0 each task counts once, however the probe sampled.
    once = project.config.model.temperature == 0
    seen = (
        visible_gain(project.config.gate, share, tasks=confirm, once=once)
        if share and confirm
        else None
    )
    if common.output.json:
        power = {"discordant_share": share, "detectable": asdict(seen) if seen else None}
        common.output.data({"run": session.record.id, **_fields(found), "gate": power})
    else:
        common.output.show(probe_table(found))
        if seen:
            common.output.text(
                f"Gate: two attempts at a task differ in {share:.0%} of cases at temperature "
                f"{project.config.probe.temperature:g}; with this noise {seen.words}."
            )
    common.output.next(common.command(_next(found, session.record.id), folder))


def _next(found: ProbeResult, run_id: str) -> str:
    """Return the command that the advice calls for: where nothing is to be trained, look at why."""
    if found.advice.code == "go":
        return "train"
    return "check" if found.advice.code == "tools_broken" else f"show {run_id}"


def _fields(found: ProbeResult) -> dict[str, object]:
    return {
        "tasks": len(found.tasks),
        "attempts": found.attempts,
        "buckets": dict(found.buckets),
        "expected_signal": {str(size): share for size, share in found.expected_signal.items()},
        "rollouts": {
            "planned": found.planned,
            "graded": found.graded,
            "lost": found.planned - found.graded,
        },
        "regraded": found.regraded,
        "sentence": found.sentence,
        "limit": found.limit,
        "advice": {"code": found.advice.code, "words": found.advice.words},
    }
