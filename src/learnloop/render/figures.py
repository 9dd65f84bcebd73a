"""Figures: which chart a part of the report becomes, with its legend, note and table view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from learnloop.probe import BUCKETS, Bucket, ProbeResult
from learnloop.render.charts import (
    Bar,
    BarChart,
    Chart,
    LineChart,
    Point,
    Range,
    RangeChart,
    Series,
)
from learnloop.render.numbers import NONE, amount, change, change_interval, interval
from learnloop.report.document import EvaluationPoint, Report, SplitReport, Training
from learnloop.stats import Estimate
from learnloop.summary import StepRecord, ToolMixShift

Cells = tuple[str, ...]

_BUCKETS: Mapping[Bucket, tuple[str, int]] = {
    "never_passed": ("never passed", 1),
    "mixed": ("mixed", 0),
    "always_passed": ("always passed", 2),
    "grader_unstable": ("grader unstable", 3),
    "infra_flaky": ("infra flaky", 4),
}
TOTAL = "all tools"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of words under a chart."""

    caption: str
    columns: Cells
    rows: tuple[Cells, ...]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart with its legend (slot and name), a note with n and method, and its table."""

    title: str
    chart: Chart
    note: str
    table: Table
    legend: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Every figure of a report; None where there is nothing to draw yet."""

    kinds: Mapping[str, Figure]
    probe_before: Figure | None
    probe_after: Figure | None
    tools: Figure | None
    mix: Figure | None
    reward: Figure | None
    checkpoints: Table | None


def figures(report: Report) -> Figures:
    """Return the figures of a report."""
    steps = report.training.steps
    head = report.splits[0] if report.splits else None
    return Figures(
        kinds={split.split: kind_figure(split) for split in report.splits if split.kinds},
        probe_before=probe_figure(report.probe_before, "before training"),
        probe_after=probe_figure(report.probe_after, "after training"),
        tools=tools_figure(steps) if steps else None,
        mix=mix_figure(head, head.tool_mix) if head and head.tool_mix else None,
        reward=reward_figure(report.training) if steps else None,
        checkpoints=checkpoint_table(report.training),
    )


def probe_figure(probe: ProbeResult | None, when: str) -> Figure | None:
    """Return the variance chart of a probe."""
    if probe is None:
        return None
    order = probe.tasks
    bars = tuple(
        Bar(
            name=f"{task.task_id} ({task.kind})" if task.kind else task.task_id,
            mean=task.mean,
            sd=task.sd,
            best=task.best,
            bucket=_BUCKETS[task.bucket][0],
            slot=_BUCKETS[task.bucket][1],
        )
        for task in order
    )
    seen: list[Bucket] = [b for b in BUCKETS if probe.buckets.get(b)]
    legend = [(_BUCKETS[b][1], f"{_BUCKETS[b][0]}: {probe.buckets[b]}") for b in seen]
    rows = [
        (
            t.task_id,
            t.kind or NONE,
            str(t.attempts),
            _number(t.mean),
            _number(t.sd),
            _number(t.best),
            _BUCKETS[t.bucket][0],
        )
        for t in order
    ]
    return Figure(
        title=f"Score of each task, {when}",
        chart=BarChart(name=f"Variance probe {when}", bars=bars, y_label="score, percent"),
        legend=tuple(legend),
        note=(
            f"n = {len(bars)} tasks, {probe.attempts} attempts each. Bar: mean; line: one standard "
            "deviation of the attempts (no interval); diamond: best attempt. Groups of attempts "
            f"expected to differ: {_signal(probe)}."
        ),
        table=Table(
            caption=f"Every probed task, {when}",
            columns=("Task", "Kind", "Attempts", "Mean", "SD", "Best", "Bucket"),
            rows=tuple(rows),
        ),
    )


