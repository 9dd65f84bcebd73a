"""`learnloop check`: does everything of a project fit together?"""

from __future__ import annotations

from pathlib import Path

import anyio

from learnloop.check import CheckReport
from learnloop.check import check as check_project
from learnloop.cli.findings import Line, print_lines
from learnloop.cli.options import InProject
from learnloop.cli.output import Output
from learnloop.estimate import Estimate
from learnloop.project import Project


def check(folder: Path | None = None, /, *, common: InProject | None = None) -> int:
    """Look whether everything of a project fits together, before time is spent on a run.

    Args:
        folder: the project's folder.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(folder))
    report = anyio.run(check_project, project)
    if common.output.json:
        _print_json(common.output, report)
    else:
        _print_text(common.output, report)
    common.output.next(common.command("train" if report.ok else "check", folder))
    return report.exit_code


def _print_json(output: Output, report: CheckReport) -> None:
    findings = [
        {"level": f.level, "what": f.what, "where": f.where, "fix": f.fix} for f in report.findings
    ]
    uses = [
        {"name": u.name, "max_calls": u.calls, "seconds": u.seconds, "minutes": u.minutes}
        for u in report.uses
    ]
    output.data(
        {
            "ok": report.ok,
            "findings": findings,
            "estimate": _estimate(report.estimate),
            "peaks": {peak.tool: round(peak.calls_per_s, 1) for peak in report.peaks},
            "endpoints": uses,
        }
    )


def _estimate(estimate: Estimate | None) -> dict[str, float | None] | None:
    if estimate is None:
        return None
    return {
        "rollouts": estimate.rollouts,
        "probe": estimate.probe,
        "evaluation": estimate.evaluation,
        "training": estimate.training,
        "max_calls": estimate.max_calls,
        "minutes": estimate.minutes,
    }


def _print_text(output: Output, report: CheckReport) -> None:
    print_lines(
        output,
        [
            Line(level=f.level, text=f"{f.where}: {f.what}" if f.where else f.what, fix=f.fix)
            for f in report.findings
        ],
    )
    for use in report.uses:
        waiting = f", {use.minutes:,.1f} minutes of waiting" if use.minutes >= 0.1 else ""
        output.text(
            f"{use.name}: {1000 * use.seconds:,.0f} ms a call, at most {use.calls:,} calls{waiting}"
        )
    for peak in report.peaks:
        output.text(
            f"at most about {peak.calls_per_s:,.0f} calls a second to tool {peak.tool}, bound by "
            f"{peak.bound_by}"
        )
    if (estimate := report.estimate) is not None:
        time = "" if estimate.minutes is None else f", roughly {estimate.minutes:.0f} minutes"
        output.text(
            f"a run makes {estimate.rollouts:,} rollouts with at most "
            f"{estimate.max_calls:,} tool calls{time}"
        )
