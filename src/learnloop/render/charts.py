"""The report's charts, each a pure function from its data to an SVG text.

A chart is drawn twice, for a wide page and for a telephone, because letters that shrink with the
picture cannot be read; the page shows the one that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from learnloop.render.numbers import MINUS, NONE
from learnloop.render.svg import (
    Frame,
    Scale,
    area,
    drawing,
    mark,
    nice_ticks,
    path,
    rule,
    tag,
    text,
    whole_ticks,
)

WIDE, NARROW = 960.0, 344.0
Unit = Literal["percent", "number"]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One value with its interval, where there is one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one colour and shape; `line` joins them, `band` shades their intervals."""

    name: str
    points: tuple[Point, ...]
    slot: int
    line: bool = True
    band: bool = False


@dataclass(frozen=True, kw_only=True)
class LineChart:
    """Series over steps; `markers` are vertical lines with a word, such as the chosen step."""

    name: str
    series: tuple[Series, ...]
    x_label: str
    y_label: str
    unit: Unit = "number"
    markers: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One task of the probe: mean, deviation and best of its attempts, and its bucket.

    The three are None for a task without a graded attempt.
    """

    name: str
    mean: float | None
    sd: float | None
    best: float | None
    bucket: str
    slot: int


@dataclass(frozen=True, kw_only=True)
class BarChart:
    """The variance chart: tasks sorted by mean."""

    name: str
    bars: tuple[Bar, ...]
    y_label: str


@dataclass(frozen=True, kw_only=True)
class Range:
    """One row of a chart of intervals: a value, its interval, and where it came from.

    `start` is drawn as a hollow circle with a line to `value`; `band` is the shaded range in
    which a change means nothing.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    start: float | None = None
    band: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class RangeChart:
    """Rows of intervals on one axis; `zero` draws the line of no change."""

    name: str
    rows: tuple[Range, ...]
    x_label: str
    unit: Unit = "percent"
    zero: bool = False


Chart = LineChart | BarChart | RangeChart


def draw(chart: Chart) -> str:
    """Return the wide and the narrow drawing of a chart, one after the other."""
    return _draw(chart, WIDE, "wide") + _draw(chart, NARROW, "narrow")


def swatch(chart: Chart, slot: int) -> str:
    """Return the little picture that stands for a series of a chart in its legend."""
    frame = Frame(width=26, height=12)
    if isinstance(chart, LineChart):
        body = [path([(1, 6), (25, 6)], slot), mark(slot, 13, 6)]
    elif isinstance(chart, BarChart):
        body = [tag("rect", x=7, y=0, width=12, height=12, class_=f"bar c{slot}")]
    else:
        body = [
            mark(1, 13, 6, 4.5) if slot else tag("circle", cx=13, cy=6, r=4.5, class_="hollow c1")
        ]
    return drawing(frame, body, name="", css="swatch")


def _draw(chart: Chart, width: float, css: str) -> str:
    if isinstance(chart, LineChart):
        return _lines(chart, width, css)
    return _bars(chart, width, css) if isinstance(chart, BarChart) else _ranges(chart, width, css)


def _lines(chart: LineChart, width: float, css: str) -> str:
    frame = Frame(width=width, height=280.0 if css == "wide" else 236.0, top=24.0)
    points = [p for s in chart.series for p in s.points]
    xs = [p.x for p in points] or [0.0, 1.0]
    # An axis of zeros alone still reaches one.
    top = max((p.y if p.high is None else p.high for p in points), default=0.0) or 1.0
    # 40 pixels a label keeps step numbers apart at either width.
    x_ticks = whole_ticks(min(xs), max(xs), int(width / 40))
    y_ticks = nice_ticks(0.0, 1.0 if chart.unit == "percent" else top, 5)
    pad = 0.02 * (max(xs) - min(xs)) or 0.5
    x, y = frame.x_scale(min(xs) - pad, max(xs) + pad), frame.y_scale(0.0, y_ticks[-1])
    body = [
        *_y_axis(frame, y, y_ticks, _format(chart.unit)),
        *_x_axis(frame, x, x_ticks, chart.x_label),
    ]
    body += _markers(chart, frame, x)
    body += [_band(s, x, y) for s in chart.series if s.band]
    for series in chart.series:
        body += _one_line(series, x, y)
    body.append(text(4, 9, chart.y_label, css="label", anchor="start"))
    return drawing(frame, body, name=chart.name, css=css)


