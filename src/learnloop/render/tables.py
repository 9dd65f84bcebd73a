"""Tables for the terminal: what `eval`, `probe`, `compare` and `runs` print on stdout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from learnloop.probe import BUCKETS, Bucket, ProbeResult
from learnloop.render.numbers import (
    NONE,
    amount,
    capitalized,
    change,
    change_interval,
    direction,
    interval,
)
from learnloop.report.measures import MeasureRow, Unit, kind_rows, measure_rows
from learnloop.stats import Estimate
from learnloop.summary import ArmSummary, Comparison, CostName, sentence

WIDE_FROM = 76
"""Columns from which intervals stand beside the values instead of under them."""

_STYLES = {"up": "green", "down": "red", "": ""}
_BUCKET_WORDS: dict[Bucket, str] = {
    "never_passed": "never passed",
    "mixed": "mixed",
    "always_passed": "always passed",
    "grader_unstable": "grader unstable",
    "infra_flaky": "lost to faults",
}
_COST_ROWS: tuple[tuple[CostName, str, Unit], ...] = (
    ("calls", "Tool calls", "count"),
    ("rounds", "Rounds", "count"),
    ("tokens", "Tokens", "count"),
    ("latency_s", "Latency", "seconds"),
    ("usd", "US$", "usd"),
)
_SHOWN = (
    *("correct", "correct_planned", "score", "pass_at_k", "pass_hat_k", "calls_mean"),
    *("calls_correct_mean", "rounds_mean", "tokens_mean", "tokens_correct_mean"),
    *("latency_s_p50", "latency_s_p95", "usd_mean", "usd_per_solved"),
)


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """One run as `runs` lists it."""

    run_id: str
    optimizer: str
    created: str
    state: str
    steps: str
    gain: Estimate | None = None


def eval_table(arm: ArmSummary, *, name: str = "") -> RenderableType:
    """Return the summary of one arm."""
    table = _table(("measure", "value", "95 % interval"))
    rates = (("Accuracy", arm.correct), ("Score", arm.score), ("Readable answers", arm.valid))
    for label, estimate in rates:
        _row(table, label, estimate, "share")
    for cost, label, unit in _COST_ROWS:
        found = arm.costs.get(cost)
        if found is None and cost == "usd":
            continue
        _row(table, f"{label} a rollout", found.mean if found else None, unit)
        _row(table, f"{label} among correct", found.correct_mean if found else None, unit)
    kinds = [_kinds_of(arm)] if arm.kinds else []
    return Group(*([Text(name, style="bold")] if name else []), table, Text(counts(arm)), *kinds)


def compare_table(found: Comparison, *, width: int = 80) -> RenderableType:
    """Return the verdict, the main measures of both arms, and accuracy by kind."""
    words = sentence(found)
    table = _change_table("measure")
    for row in measure_rows(found, None):
        if row.name in _SHOWN:
            _change_row(table, row.label, row, width)
    parts: list[RenderableType] = [Text(words[:1].upper() + words[1:], style="bold"), Text(), table]
    if found.kinds:
        kinds = _change_table("accuracy by kind")
        for kind, part in found.kinds.items():
            _change_row(kinds, f"{kind} ({part.tasks})", kind_rows(part, None)[0], width)
        parts += [Text(), kinds]
    if found.rerun:
        parts += [Text(), Text(f"{found.rerun.words}.")]
    elif found.tasks:
        words = "What reruns of the original would reach is not known: it was tried too rarely."
        parts += [Text(), Text(words)]
    if found.majority:
        parts.append(Text(f"{capitalized(found.majority.words)}."))
    parts += [
        Text(),
        Text(f"before: {counts(found.before)}"),
        Text(f"after:  {counts(found.after)}"),
    ]
    return Group(*parts)


def probe_table(probe: ProbeResult) -> RenderableType:
    """Return the buckets of a probe with a bar each, and the signal to expect."""
    total = max(1, len(probe.tasks))
    table = _table(("bucket", "tasks", "share", ""))
    for bucket in BUCKETS:
        n = probe.buckets[bucket]
        table.add_row(
            _BUCKET_WORDS[bucket], str(n), f"{100 * n / total:.0f} %", "█" * round(20 * n / total)
        )
    groups = _table(
        ("groups of", "expected to differ", "95 %", ""),
        right=("groups of", "expected to differ", "95 %"),
    )
    for signal in probe.signals:
        spread = Estimate(value=signal.share, low=signal.low, high=signal.high, n=len(probe.tasks))
        note = "extrapolated" if signal.extrapolated else ""
        share = f"{100 * signal.share:.0f} %"
        groups.add_row(str(signal.group_size), share, interval(spread, "share") or "exact", note)
    lost = ", ".join(f"{kind} {n}" for kind, n in probe.lost.items())
    counted = f"{probe.planned} rollouts planned, {probe.graded} graded"
    counted += f", lost to {lost}" if lost else ""
    head = Text(probe.sentence[:1].upper() + probe.sentence[1:], style="bold")
    tail = [
        Text(counted),
        Text(f"Limit: {probe.limit}", style="dim"),
        Text(f"Next: {probe.advice.words}"),
    ]
    return Group(head, Text(), table, Text(), groups, Text(), *tail)


def runs_table(runs: Sequence[RunLine], *, width: int = 80) -> RenderableType:
    """Return the list of runs, newest first as they come."""
    if not runs:
        return Text("No runs yet. Start one with: learnloop train")
    wide = width >= WIDE_FROM
    names = ("run", "optimizer", "created", "state", "steps", "gain")
    table = _table(names if wide else ("run", "state", "steps", "gain"), right=("steps", "gain"))
    for run in runs:
        gain = change(run.gain, "difference")
        cells = (run.run_id, run.optimizer, run.created, run.state, run.steps, gain)
        table.add_row(*(cells if wide else (run.run_id, run.state, run.steps, gain)))
    return table


def counts(arm: ArmSummary) -> str:
    """Return planned, graded and lost rollouts as one line."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in arm.lost.items())
    lost = arm.planned - arm.graded
    tail = f" ({kinds})" if kinds else ""
    faults = f"; agent faults {arm.agent_faults}" if arm.agent_faults else ""
    return (
        f"{arm.tasks} tasks, {arm.planned} planned, {arm.graded} graded, {lost} lost{tail}{faults}"
    )


