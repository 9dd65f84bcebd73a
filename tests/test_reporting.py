"""The report that is kept up to date while a run goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.idle_run import idle_run
from tests.test_learn import look
from tests.tiny_project import edit

from learnloop.errors import ConfigError, UserError
from learnloop.event import Event
from learnloop.exporting import sign_off
from learnloop.provenance import task_set_hash
from learnloop.render.html import to_html
from learnloop.render.markdown import to_markdown
from learnloop.reporting import ReportWriter, outcome, seals, tasks_of_run


def test_a_report_can_be_written_before_anything_has_happened(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        page = tmp_path / "made" / "report.html"
        report = ReportWriter(session, page).write()
    assert report.verdict.state == "pending"
    assert sorted(p.name for p in page.parent.iterdir()) == [
        "report.html", "report.json", "report.md",
    ]  # fmt: skip
    assert json.loads(page.with_suffix(".json").read_text())["finished"] is False


def test_a_report_that_cannot_be_written_leaves_no_staging_file(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        page = tmp_path / "made" / "report.html"
        page.with_suffix(".json").mkdir(parents=True)
        with pytest.raises(UserError, match=r"report\.json: cannot be written: Is a directory"):
            ReportWriter(session, page).write()
        # While a run goes on, that must not end it.
        ReportWriter(session, page).emit(Event(kind="run_ended", run_id=session.record.id))
    assert [p.name for p in page.parent.iterdir()] == ["report.json"]


def test_a_young_report_is_written_again_only_at_the_end(tmp_path: Path):
    page = tmp_path / "report.html"
    with idle_run(tmp_path / "small") as (session, run):
        writer = ReportWriter(session, page)
        writer.emit(Event(kind="stage_started", run_id=run.id))
        first = page.stat().st_mtime_ns
        for kind in ("stage_started", "progress", "step"):
            writer.emit(Event(kind=kind, run_id=run.id))
        assert page.stat().st_mtime_ns == first
        writer.emit(Event(kind="run_ended", run_id=run.id))
        assert page.stat().st_mtime_ns > first


def test_the_report_names_the_stage_and_shows_each_look_once(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        writer = ReportWriter(session, tmp_path / "report.html")
        for step in (0, 2):
            for trace in look(step, step, 1).traces:
                made = replace(trace, id=f"{trace.id}_{step}")
                run.store.save_trace(run.id, "screen", step, made)
            run.emit("evaluation", step=step)
            run.begin_stage(f"after {step}")
            report = writer.write()
    assert [point.step for point in report.training.evaluations] == [0, 2]
    assert report.training.evaluations[1].correct is not None
    assert report.training.evaluations[1].correct.value == 0.5
    assert report.stage == "after 2"


def test_an_outcome_without_measurements_has_no_numbers_in_place_of_them(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        found = outcome(session)
    assert found["gain"] is None
    assert found["baseline"]["score"] is None
    assert found["rollouts"] == {"planned": 0, "graded": 0, "lost": 0}


def test_openings_of_the_same_test_set_are_counted_over_runs(tmp_path: Path):
    folder = tmp_path / "small"
    for test_set in ("of other rows", None, None):
        with idle_run(folder) as (session, run):
            name = test_set or task_set_hash(session.tasks.values(), "test")
            run.emit("seal_opened", tasks=3, test_set=name)
            found = seals(session.store, session.tasks)
    assert len({seal.run_id for seal in found}) == 2


def test_a_dataset_that_changed_is_no_longer_the_runs_own(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, _):
        assert tasks_of_run(session.project, session.record) == session.tasks
        edit(tmp_path / "small", "How many are 3", "How much are 3", file="data/tasks.jsonl")
        with pytest.raises(ConfigError, match="the dataset has changed since run"):
            tasks_of_run(session.project, session.record)


def test_who_signed_off_is_in_every_form_of_the_report(tmp_path: Path):
    with idle_run(tmp_path / "small") as (session, run):
        before = ReportWriter(session, tmp_path / "before.html").write()
        session.store.set_status(run.id, "stopped")
        record = session.store.run(run.id)
        sign_off(session.store, record, "A. <Reviewer>", "for the pilot")
        after = ReportWriter(session, tmp_path / "after.html").write()
    assert before.sign_offs == ()
    assert [(s.name, s.note) for s in after.sign_offs] == [("A. <Reviewer>", "for the pilot")]
    html, markdown = to_html(after), to_markdown(after)
    assert "A. &lt;Reviewer&gt;" in html
    assert "for the pilot" in html
    assert "A. &lt;Reviewer&gt;" in markdown
    assert "A. " not in to_markdown(before)
