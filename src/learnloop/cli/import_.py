"""`learnloop import`: projects out of the files of other programs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from learnloop.cli.options import Common
from learnloop.cli.output import Output
from learnloop.errors import ConfigError
from learnloop.formats.folder import write_folder
from learnloop.formats.openai_rft import Imported, Sources, read_job_files
from learnloop.project import Project


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobFiles:
    """The files of a hosted job."""

    train: Path
    """JSONL file of training rows."""
    validation: Path
    """JSONL file of validation rows; divided by group into screen, confirm and test."""
    grader: Path | None = None
    """The grader's JSON; left out when the job's arguments hold it."""
    tools: Path | None = None
    """The tools list, `[{"name", "server_url", "headers"}]`; left out likewise."""
    job: Path | None = None
    """The job's arguments as JSON."""
    group: str = ""
    """Field that rows of one group share, such as a document's name."""


def openai_rft(
    *,
    files: JobFiles,
    to: Path = Path("imported"),
    allow_unmapped: bool = False,
    common: Common | None = None,
) -> int:
    """Make a project from the files of a hosted reinforcement job.

    Args:
        files: the files of the job.
        to: the folder to make; never overwritten.
        allow_unmapped: write the project even when parts of the job have no equal here.
        common: how to print.
    """
    output = (common or Common()).output
    sources = Sources(
        train=files.train,
        validation=files.validation,
        grader=files.grader,
        tools=files.tools,
        job=files.job,
        group_by=files.group,
    )
    imported = read_job_files(sources)
    written = allow_unmapped or not imported.unmapped
    if written:
        write_folder(to, imported.files, lambda folder: _verify(folder, imported))
    if output.json:
        output.data(_json(imported, to if written else None))
    else:
        _print(output, imported, to if written else None)
    if not written:
        return _refuse(output, imported)
    output.next(f"learnloop check {shlex.quote(str(to))}")
    return 0


def _verify(folder: Path, imported: Imported) -> None:
    """Read the finished folder as every other command will."""
    # Every command refuses a project whose grader is still to be chosen; the rest is read all the same.
    flags = {} if imported.gradeable else {"grader.type": "numeric"}
    project = Project.open(folder, environ={}, flags=flags)
    if imported.gradeable:
        project.tasks()


def _refuse(output: Output, imported: Imported) -> int:
    """Say that nothing was written and why."""
    names = ", ".join(m.source for m in imported.unmapped)
    error = ConfigError(
        f"nothing was written, because this has no equal here: {names}",
        fix="--allow-unmapped writes the project without it.",
    )
    output.alert(f"error: {error.line()}")
    return error.exit_code


def _print(output: Output, imported: Imported, folder: Path | None) -> None:
    if imported.mapped:
        rows = [[m.source, m.value, m.fate, m.target, m.why] for m in imported.mapped]
        output.table(["from", "value", "what became of it", "setting", "remark"], rows)
        output.text()
    for note in imported.notes:
        output.text(note)
    for name, uses in imported.variables.items():
        output.text(f"set {name} in the environment: {'; '.join(uses)}")
    if folder is not None:
        output.text(str(folder))


def _json(imported: Imported, folder: Path | None) -> dict[str, object]:
    return {
        "folder": None if folder is None else str(folder),
        "files": sorted(imported.files) if folder is not None else [],
        "mapped": [
            {
                "from": m.source,
                "value": m.value,
                "fate": m.fate,
                "setting": m.target,
                "remark": m.why,
            }
            for m in imported.mapped
        ],
        "notes": list(imported.notes),
        "variables": {name: list(uses) for name, uses in imported.variables.items()},
    }
