"""Charts: data to SVG, at two widths, with shapes beside colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from learnloop.render.charts import (
    NARROW,
    WIDE,
    Bar,
    BarChart,
    Chart,
    LineChart,
    Point,
    Range,
    RangeChart,
    Series,
    draw,
)
from learnloop.render.svg import Scale, mark, nice_ticks, whole_ticks


def lines(*series: Series) -> LineChart:
    return LineChart(name="n", series=series, x_label="step", y_label="calls")


def line(slot: int, count: int = 4) -> Series:
    points = tuple(Point(x=i, y=i + slot, low=i, high=i + 2) for i in range(count))
    return Series(name=f"s{slot}", points=points, slot=slot, band=slot == 0)


CHARTS: dict[str, Chart] = {
    "lines": lines(line(0), line(1)),
    "one point": lines(line(0, 1)),
    "no points": lines(line(0, 0)),
    "no series": lines(),
    "many steps": lines(line(0, 400)),
    "bars": BarChart(
        name="b",
        bars=tuple(
            Bar(
                name=f"<t{i}>",
                mean=i / 60,
                sd=0.2,
                best=1.0,
                bucket="mixed" if i else "never passed",
                slot=i % 3,
            )
            for i in range(60)
        ),
        y_label="score",
    ),
    "no bars": BarChart(name="b", bars=(), y_label="score"),
    "ranges": RangeChart(
        name="r",
        rows=(
            Range(name="a & b", value=-0.1, low=-0.3, high=0.1),
            Range(name="c", value=0.2, start=0.1, band=(0.0, 0.3)),
        ),
        x_label="points",
        zero=True,
    ),
    "no ranges": RangeChart(name="r", rows=(), x_label="points"),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_two_drawings_of_sound_xml_inside_their_frames(name: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", draw(CHARTS[name]), flags=re.DOTALL)
    assert len(drawings) == 2
    for text, width in zip(drawings, (WIDE, NARROW), strict=True):
        root = ElementTree.fromstring(text)
        assert root.get("width") == f"{width:g}"
        height = float(root.get("height") or 0)
        for element in root.iter():
            for key, limit in (("cx", width), ("x1", width), ("cy", height), ("y1", height)):
                place = element.get(key)
                assert place is None or -8 <= float(place) <= limit + 8, (name, element.tag, key)


def test_six_series_have_six_shapes() -> None:
    shapes = {re.sub(r'class="[^"]*"', "", mark(slot, 10, 10)) for slot in range(6)}
    assert len(shapes) == 6


def test_names_are_escaped() -> None:
    text = draw(CHARTS["ranges"]) + draw(CHARTS["bars"])
    assert "a &amp; b" in text
    assert "<t1>" not in text


def test_labels_of_many_steps_stay_apart() -> None:
    for width in (WIDE, NARROW):
        assert len(whole_ticks(0, 399, int(width / 40))) <= width / 40 + 1


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (0.0, 0.0), (-0.31, 0.07), (0.0, 4812.0), (0.0, 1e-9)]
)
def test_ticks_are_few_round_and_cover_the_range(low: float, high: float) -> None:
    ticks = nice_ticks(low, high, 5)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 9


def test_a_scale_clips_what_lies_far_outside() -> None:
    scale = Scale(low=0, high=1, start=0, end=100)
    assert scale(0.5) == 50
    assert scale(9) == pytest.approx(102)


def test_a_task_without_a_score_is_a_dash_and_no_bar() -> None:
    bar = Bar(name="t", mean=None, sd=None, best=None, bucket="infra flaky", slot=4)
    drawn = draw(BarChart(name="b", bars=(bar,), y_label="score"))
    assert "t: nothing graded, infra flaky" in drawn
    assert "\N{EN DASH}" in drawn
    assert 'class="bar' not in drawn
