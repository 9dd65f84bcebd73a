"""The report as a short Markdown text, for a pull request or a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from learnloop.render.numbers import NONE, amount, capitalized, change, change_interval, interval
from learnloop.report.document import Report, SplitReport
from learnloop.report.measures import METHODS, MeasureRow, Unit
from learnloop.stats import Estimate
from learnloop.summary import points


def to_markdown(report: Report) -> str:
    """Return the verdict, the tables and the method; trajectories are in the HTML page."""
    parts = [
        f"# {_plain(report.project)}: run {report.run_id}",
        f"**{report.verdict.sentence}**",
        *report.verdict.caveats,
        "" if report.finished else f"This run is not finished. {report.stage}".strip(),
    ]
    for split in report.splits:
        parts += _split(split)
    if report.probe_before:
        parts += [
            "## Variance probe",
            f"{capitalized(report.probe_before.sentence)}. {report.probe_before.advice.words}.",
        ]
    parts += ["## Method", *(f"- **{name}**: {_plain(words)}" for name, words in report.method)]
    parts += ["## Reproduce", f"```\n{report.command}\n```"]
    parts += [f"- {name}: {_plain(words)}" for name, words in report.meta.items()]
    if report.sign_offs:
        parts.append("## Sign-off")
    for one in report.sign_offs:
        said = f": {one.note}" if one.note else ""
        parts.append(f"- {_plain(f'{one.name}, {one.signed}{said}')}")
    return "\n\n".join(part for part in parts if part).replace("\n\n- ", "\n- ") + "\n"


def _split(split: SplitReport) -> list[str]:
    kinds = [
        f"| {_plain(k.kind)} | {k.tasks} | {_value(k.measures[0].before, 'share')} | "
        f"{_value(k.measures[0].after, 'share')} | {_moved(k.measures[0])} |"
        for k in split.kinds
    ]
    head = f"| kind | tasks | {split.before} | {split.after} | change |\n|---|--:|--:|--:|--:|"
    return [
        f"## Before and after on {split.split}",
        _table(split, split.measures),
        METHODS,
        *_lost(split),
        *(["\n".join([head, *kinds])] if kinds else []),
        _format(split),
        *(f"- {_plain(capitalized(rival.words))}." for rival in split.rivals),
        f"{split.cases.wins_total} tasks got better, {split.cases.regressions_total} got worse.",
    ]


def _table(split: SplitReport, rows: Sequence[MeasureRow]) -> str:
    head = f"| measure | {split.before} | {split.after} | change | n |\n|---|--:|--:|--:|--:|"
    body = [
        f"| {row.label} | {_value(row.before, row.unit)} | {_value(row.after, row.unit)} "
        f"| {_moved(row)} | {row.change.n if row.change else NONE} |"
        for row in rows
    ]
    return "\n".join([head, *body])


def _lost(split: SplitReport) -> list[str]:
    return [
        f"- {row.arm}: {row.planned} planned, {row.graded} graded, {row.lost} lost"
        for row in split.counts
    ]


def _format(split: SplitReport) -> str:
    found = split.format
    if found.gain is None or found.by_format is None or found.by_answers is None:
        return ""
    return (
        f"Of {points(found.gain)} points in accuracy, {points(found.by_format)} come from more "
        f"answers that can be read and {points(found.by_answers)} from better answers among those."
    )


def _value(estimate: Estimate | None, unit: Unit) -> str:
    spread = interval(estimate, unit)
    words = amount(estimate.value if estimate else None, unit)
    return f"{words} ({spread})" if spread else words


def _moved(row: MeasureRow) -> str:
    spread = change_interval(row.change)
    words = change(row.change, row.change_kind)
    return f"{words} ({spread})" if spread else words


def _plain(words: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    for sign in "\\`*_[]|":
        words = words.replace(sign, f"\\{sign}")
    return escape(words, quote=False)
