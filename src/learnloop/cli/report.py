"""`learnloop report`: the report of a run, made again from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import anyio
from cyclopts import Parameter

from learnloop.arms import Arm, differing_settings, find_arm
from learnloop.cli.options import InProject
from learnloop.cli.output import Output, shown_path
from learnloop.cli.working import watched
from learnloop.errors import UsageError
from learnloop.learn import open_test as measure_on_test
from learnloop.project import Project
from learnloop.report import Report
from learnloop.reporting import ReportWriter, outcome, tasks_of_run
from learnloop.session import (
    Session,
    at_work,
    project_as_begun,
    project_store,
    recorded,
    refuse_changes,
)
from learnloop.store import RunRecord, Store


def report(
    run: str = "latest",
    /,
    *,
    open_test: bool = False,
    rival: tuple[str, ...] = (),
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    common: InProject | None = None,
) -> None:
    """Write the report of a training run from what the store holds.

    Args:
        run: the run: an id, its beginning, `latest` or `latest~1`.
        open_test: measure on the sealed test first; this is recorded and counted in the report.
        rival: another run on the same tasks to hold the result against, such as an `eval` with the best
            prompt; may be given several times.
        output: where to write the page; JSON and Markdown go beside it.
        common: how to print, and which project.
    """
    common = common or InProject()
    if output is not None and output.suffix != ".html":
        raise UsageError("the report is a page", where=f"-o {output}", fix="Name it FILE.html.")
    project, record = project_as_begun(common.folder(None), run, {})
    page = (output or project.report_page(record.id)).absolute()
    tasks = tasks_of_run(project, record)
    with ExitStack() as stack:
        # Only opening the test changes anything; a report alone is made beside a running run.
        opening = (
            project_store(project, going_on=record.id, tell=common.output.alert)
            if open_test
            else project.open_store()
        )
        store = stack.enter_context(opening)
        session = Session(project=project, store=store, record=record, tasks=tasks)
        # Before the test is opened: what was opened for a run that does not exist stays open.
        rivals_of(project, store, record, rival)
        if open_test and not session.history.done("test"):
            _open_test(session, common.output)
        made = ReportWriter(session, page, rivals_of(project, store, record, rival)).write()
        result = {**outcome(session), "report": str(page)}
    _print(common.output, made, result)
    common.output.next(common.command("runs" if made.seals else f"report {record.id} --open-test"))


def rivals_of(project: Project, store: Store, record: RunRecord, names: Sequence[str]) -> list[Arm]:
    """Return the arms that a run's result is held against, named with what else differs.

    Raises:
        UsageError: there is no such run, or it has no rollouts of the splits that the result has.
        ConfigError: another grader judged it, or it was measured on other data.
    """
    found = [find_arm(store, name) for name in names]
    rivals: list[Arm] = []
    for name, arm in zip(names, found, strict=True):
        tasks_of_run(project, arm.run)
        differing = differing_settings(find_arm(store, record.id), arm)
        words = f" (differs in {', '.join(differing)})" if differing else ""
        rivals.append(replace(arm, name=f"{arm.name}{words}"))
        if not {"test", "confirm"} & {*arm.splits}:
            raise UsageError(
                f"run {arm.name} has no rollouts on test or confirm",
                where=f"--rival {name}",
                fix="`learnloop eval --split confirm` makes some.",
            )
    return rivals


def _open_test(session: Session, output: Output) -> None:
    """Measure the compared arms on the sealed test."""
    if not session.history.done("gate"):
        raise UsageError(
            f"run {session.record.id} is not finished, and the test stays sealed until it is",
            fix=f"`learnloop train --resume {session.record.id}` goes on with it.",
        )
    refuse_changes(session.project, session.record)
    with watched(session, output) as working:
        anyio.run(_measure, working)


async def _measure(session: Session) -> None:
    async with at_work(session) as run:
        await recorded(session, run, measure_on_test)


def _print(output: Output, report: Report, result: Mapping[str, Any]) -> None:
    if output.json:
        output.data({"verdict": report.verdict.sentence, **result})
        return
    output.text(report.verdict.sentence)
    for caveat in report.verdict.caveats:
        output.text(caveat)
    output.text(f"report: {shown_path(Path(result['report']))}")
