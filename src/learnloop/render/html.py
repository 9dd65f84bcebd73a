"""The report as one self-contained HTML page, without scripts and without outside requests.

Whatever a model, a tool or a dataset wrote is shown as text: every template escapes by default,
and the page's content policy forbids scripts besides.
"""

from __future__ import annotations

import json
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from learnloop.render import numbers
from learnloop.render.charts import Chart, draw, swatch
from learnloop.render.figures import figures
from learnloop.report.document import Report, SplitReport
from learnloop.report.measures import METHODS
from learnloop.summary import points

REFRESH_S = 10
"""Seconds after which the page of an unfinished run reloads itself."""

_CONTENTS = (
    ("headline", "Before and after"),
    ("variance", "Where it can learn"),
    ("tools", "Tools"),
    ("reward", "Reward"),
    ("cases", "Wins and regressions"),
    ("method", "Method"),
    ("again", "Reproduce"),
    ("signed", "Sign-off"),
)


def to_html(report: Report) -> str:
    """Return the page of a report."""
    template = _environment().get_template("report.html.j2")
    return template.render(
        report=report,
        figures=figures(report),
        contents=_CONTENTS,
        shown_split=report.splits[0] if report.splits else None,
        methods=METHODS,
        draw=_drawn,
        swatch=_swatch,
        title=_title,
        signed=points,
        refresh_s=REFRESH_S,
        config_json=json.dumps(report.config, ensure_ascii=False, indent=2, default=str),
    )


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("learnloop.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    cast(dict[str, Any], made.filters).update(
        amount=numbers.amount,
        interval=numbers.interval,
        change=numbers.change,
        change_interval=numbers.change_interval,
        direction=numbers.direction,
        capitalized=numbers.capitalized,
    )
    return made


def _drawn(chart: Chart) -> Markup:
    # The drawing escapes every word it is given; see `svg.text`.
    return Markup(draw(chart))


def _swatch(chart: Chart, slot: int) -> Markup:
    return Markup(swatch(chart, slot))


def _title(split: SplitReport) -> str:
    return "Sealed test" if split.split == "test" else "Confirm (held out)"