def _band(series: Series, x: Scale, y: Scale) -> str:
    points = [p for p in series.points if p.low is not None and p.high is not None]
    upper = [(x(p.x), y(p.high or 0.0)) for p in points]
    return area(upper, [(x(p.x), y(p.low or 0.0)) for p in points], series.slot) if points else ""


def _one_line(series: Series, x: Scale, y: Scale) -> list[str]:
    body: list[str] = []
    if series.line and len(series.points) > 1:
        body.append(path([(x(p.x), y(p.y)) for p in series.points], series.slot))
    for p in series.points:
        if not series.band and p.low is not None and p.high is not None:
            css = f"whisker c{series.slot}"
            body.append(rule(x(p.x), y(p.low), x(p.x), y(p.high), css))
        words = _hover(series.name, p)
        body.append(tag("g", tag("title", escape(words)) + mark(series.slot, x(p.x), y(p.y))))
    return body


def _hover(name: str, p: Point) -> str:
    interval = "" if p.low is None or p.high is None else f" ({p.low:.3g} to {p.high:.3g})"
    return f"{name}, {p.x:g}: {p.y:.3g}{interval}"


def _markers(chart: LineChart, frame: Frame, x: Scale) -> list[str]:
    body: list[str] = []
    for at, words in chart.markers:
        body.append(rule(x(at), frame.top, x(at), frame.height - frame.bottom, "marker"))
        left = x(at) < frame.width / 2
        body.append(
            text(
                x(at) + (4 if left else -4), frame.top + 9, words, anchor="start" if left else "end"
            )
        )
    return body


def _bars(chart: BarChart, width: float, css: str) -> str:
    frame = Frame(width=width, height=250.0 if css == "wide" else 220.0, top=30.0)
    x, y = frame.x_scale(0.0, float(len(chart.bars) or 1)), frame.y_scale(0.0, 1.0)
    body = _y_axis(frame, y, (0.0, 0.25, 0.5, 0.75, 1.0), _format("percent"))
    step = x(1.0) - x(0.0)
    for i, bar in enumerate(chart.bars):
        body += _one_bar(bar, x(i + 0.5), min(step * 0.7, 16.0), y)
    body += _buckets(chart, frame, x)
    middle = (frame.left + frame.width - frame.right) / 2
    body.append(
        text(middle, frame.height - 8, f"{len(chart.bars)} tasks, sorted by mean", css="label")
    )
    body.append(text(4, 9, chart.y_label, css="label", anchor="start"))
    return drawing(frame, body, name=chart.name, css=css)


def _one_bar(bar: Bar, middle: float, wide: float, y: Scale) -> list[str]:
    if bar.mean is None or bar.sd is None or bar.best is None:
        title = tag("title", escape(f"{bar.name}: nothing graded, {bar.bucket}"))
        return [tag("g", title + text(middle, y(0.0) - 4, NONE))]
    top = y(bar.mean) if bar.mean > 0 else y(0.0) - 2
    words = f"{bar.name}: mean {bar.mean:.2f}, SD {bar.sd:.2f}, best {bar.best:.2f}, {bar.bucket}"
    box = tag(
        "rect",
        x=middle - wide / 2,
        y=top,
        width=wide,
        height=y(0.0) - top,
        class_=f"bar c{bar.slot}",
    )
    body = [tag("title", escape(words)), box]
    if bar.sd > 0:
        low, high = max(0.0, bar.mean - bar.sd), min(1.0, bar.mean + bar.sd)
        body.append(rule(middle, y(low), middle, y(high), "whisker ink"))
    body.append(tag("g", mark(3, middle, y(bar.best), min(3.5, wide / 2)), class_="best"))
    return [tag("g", "".join(body))]


