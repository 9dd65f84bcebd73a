"""`learnloop train`: trains the agent and measures what it gained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anyio
from cyclopts import Parameter

from learnloop.cli.options import InProject
from learnloop.cli.output import Output, shown_path
from learnloop.cli.working import watched
from learnloop.errors import EndpointError, GateNotMet, StoppedEarly
from learnloop.learn import learn
from learnloop.project import Project
from learnloop.report import Report
from learnloop.reporting import ReportWriter, outcome
from learnloop.session import (
    Session,
    begin,
    checked_tasks,
    conduct,
    project_as_begun,
    project_store,
    refuse_changes,
)
from learnloop.store import RunRecord


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Training:
    """Settings of a run, over those of the project's file."""

    steps: int | None = None
    """Updates."""
    rollouts: int | None = None
    """Rollouts a step."""
    seed: int | None = None
    """Seed of everything that is drawn."""
    optimizer: Literal["rft"] | None = None
    """Which optimiser improves the agent."""
    accept_underpowered: bool | None = None
    """Train though the gate would hardly show the gain of `gate.target`."""

    @property
    def flags(self) -> dict[str, object]:
        """Return what was given, by dotted key."""
        sections = {"accept_underpowered": "gate"}
        given = {f"{sections.get(k, 'train')}.{k}": value for k, value in asdict(self).items()}
        return {key: value for key, value in given.items() if value is not None}


def train(
    folder: Path | None = None,
    /,
    *,
    training: Training | None = None,
    resume: str | None = None,
    require_adopt: bool = False,
    record_tools: Path | None = None,
    common: InProject | None = None,
) -> None:
    """Train the agent: probe, baseline, steps, choice of a checkpoint, gate, report.

    What is finished survives Ctrl-C and `kill -9`; `--resume` goes on from there.

    Args:
        folder: the project's folder.
        training: settings of the run.
        resume: the run to go on with: an id, its beginning, or `latest`.
        require_adopt: end with exit code 3 unless the gate adopts the result.
        record_tools: a cassette to write every answer of a tool to.
        common: how to print, and which project.
    """
    common = common or InProject()
    flags = training.flags if training else {}
    record: RunRecord | None = None
    if resume is None:
        project = Project.open(common.folder(folder), flags=flags)
    else:
        project, record = project_as_begun(common.folder(folder), resume, flags)
    with project_store(project, tell=common.output.alert) as store:
        tasks = anyio.run(checked_tasks, project)
        if record is None:
            record = begin(project, store, "train", tasks)
        else:
            refuse_changes(project, record)
        recorded = replace(project, record_tools=record_tools)
        session = Session(project=recorded, store=store, record=record, tasks=tasks)
        again = common.command(f"train --resume {record.id}", folder)
        report = _train(session, common.output, again)
        result = {**outcome(session), "report": str(project.report_page(record.id))}
    _print(common.output, report, result)
    common.output.next(common.command(f"report {record.id} --open-test", folder))
    if require_adopt and report.gate and report.gate.outcome != "adopt":
        raise GateNotMet(f"the gate did not adopt the result: {report.gate.words}")


def _train(session: Session, output: Output, again: str) -> Report:
    """Run the training unless it is done; return its report."""
    run_id = session.record.id
    report = ReportWriter(session, session.project.report_page(run_id))
    if session.record.status == "done":
        output.note(f"run {run_id} is done already")
        return report.write()
    report.write()
    output.note(f"report, rewritten as the run goes: {shown_path(report.page)}")
    try:
        with watched(replace(session, sinks=[report]), output) as working:
            anyio.run(conduct, working, learn)
    except (KeyboardInterrupt, EndpointError, StoppedEarly):
        output.alert(f"run {run_id} is kept; go on with: {again}")
        raise
    return report.write()


def _print(output: Output, report: Report, result: Mapping[str, Any]) -> None:
    if output.json:
        output.data(result)
        return
    output.text(report.verdict.sentence)
    for caveat in report.verdict.caveats:
        output.text(caveat)
    if report.gate:
        output.text(f"gate: {report.gate.outcome.replace('_', ' ')}, {report.gate.words}")
    output.text(f"report: {shown_path(Path(result['report']))}")
