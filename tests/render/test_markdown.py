"""The Markdown report: short, whole, and what users wrote stays text."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tests.sample_run import HOSTILE, empty_inputs, partial_inputs, sample_inputs

from learnloop.render.markdown import to_markdown
from learnloop.report import build


def test_it_leads_with_the_verdict_and_has_a_table_for_each_split() -> None:
    report = build(sample_inputs())
    text = to_markdown(report)
    assert text.splitlines()[2] == f"**{report.verdict.sentence}**"
    assert text.count("| measure |") == 2
    assert "## Before and after on test" in text
    assert "learnloop train examples/reports" in text
    assert len(text) < 20_000


def test_rows_of_a_table_have_as_many_cells_as_its_head() -> None:
    lines = to_markdown(build(sample_inputs())).splitlines()
    for above, row in pairwise(lines):
        if above.startswith("|") and row.startswith("|"):
            assert above.count("|") == row.count("|")


def test_it_can_be_written_at_any_moment() -> None:
    assert "No verdict yet" in to_markdown(build(empty_inputs()))
    assert "not finished" in to_markdown(build(partial_inputs(2)))


def test_markup_in_names_is_escaped() -> None:
    report = build(replace(empty_inputs(), project=f"{HOSTILE} | *x*"))
    text = to_markdown(report)
    assert "<script" not in text
    assert r"\| \*x\*" in text
