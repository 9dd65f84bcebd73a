"""Small pieces of SVG from which the charts are put together.

Colours are CSS classes (`c0` to `c5`), so one drawing serves the light theme, the dark one and
paper; every series has a shape and a dash of its own too, so that colour is never needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

DASHES = ("", "6 3", "2 3", "9 3 2 3", "4 2", "1 3")
SLOTS = 6
"""How many series can be told apart; further ones reuse colours and shapes."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """A linear map from values (`low` to `high`) to pixels (`start` to `end`)."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value, clipped a little outside the axis."""
        span = (self.high - self.low) or 1.0
        share = min(1.02, max(-0.02, (value - self.low) / span))
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The size of a drawing and the room its axes take, in pixels."""

    width: float
    height: float
    left: float = 46.0
    right: float = 14.0
    top: float = 14.0
    bottom: float = 42.0

    def x_scale(self, low: float, high: float) -> Scale:
        """Return the horizontal scale."""
        return Scale(low=low, high=high, start=self.left, end=self.width - self.right)

    def y_scale(self, low: float, high: float) -> Scale:
        """Return the vertical scale; large values are at the top."""
        return Scale(low=low, high=high, start=self.height - self.bottom, end=self.top)


def tag(name: str, content: str = "", **attributes: float | str) -> str:
    """Return one element; `class_` becomes `class`, underscores become hyphens."""
    parts = [
        f'{key.rstrip("_").replace("_", "-")}="{_number(value)}"'
        for key, value in attributes.items()
        if value != ""
    ]
    return f"<{' '.join([name, *parts])}>{content}</{name}>"


def text(x: float, y: float, words: str, *, css: str = "tick", anchor: str = "middle") -> str:
    """Return escaped words at a place."""
    return tag("text", escape(words), x=x, y=y, class_=css, text_anchor=anchor)


def drawing(frame: Frame, body: Sequence[str], *, name: str, css: str) -> str:
    """Return the finished SVG; `name` is what a screen reader says."""
    return tag(
        "svg",
        "".join(body),
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        width=frame.width,
        height=frame.height,
        role="img" if name else "",
        aria_label=escape(name, quote=True),
        aria_hidden="" if name else "true",
        class_=css,
    )


def mark(slot: int, x: float, y: float, size: float = 4.0) -> str:
    """Return the shape of a series: circle, square, triangle, diamond, cross or plus."""
    css = f"mark c{slot % SLOTS}"
    if slot % SLOTS == 0:
        return tag("circle", cx=x, cy=y, r=size, class_=css)
    outline = _OUTLINES[slot % SLOTS]
    points = " ".join(f"{_number(x + dx * size)},{_number(y + dy * size)}" for dx, dy in outline)
    return tag("polygon", points=points, class_=css)


def path(points: Sequence[tuple[float, float]], slot: int) -> str:
    """Return a line through points, in the colour and dash of its series."""
    steps = " L".join(f"{_number(x)},{_number(y)}" for x, y in points)
    dash = DASHES[slot % SLOTS]
    return tag("path", d=f"M{steps}", class_=f"line c{slot % SLOTS}", stroke_dasharray=dash)


def area(
    upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], slot: int
) -> str:
    """Return the band between two lines."""
    outline = [*upper, *reversed(lower)]
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in outline)
    return tag("polygon", points=points, class_=f"band c{slot % SLOTS}")


def rule(x1: float, y1: float, x2: float, y2: float, css: str = "grid") -> str:
    """Return a straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=css)


def nice_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return about `count` round values that cover the range."""
    high = high if high > low else low + 1.0
    span = high - low
    raw = span / max(1, count)
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= raw * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return tuple(round(i * step, 10) for i in range(first, last + 1))


def whole_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return whole numbers from low to high, at most about `count` of them."""
    step = max(1, math.ceil((high - low) / max(1, count)))
    return tuple(float(v) for v in range(math.ceil(low), math.floor(high) + 1, step))


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _cross(turn: float) -> tuple[tuple[float, float], ...]:
    arm, thick = 1.25, 0.42
    plus = (
        *((-thick, -arm), (thick, -arm), (thick, -thick), (arm, -thick), (arm, thick)),
        *((thick, thick), (thick, arm), (-thick, arm), (-thick, thick), (-arm, thick)),
        *((-arm, -thick), (-thick, -thick)),
    )
    c, s = math.cos(turn), math.sin(turn)
    return tuple((x * c - y * s, x * s + y * c) for x, y in plus)


_OUTLINES: dict[int, tuple[tuple[float, float], ...]] = {
    1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    2: ((0.0, -1.2), (1.15, 0.95), (-1.15, 0.95)),
    3: ((0.0, -1.35), (1.35, 0.0), (0.0, 1.35), (-1.35, 0.0)),
    4: _cross(math.pi / 4),
    5: _cross(0.0),
}
