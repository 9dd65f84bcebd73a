"""`learnloop runs`: the runs of a project, the newest first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from learnloop.cli.options import InProject
from learnloop.project import Project
from learnloop.store import RunRecord


def runs(folder: Path | None = None, /, *, common: InProject | None = None) -> None:
    """List the runs of a project, the newest first; `latest` and `latest~1` name them anywhere.

    Args:
        folder: the project's folder.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    found = find_runs(Project.open(common.folder(folder)))
    if output.json:
        output.data({"runs": [run_fields(run) for run in found]})
    elif found:
        rows = [
            (r.id, r.command, r.status, str(r.seed), r.created_at[:19].replace("T", " "))
            for r in found
        ]
        output.table(("run", "command", "status", "seed", "started (UTC)"), rows)
    else:
        output.note("no runs yet")
    output.next(common.command("show latest" if found else "train", folder))


def find_runs(project: Project) -> list[RunRecord]:
    """Return a project's runs; looking does not make a database."""
    if not project.database.exists():
        return []
    with project.open_store() as store:
        return [as_it_is(run, project) for run in store.runs()]


def as_it_is(run: RunRecord, project: Project) -> RunRecord:
    """Return the run with its status; one whose process was killed is not running any more."""
    was_killed = run.status == "running" and not project.is_at_work
    return replace(run, status="stopped") if was_killed else run


def run_fields(run: RunRecord) -> dict[str, object]:
    """Return what JSON output tells of a run."""
    return {
        "id": run.id,
        "command": run.command,
        "status": run.status,
        "seed": run.seed,
        "created_at": run.created_at,
        "config_hash": run.config_hash,
        "meta": dict(run.meta),
    }
