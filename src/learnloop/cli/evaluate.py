"""`learnloop eval`: one candidate on one split."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import anyio
from cyclopts import Parameter

from learnloop.arms import find_weights
from learnloop.cli.options import InProject
from learnloop.cli.working import new_session, watched
from learnloop.config import ToolsReplayConfig
from learnloop.errors import UsageError
from learnloop.gate import Detectable, Noise
from learnloop.learn import measure_one
from learnloop.project import Project
from learnloop.render.tables import eval_table
from learnloop.reporting import arm_fields
from learnloop.session import conduct
from learnloop.summary import ArmSummary, summarize
from learnloop.task import Split
from learnloop.trial import answers_alike, visible_gain

_TASKS, _CASSETTE = "train.report_tasks", "tools_replay.cassette"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What is measured, and how often."""

    candidate: str = "untrained"
    """`untrained`, a training run (its chosen checkpoint), or `RUN/step-5`."""
    split: Split = "screen"
    """Which tasks; on `test` it counts as an opening of the sealed test."""
    tasks: int | None = None
    """Most tasks; `train.report_tasks` when left out, 0 takes all."""
    attempts: int = 1
    """Attempts on each task."""
    aa: bool = False
    """Whether to measure twice at once: an A/A run, which shows the agent's noise."""

    def words(self, weights: str) -> list[str]:
        """Return the words that repeat it; `latest` would mean another run tomorrow."""
        chosen = ["--candidate", weights] if weights else []
        twice = ["--aa"] if self.aa else []
        return [*chosen, "--split", self.split, "--attempts", str(self.attempts), *twice]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Cassettes:
    """Recordings of what tools answered."""

    record_tools: Path | None = None
    """A cassette to write every answer of a tool to."""
    replay_tools: Path | None = None
    """A cassette to answer calls from, in place of the tools."""


def evaluate(
    folder: Path | None = None,
    /,
    *,
    measurement: Measurement | None = None,
    cassettes: Cassettes | None = None,
    common: InProject | None = None,
) -> None:
    """Measure one candidate on one split; this is a run of its own in the store.

    Args:
        folder: the project's folder.
        measurement: what is measured.
        cassettes: where answers of tools are written to, or come from.
        common: how to print, and which project.
    """
    asked, common = measurement or Measurement(), common or InProject()
    cassettes = cassettes or Cassettes()
    if asked.attempts < 1:
        raise UsageError("one attempt is the least", where="--attempts")
    project = _project(common.folder(folder), asked.tasks, cassettes.replay_tools)
    if asked.attempts > 1 and project.config.model.temperature == 0:
        common.output.note("model.temperature is 0: attempts on a task repeat each other")
    weights = find_weights(project, asked.candidate)
    with new_session(project, common.output, "eval", asked.words(weights)) as session:
        work = partial(
            measure_one,
            weights=weights,
            split=asked.split,
            attempts=asked.attempts,
            twice=asked.aa,
        )
        recorded = replace(session.project, record_tools=cassettes.record_tools)
        with watched(replace(session, project=recorded), common.output) as working:
            traces = anyio.run(conduct, working, work)
        noise = session.history.noise
    known = {t.task_id: session.tasks[t.task_id] for t in traces}
    arm = summarize(traces, known, prices=project.config.prices)
    name = weights or "untrained"
    confirm = sum(task.split == "confirm" for task in session.tasks.values())
    usable = noise is not None and noise.pairs > 0 and confirm > 0
    seen = (
        visible_gain(
            project.config.gate,
            noise.share,
            tasks=confirm,
            once=answers_alike(noise, project.config.model.temperature),
        )
        if noise and usable
        else None
    )
    if common.output.json:
        head = {"run": session.record.id, "candidate": name}
        common.output.data({**head, **_fields(arm, asked), **_noise_fields(noise, seen)})
    else:
        common.output.show(eval_table(arm, name=f"{name} on {asked.split}"))
        for words in (found.words for found in (noise, seen) if found):
            common.output.text(f"{words[:1].upper()}{words[1:]}.")
    common.output.next(common.command(f"show {session.record.id}", folder))


def _fields(arm: ArmSummary, asked: Measurement) -> dict[str, object]:
    """Return what was measured, for programs."""
    lost = arm.planned - arm.graded
    return {
        "split": asked.split,
        "attempts": asked.attempts,
        **arm_fields(arm),
        "kinds": {kind: arm_fields(part) for kind, part in arm.kinds.items()},
        "rollouts": {"planned": arm.planned, "graded": arm.graded, "lost": lost},
    }


def _noise_fields(noise: Noise | None, seen: Detectable | None) -> dict[str, object]:
    """Return the noise of an A/A run and what the gate can show under it; nothing without one."""
    if noise is None:
        return {}
    return {"noise": asdict(noise), "detectable": asdict(seen) if seen else None}


def _project(folder: Path | None, tasks: int | None, cassette: Path | None) -> Project:
    """Open the project; flags stand for settings that have other names."""
    if tasks is not None and tasks < 0:
        raise UsageError(f"cannot be {tasks}", where="--tasks", fix="0 takes all tasks.")
    project = Project.open(folder, flags={} if tasks is None else {_TASKS: tasks})
    origins = dict(project.origins)
    if tasks is not None:
        origins[_TASKS] = "--tasks"
    if cassette is None:
        return replace(project, origins=origins)
    # Flags count from the working folder, settings from the project: so a run's record names no
    # place on this machine as long as the cassette is in the project.
    place = cassette.resolve()
    if place.is_relative_to(root := project.root.resolve()):
        place = place.relative_to(root)
    config = replace(project.config, tools_replay=ToolsReplayConfig(cassette=str(place)))
    origins[_CASSETTE] = "--replay-tools"
    return replace(project, config=config, origins=origins)