def tools_figure(steps: tuple[StepRecord, ...]) -> Figure:
    """Return tool calls a rollout over steps, one line a tool and one for all."""
    tools = sorted({tool for step in steps for tool in step.calls_per_tool})
    series = [
        Series(
            name=tool,
            slot=i,
            points=tuple(
                Point(x=s.step, y=s.calls_per_tool.get(tool, 0.0)) for s in steps if s.graded
            ),
        )
        for i, tool in enumerate(tools)
    ]
    total = tuple(Point(x=s.step, y=s.calls_mean) for s in steps if s.calls_mean is not None)
    series.append(Series(name=TOTAL, slot=5, points=total))
    rows = [
        (
            str(s.step),
            *(_number(s.calls_per_tool.get(t, 0.0)) for t in tools),
            _number(s.calls_mean),
            str(s.graded),
        )
        for s in steps
    ]
    return Figure(
        title="Tool calls a rollout over training steps",
        chart=LineChart(
            name="Tool calls per tool over steps",
            series=tuple(series),
            x_label="training step",
            y_label="calls a rollout",
        ),
        legend=tuple((s.slot, s.name) for s in series),
        note=(
            f"n = {_range([s.graded for s in steps])} graded training rollouts a step, sampled at the "
            "training temperature. Means without intervals; tasks differ from step to step."
        ),
        table=Table(
            caption="Mean tool calls a rollout",
            columns=("Step", *tools, TOTAL, "n"),
            rows=tuple(rows),
        ),
    )


def mix_figure(split: SplitReport, mix: ToolMixShift) -> Figure:
    """Return the tool mix before and after, with the band of random swaps of the arms."""
    tools = sorted(mix.before.keys() | mix.after.keys(), key=lambda t: -mix.before.get(t, 0.0))
    shares = [
        Range(name=t, value=mix.after.get(t, 0.0), start=mix.before.get(t, 0.0)) for t in tools
    ]
    whole = Range(name="distance of the mixes", value=mix.distance, band=(0.0, mix.noise_p95))
    verdict = "more than" if mix.beyond_noise else "no more than"
    rows = [(t, _share(mix.before.get(t, 0.0)), _share(mix.after.get(t, 0.0))) for t in tools]
    rows.append(
        ("distance of the mixes", _share(mix.noise_p95) + " (swaps, 95 %)", _share(mix.distance))
    )
    return Figure(
        title=f"Tool mix before and after, {split.split}",
        chart=RangeChart(
            name="Share of calls by tool before and after",
            rows=(*shares, whole),
            x_label="share of all tool calls, percent",
        ),
        legend=((0, split.before), (1, split.after)),
        note=(
            f"n = {mix.units} groups of tasks, calls of graded rollouts, no interval for a single tool. "
            f"The mix moved by {_share(mix.distance)} (total variation distance), {verdict} chance "
            f"explains: the grey band ends at the 95th percentile, {_share(mix.noise_p95)}, of 2,000 "
            "random swaps of the two arms within groups, as if one agent had made both."
        ),
        table=Table(
            caption="Share of calls by tool",
            columns=("Tool", f"Before ({split.before})", f"After ({split.after})"),
            rows=tuple(rows),
        ),
    )


def reward_figure(training: Training) -> Figure:
    """Return reward on train with its band, and the score on held-out screen tasks."""
    steps = [s for s in training.steps if s.reward_mean is not None]
    train = Series(
        name="train reward",
        slot=0,
        band=True,
        points=tuple(
            Point(x=s.step, y=s.reward_mean or 0.0, low=s.reward_low, high=s.reward_high)
            for s in steps
        ),
    )
    looks = Series(name="held-out score (screen)", slot=1, points=_points(training.evaluations))
    chosen = [(float(row.step), "chosen") for row in training.checkpoints if row.chosen]
    series = (train, looks) if looks.points else (train,)
    return Figure(
        title="Reward on train, and score on held-out tasks",
        chart=LineChart(
            name="Reward over steps",
            series=series,
            x_label="training step",
            y_label="percent",
            unit="percent",
            markers=tuple(chosen),
        ),
        legend=tuple((s.slot, s.name) for s in series),
        note=(
            f"n = {_range([s.graded for s in steps])} graded rollouts a training step; "
            f"{_range([e.tasks for e in training.evaluations])} screen tasks a look. Band and lines: "
            "95 % Wilson intervals with groups (train) and tasks' groups (screen) as units. Train "
            "rollouts are sampled warmer than held-out ones, so compare each line with itself."
        ),
        table=_reward_table(training),
    )