def _buckets(chart: BarChart, frame: Frame, x: Scale) -> list[str]:
    """Name each run of neighbouring bars of one bucket under the axis."""
    body: list[str] = []
    start = 0
    for i, bar in enumerate(chart.bars):
        last = i + 1 == len(chart.bars)
        if not last and chart.bars[i + 1].bucket == bar.bucket:
            continue
        left, right = x(start) + 1, x(i + 1) - 1
        base = frame.height - frame.bottom + 5
        body.append(rule(left, base, right, base, f"bracket c{bar.slot}"))
        count = str(i + 1 - start)
        words = f"{bar.bucket} {count}"
        # About 5.6 pixels a letter at the tick size; the legend names what does not fit.
        room = right - left
        if room > 5.6 * len(count):
            fits = words if room > 5.6 * len(words) else count
            body.append(text((left + right) / 2, base + 13, fits))
        start = i + 1
    return body


def _ranges(chart: RangeChart, width: float, css: str) -> str:
    beside = css == "wide"
    row, left = (26.0, 190.0) if beside else (40.0, 12.0)
    frame = Frame(
        width=width,
        height=48.0 + row * len(chart.rows),
        left=left,
        right=24.0,
        top=4.0,
        bottom=44.0,
    )
    low, high = _extent(chart)
    ticks = nice_ticks(low, high, 6 if beside else 4)
    x = frame.x_scale(ticks[0], ticks[-1])
    body = _x_axis(frame, x, ticks, chart.x_label, _format(chart.unit, signed=chart.zero))
    if chart.zero:
        body.append(rule(x(0), frame.top, x(0), frame.height - frame.bottom, "zero"))
    for i, item in enumerate(chart.rows):
        y = frame.top + row * i + (row / 2 if beside else row - 10)
        label = (left - 10, y + 4, "end") if beside else (left + 4, y - 12, "start")
        body.append(text(label[0], label[1], item.name, css="name", anchor=label[2]))
        body.append(_one_range(item, x, y))
    return drawing(frame, body, name=chart.name, css=css)


def _one_range(item: Range, x: Scale, y: float) -> str:
    body: list[str] = []
    if item.band:
        left, right = x(item.band[0]), x(item.band[1])
        body.append(
            tag("rect", x=left, y=y - 7, width=max(1.0, right - left), height=14, class_="still")
        )
    if item.start is not None:
        body.append(rule(x(item.start), y, x(item.value), y, "travel"))
        body.append(tag("circle", cx=x(item.start), cy=y, r=4.5, class_="hollow c1"))
    if item.low is not None and item.high is not None:
        body.append(rule(x(item.low), y, x(item.high), y, "whisker thick c0"))
    body.append(mark(1 if item.start is not None else 0, x(item.value), y, 4.5))
    words = f"{item.name}: {item.value:.3g}"
    return tag("g", tag("title", escape(words)) + "".join(body))


def _extent(chart: RangeChart) -> tuple[float, float]:
    values = [0.0]
    for item in chart.rows:
        values += [v for v in (item.value, item.low, item.high, item.start) if v is not None]
        values += item.band or ()
    return (min(values), max(values)) if max(values) > min(values) else (0.0, 1.0)


def _y_axis(
    frame: Frame, y: Scale, ticks: Sequence[float], show: Callable[[float], str]
) -> list[str]:
    body: list[str] = []
    for value in ticks:
        body.append(rule(frame.left, y(value), frame.width - frame.right, y(value)))
        body.append(text(frame.left - 6, y(value) + 4, show(value), anchor="end"))
    return body


def _x_axis(
    frame: Frame,
    x: Scale,
    ticks: Sequence[float],
    label: str,
    show: Callable[[float], str] = "{:g}".format,
) -> list[str]:
    base = frame.height - frame.bottom
    body = [rule(frame.left, base, frame.width - frame.right, base, "axis")]
    for value in ticks:
        body.append(rule(x(value), base, x(value), base + 4, "axis"))
        body.append(text(x(value), base + 16, show(value)))
    middle = (frame.left + frame.width - frame.right) / 2
    body.append(text(middle, frame.height - 8, label, css="label"))
    return body


def _format(unit: Unit, *, signed: bool = False) -> Callable[[float], str]:
    scale = 100.0 if unit == "percent" else 1.0

    def show(value: float) -> str:
        sign = "+" if signed and value else ""
        return f"{scale * value:{sign}g}".replace("-", MINUS)

    return show
