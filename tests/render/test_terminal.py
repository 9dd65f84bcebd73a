"""Progress on the terminal and the tables: right at 80 columns and at 60, plain lines in a pipe."""

from __future__ import annotations

import io
from dataclasses import asdict

import pytest
from rich.console import Console, RenderableType
from rich.text import Text
from tests.sample_run import sample_inputs

from learnloop.event import Event
from learnloop.render.tables import RunLine, compare_table, eval_table, probe_table, runs_table
from learnloop.render.terminal import Progress, RunView, line
from learnloop.report import ReportInputs
from learnloop.stats import Estimate
from learnloop.summary import compare, summarize


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return sample_inputs(opened=False)


def console(width: int, *, terminal: bool = False) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=terminal, highlight=False), out


def shown(renderable: RenderableType, width: int) -> list[str]:
    screen, out = console(width)
    screen.print(renderable)
    return out.getvalue().splitlines()


def events(inputs: ReportInputs) -> list[Event]:
    begun = Event(kind="run_started", run_id="run_1", data={"project": "reports", "steps": 10})
    stage = Event(kind="stage_started", run_id="run_1", data={"stage": "training"})
    look = {"split": "screen", "step": 5, "accuracy": 0.5, "low": 0.4, "high": 0.6, "n": 40}
    steps = [Event(kind="step", run_id="run_1", data=asdict(s)) for s in inputs.steps]
    return [
        begun,
        stage,
        *steps[:5],
        Event(kind="evaluation", run_id="run_1", data=look),
        *steps[5:],
        Event(kind="run_ended", run_id="run_1", data={"report": "report.html"}),
    ]


def test_in_a_pipe_each_event_is_one_plain_line(inputs: ReportInputs) -> None:
    screen, out = console(60)
    with Progress(screen) as progress:
        for event in events(inputs):
            progress.emit(event)
    lines = out.getvalue().splitlines()
    assert len(lines) == len(events(inputs))
    assert "\x1b" not in out.getvalue()
    assert lines[2].startswith("step: 1, reward ")
    assert "learnable" in lines[2]
    assert "tok/s" in lines[2]
    assert lines[7] == "evaluation: screen after step 5: 50.0 % (95 % 40 to 60), 40 tasks"


def test_on_a_terminal_one_block_is_redrawn_and_left_standing(inputs: ReportInputs) -> None:
    screen, out = console(80, terminal=True)
    progress = Progress(screen)
    with progress:
        for event in events(inputs):
            progress.emit(event)
    progress.close()
    assert "\x1b" in out.getvalue()
    assert "done" in out.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_the_progress_block_fits_its_terminal(inputs: ReportInputs, width: int) -> None:
    view = RunView()
    for event in events(inputs)[:-2]:
        view.take(event)
    lines = shown(view.draw(width), width)
    assert max(len(text) for text in lines) <= width
    assert any("reward" in text for text in lines)
    assert any("left for training" in text for text in lines)
    assert not any("…" in text for text in lines)


def test_an_event_without_the_expected_data_is_shown_as_far_as_it_goes() -> None:
    view = RunView()
    for kind in (
        "run_started",
        "stage_started",
        "step",
        "evaluation",
        "gate",
        "paused",
        "new_kind",
    ):
        event = Event(kind=kind, run_id="r")
        view.take(event)
        assert line(event).startswith(kind.replace("_", " "))
    assert shown(view.draw(60), 60)


def test_markup_in_an_event_is_not_interpreted() -> None:
    screen, out = console(80)
    progress = Progress(screen)
    progress.emit(Event(kind="gate", run_id="r", data={"reason": "[red]adopt[/red]"}))
    assert "[red]adopt[/red]" in out.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_tables_keep_every_number_whole_at_80_and_at_60_columns(
    inputs: ReportInputs, width: int
) -> None:
    found = compare(inputs.confirm["warm"], inputs.confirm["final"], inputs.tasks)
    assert inputs.probe_before is not None
    runs = [
        RunLine(
            run_id="run_20261130_7c1e",
            optimizer="rft",
            created="2026-11-30 19:40",
            state="finished",
            steps="10/10",
            gain=Estimate(value=0.31, low=0.2, high=0.4, n=120),
        )
    ]
    tables = {
        "eval": eval_table(summarize(inputs.confirm["final"], inputs.tasks), name="cand_final"),
        "compare": compare_table(found, width=width),
        "probe": probe_table(inputs.probe_before),
        "runs": runs_table(runs, width=width),
    }
    for name, table in tables.items():
        lines = shown(table, width)
        assert max(len(text) for text in lines) <= width, name
        assert not any("…" in text for text in lines), name
    text = "\n".join(shown(tables["compare"], width))
    assert found.correct is not None
    assert f"{100 * found.correct.difference.value:+.1f} points" in text
    assert "240 planned" in text


def test_no_runs_says_how_to_start_one() -> None:
    table = runs_table([])
    assert isinstance(table, Text)
    assert "learnloop train" in table.plain