def kind_figure(split: SplitReport) -> Figure:
    """Return the change in accuracy by kind as a row of intervals."""
    rows = tuple(
        Range(
            name=_kind_name(k.kind, k.tasks),
            value=k.change.value,
            low=k.change.low,
            high=k.change.high,
        )
        for k in split.kinds
        if k.change
    )
    cells = [
        (
            k.kind,
            str(k.tasks),
            *(_estimate(e) for e in (k.measures[0].before, k.measures[0].after)),
            f"{change(k.change, 'difference')} ({change_interval(k.change)})",
            NONE if k.p_holm is None else f"{k.p_holm:.2g}",
        )
        for k in split.kinds
    ]
    return Figure(
        title=f"Change in accuracy by kind, {split.split}",
        chart=RangeChart(
            name="Change in accuracy by kind",
            rows=rows,
            x_label="change in accuracy, points",
            zero=True,
        ),
        note=(
            "n in brackets counts tasks. Lines: 95 % plus-two t intervals on paired differences, "
            "not corrected for the number of kinds; the p values in the table are (Holm)."
        ),
        table=Table(
            caption="Accuracy by kind",
            columns=("Kind", "Tasks", "Before", "After", "Change", "p (Holm)"),
            rows=tuple(cells),
        ),
    )


def checkpoint_table(training: Training) -> Table | None:
    """Return the table by which a checkpoint was chosen."""
    if not training.checkpoints:
        return None
    rows = [
        (
            str(r.step),
            amount(r.correct, "share"),
            _number(r.calls),
            str(r.tasks) if r.tasks else NONE,
            ("chosen. " if r.chosen else "") + r.reason,
        )
        for r in training.checkpoints
    ]
    return Table(
        caption="Choice of the checkpoint",
        columns=("Step", "Accuracy", "Calls", "Tasks", "Decision"),
        rows=tuple(rows),
    )


def _reward_table(training: Training) -> Table:
    looks = {e.step: e for e in training.evaluations}
    steps = {s.step: s for s in training.steps}
    rows: list[Cells] = []
    for at in sorted(looks.keys() | steps.keys()):
        step, look = steps.get(at), looks.get(at)
        reward = _triple(step.reward_mean, step.reward_low, step.reward_high) if step else NONE
        rows.append(
            (
                str(at),
                reward,
                _share(step.learnable_share if step else None),
                str(step.graded) if step else NONE,
                _estimate(look.score if look else None),
                str(look.tasks) if look else NONE,
            )
        )
    return Table(
        caption="Reward, learnable share and held-out score by step (95 % intervals in brackets)",
        columns=("Step", "Train reward", "Learnable groups", "n", "Held-out score", "Tasks"),
        rows=tuple(rows),
    )


def _points(looks: tuple[EvaluationPoint, ...]) -> tuple[Point, ...]:
    return tuple(
        Point(x=e.step, y=e.score.value, low=e.score.low, high=e.score.high)
        for e in looks
        if e.score
    )


def _signal(probe: ProbeResult) -> str:
    parts = [
        f"{_share(signal.share)} in groups of {signal.group_size}"
        + (" (extrapolated)" if signal.extrapolated else "")
        for signal in probe.signals
    ]
    return ", ".join(parts) or "not known"


def _kind_name(kind: str, tasks: int) -> str:
    return f"{kind} ({tasks})"


def _estimate(estimate: Estimate | None) -> str:
    spread = interval(estimate, "share")
    words = amount(estimate.value if estimate else None, "share")
    return f"{words} ({spread})" if spread else words


def _triple(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return NONE
    return (
        f"{value:.2f}" if low is None or high is None else f"{value:.2f} ({low:.2f} to {high:.2f})"
    )


def _share(value: float | None) -> str:
    return amount(value, "share")


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def _range(counts: list[int]) -> str:
    if not counts:
        return "0"
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
