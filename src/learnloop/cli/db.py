"""`learnloop db`: backups, erasure and upgrades of a project's database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from learnloop.cli.options import InProject
from learnloop.cli.output import shown_path
from learnloop.erasure import Chosen, erase
from learnloop.errors import UsageError, UserError
from learnloop.project import Project
from learnloop.session import project_store
from learnloop.store import VERSION, Store, back_up, backup_file, backups, file_version


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Named:
    """Which rollouts lose their texts; one of the three."""

    rollout: str | None = None
    """A rollout: its id or the beginning of it."""
    run: str | None = None
    """Every rollout of a run: an id, its beginning, `latest` or `latest~1`."""
    older_than: int | None = None
    """Every rollout of runs that began more than so many days ago."""


def backup(
    folder: Path | None = None,
    /,
    *,
    to: Annotated[Path | None, Parameter(name="--to")] = None,
    common: InProject | None = None,
) -> None:
    """Copy the database into one file; this may be done while a run writes it.

    Args:
        folder: the project's folder.
        to: the file to write; it must not exist. A dated one beside the database without it.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    database = _database(common.folder(folder))
    made = back_up(database, to or backup_file(database, f"v{file_version(database)}"))
    if output.json:
        output.data({"backup": str(made), "bytes": made.stat().st_size})
    else:
        output.text(f"backup: {shown_path(made)}")
    output.next(common.command("ledger verify", folder))


def purge(
    folder: Path | None = None,
    /,
    *,
    chosen: Named | None = None,
    reason: str = "asked for on the command line",
    common: InProject | None = None,
) -> None:
    """Erase what was said in rollouts: messages, arguments, results, token ids.

    Scores and counts stay, and the ledger tells what was erased, when and why. Reports of the runs
    are removed, because they quote texts; they can be made again.

    Args:
        folder: the project's folder.
        chosen: which rollouts.
        reason: why, in words for the ledger.
        common: how to print, and which project.
    """
    common = common or InProject()
    output, chosen = common.output, chosen or Named()
    given = [v for v in (chosen.rollout, chosen.run, chosen.older_than) if v is not None]
    if len(given) != 1:
        what = "name what to erase, in one way"
        raise UsageError(what, fix="Give --rollout ID, --run ID or --older-than DAYS.")
    if chosen.older_than is not None and not 0 <= chosen.older_than <= 36_500:
        raise UsageError("is outside 0 to 36500", where=f"--older-than {chosen.older_than}")
    database = _database(common.folder(folder))
    project = Project.open(common.folder(folder))
    with project_store(project, tell=output.alert) as store:
        done = erase(project, store, _found(store, chosen), reason=reason)
    removed = [shown_path(path) for path in done.files]
    copies = [shown_path(path) for path in backups(database)]
    if output.json:
        output.data(
            {
                "rollouts": done.rollouts,
                "runs": list(done.runs),
                "reason": reason,
                "reports_removed": removed,
                "log_emptied": not store.is_log_due,
                "backups": copies,
            }
        )
    else:
        output.text(f"erased the texts of {done.rollouts} rollouts in {len(done.runs)} runs")
        for path in removed:
            output.text(f"removed {path}")
    if copies and done.rollouts:
        output.alert(f"backups still hold the texts, delete them by hand: {', '.join(copies)}")
    if store.is_log_due:
        raise UserError(
            "the texts are not overwritten yet",
            where=str(store.path),
            fix="End what reads the database, then repeat this command.",
        )
    output.next(common.command("ledger verify", folder))


def upgrade(
    folder: Path | None = None, /, *, dry_run: bool = False, common: InProject | None = None
) -> None:
    """Bring an older database up to date, after a backup; every command does so when it opens one.

    Args:
        folder: the project's folder.
        dry_run: only say what would be done.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    project = Project.open(common.folder(folder))
    database = _database(common.folder(folder))
    version = file_version(database)
    steps = _missing(version)
    made: Path | None = None
    if not dry_run or version > VERSION:
        with project.open_store() as store:
            made = store.backup
    if output.json:
        kept = str(made) if made else None
        output.data({"from": version, "to": VERSION, "migrations": steps, "backup": kept})
        return
    if not steps:
        output.text(f"the database has version {version}, the newest")
    for step in steps:
        output.text(f"{'would run' if dry_run else 'ran'} {step}")
    if made:
        output.text(f"backup: {shown_path(made)}")
    output.next(common.command("db upgrade" if dry_run and steps else "ledger verify", folder))


def _database(folder: Path | None) -> Path:
    database = Project.open(folder).database
    if not database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    return database


def _missing(version: int) -> list[str]:
    if version >= VERSION:
        return []
    from learnloop.store.upgrade import missing  # here, because it loads Alembic

    return missing(version)


def _found(store: Store, named: Named) -> Chosen:
    """Return what was named on the command line by its whole ids."""
    if named.rollout is not None:
        return Chosen(trace_id=store.trace(named.rollout).id)
    if named.run is not None:
        return Chosen(run_id=store.run(named.run).id)
    return Chosen(older_than=timedelta(days=named.older_than or 0))
