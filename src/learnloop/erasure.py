"""Erasure: texts leave the store, and the reports that quote them leave the disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from learnloop.project import Project
from learnloop.store import Store


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which rollouts lose their texts: one, those of a run, or those of old runs."""

    trace_id: str | None = None
    run_id: str | None = None
    older_than: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Gone:
    """What an erasure took: texts of so many rollouts of some runs, and files."""

    rollouts: int
    runs: tuple[str, ...]
    files: tuple[Path, ...]


def erase(project: Project, store: Store, chosen: Chosen, *, reason: str) -> Gone:
    """Erase what was said in rollouts; reports of their runs go first.

    So whenever the process is killed, no report quotes what the store has erased.
    """
    files: list[Path] = []

    def on_runs(runs: Iterable[str]) -> None:
        files.extend(path for run_id in runs for path in _remove(_report_files(project, run_id)))

    done = store.erase(
        reason=reason,
        trace_id=chosen.trace_id,
        run_id=chosen.run_id,
        older_than=chosen.older_than,
        on_runs=on_runs,
    )
    return Gone(rollouts=done.rollouts, runs=done.runs, files=tuple(files))


def remove_stale_reports(project: Project, store: Store) -> list[Path]:
    """Remove reports that are older than an erasure in their run, and return them.

    There are none, unless an erasure was cut short or an older learnloop made it.
    """
    stale: list[Path] = []
    for run_id, erased in store.erased_at().items():
        files = _report_files(project, run_id)
        stale += [path for path in files if path.stat().st_mtime <= erased.timestamp()]
    return _remove(stale)


def log_words(store: Store) -> str:
    """Return in words that erased texts may still be found, and why."""
    return (
        f"erased texts may still be in {store.path.name} and {store.log.name}: another process is "
        "reading the database"
    )


def _report_files(project: Project, run_id: str) -> list[Path]:
    """Return the files of a run's report, half-written ones too; others are not known here."""
    page = project.report_page(run_id)
    files = [page, page.with_suffix(".json"), page.with_suffix(".md")]
    return [path for path in files if path.exists()] + list(
        page.parent.glob(f".{page.stem}.*.partial")
    )


def _remove(files: Iterable[Path]) -> list[Path]:
    removed: list[Path] = []
    for path in files:
        path.unlink(missing_ok=True)
        removed.append(path)
    return removed
