"""A run that keeps no texts trains what one that keeps them trains, killed and resumed or not."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.e2e.conftest import Done, Moment, Small, event, kinds, rollouts
from tests.e2e.small_project import make_small_project

from learnloop.project import Project

pytestmark = pytest.mark.timeout(400)

KILLED: tuple[Moment, ...] = (rollouts("train", 3, 1), event("step", 2))
"""Amid the rollouts of a step, and after an update before its state is saved."""


@dataclass(frozen=True, kw_only=True)
class Terse:
    """A run under a policy that keeps less than everything, and how it ended."""

    small: Small
    content: str
    end: Done


@pytest.fixture(scope="module", params=["none"])
def terse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Terse:
    """Return a run that was killed twice and resumed, its texts not kept."""
    content = str(request.param)
    small = Small(make_small_project(tmp_path_factory.mktemp(content) / "small"))
    words: tuple[str, ...] = ("train",)
    variable = "LEARNLOOP_STORE__CONTENT"
    for moment in KILLED:
        with small.start(*words, deaf=False, **{variable: content}) as process:
            small.wait(moment, process)
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=100)
        words = ("train", "--resume", "latest")
    return Terse(
        small=small, content=content, end=small.run(*words, "--json", **{variable: content})
    )


def weights(small: Small) -> dict[str, torch.Tensor]:
    """Return the fp32 master weights after the last step."""
    file = small.root / ".learnloop/runs" / small.record().id / "state.pt"
    return torch.load(file, weights_only=True)["parameters"]


def test_it_learns_exactly_what_a_run_that_keeps_everything_learns(
    undisturbed: tuple[Small, Done], terse: Terse
):
    calm, calm_end = undisturbed
    assert terse.end.code == 0, terse.end.err
    mine, other = weights(terse.small), weights(calm)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, other[name], msg=name)
    assert kinds(terse.small.events()) == kinds(calm.events())
    for key in ("gain", "gate", "steps", "rollouts"):
        assert terse.end.json[key] == calm_end.json[key]


def test_no_rollout_is_left_in_full_and_the_ledger_holds(terse: Terse):
    with Project.open(terse.small.root).open_store() as store:
        traces = store.traces(terse.small.record().id)
        assert {t.content for t in traces} == {terse.content}
        assert not any(turn.token_ids for t in traces for turn in t.turns)
        assert store.audit().broken is None


def test_the_report_is_made_and_says_what_is_not_kept(terse: Terse):
    page = Path(terse.end.json["report"])
    assert page.exists()
    again = terse.small.run("report", "latest", "--json")
    assert again.code == 0, again.err
    assert again.json["gain"] == terse.end.json["gain"]