def _table(names: Sequence[str], *, right: Sequence[str] | None = None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    for i, name in enumerate(names):
        to_right = name in right if right is not None else 0 < i < 3
        table.add_column(name, justify="right" if to_right else "left")
    return table


def _row(table: Table, label: str, estimate: Estimate | None, unit: Unit) -> None:
    value = amount(estimate.value if estimate else None, unit)
    table.add_row(label, value, interval(estimate, unit) or NONE)


def _kinds_of(arm: ArmSummary) -> RenderableType:
    table = _table(("kind", "accuracy", "95 % interval", "tasks"))
    for kind, part in arm.kinds.items():
        value = amount(part.correct.value if part.correct else None, "share")
        table.add_row(kind, value, interval(part.correct, "share") or NONE, str(part.tasks))
    return Group(Text(), table)


def _change_table(first: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column(first)
    for name in ("before", "after", "change (95 %)"):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _change_row(table: Table, label: str, row: MeasureRow, width: int) -> None:
    spread = change_interval(row.change)
    words = change(row.change, row.change_kind)
    gap = "  " if width >= WIDE_FROM else "\n"
    moved = Text(f"{words}{gap}[{spread}]" if spread else words)
    moved.stylize(_STYLES[direction(row.change, row.better)])
    before, after = (amount(e.value if e else None, row.unit) for e in (row.before, row.after))
    table.add_row(label, before, after, moved)
