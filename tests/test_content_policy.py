"""Content policies in a run: training needs everything until its update is saved, reports do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.idle_run import idle_run
from tests.store.rich_trace import SECRETS, rich_trace

from learnloop.batch import attempts_on
from learnloop.errors import ConfigError
from learnloop.report.cases import differences, trajectory
from learnloop.run import CURRENT, Run
from learnloop.store.content import reduce
from learnloop.trace import Content, Trace


def trained_on(run: Run) -> list[Trace]:
    """File the rollouts of a training step, and return those the step would be trained on."""
    tasks = run.sample("train", 2)
    batch = run.batch("train", run.base, attempts_on(tasks, 2), step=1)
    stored = [
        replace(
            rich_trace(n), id=f"trace_{n}", task_id=p.task.id, attempt=p.attempt,
            candidate_id=batch.candidate.id,
        )
        for n, p in enumerate(batch.plan)
    ]  # fmt: skip
    for trace in stored:
        run.store.save_trace(run.id, "train", 1, trace)
    return stored


def roll(run: Run) -> list[Trace]:
    batch = run.batch("train", run.base, attempts_on(run.sample("train", 2), 2), step=1)
    [traces] = anyio.run(run.roll, replace(batch, weights=CURRENT, is_trained_on=True))
    return traces


def test_a_resumed_step_is_trained_on_what_was_stored(tmp_path: Path) -> None:
    with idle_run(tmp_path / "p", flags={"store.content": "none"}) as (_, run):
        stored = trained_on(run)
        run.forget_words(0)  # no step is saved yet
        assert roll(run) == stored


def test_a_step_whose_texts_were_erased_is_refused_in_one_line(tmp_path: Path) -> None:
    with idle_run(tmp_path / "p") as (_, run):
        trained_on(run)
        run.store.erase(reason="x", run_id=run.id)
        with pytest.raises(ConfigError, match="texts of training step 1 were erased") as told:
            roll(run)
        assert "Start a new run." in told.value.line()


@pytest.mark.parametrize("content", ["none", "hash", "masked"])
def test_words_are_forgotten_once_the_update_is_saved(tmp_path: Path, content: Content) -> None:
    with idle_run(tmp_path / "p", flags={"store.content": content}) as (_, run):
        trained_on(run)
        run.forget_words(1)
        assert {t.content for t in run.store.traces(run.id)} == {content}


@pytest.mark.parametrize("content", ["none", "hash", "erased"])
def test_a_report_says_what_is_not_kept(content: Content) -> None:
    before, after = (reduce(rich_trace(n), content, b"salt") for n in (0, 1))
    shown = trajectory(after)
    assert shown.answer.startswith("(not kept: " if content != "erased" else "(erased from")
    assert shown.calls[0].result == shown.calls[0].arguments == shown.answer
    assert (shown.score, shown.tokens, shown.calls[0].tool) == (0.9, 61, "search")
    assert not any("Answer:" in words for words in differences(before, after))


def test_a_report_of_masked_texts_shows_them_masked() -> None:
    shown = trajectory(reduce(rich_trace(), "masked", b"salt"))
    assert "[email]" in shown.answer
    assert SECRETS[0] not in repr(shown)
