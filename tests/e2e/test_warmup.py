"""A warm-up in rounds: what is weak is taught again, and a kill in between changes nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.e2e.conftest import Small, rollouts
from tests.e2e.small_project import make_small_project

# A busy machine makes every start of a process slow.
pytestmark = pytest.mark.timeout(400)

ROUNDS = {
    "LEARNLOOP_WARMUP__ROUNDS": "3",
    "LEARNLOOP_WARMUP__ENOUGH": "1",
    "LEARNLOOP_WARMUP__TRIED_TASKS": "6",
}


def test_rounds_go_on_while_a_kind_is_weak_and_a_kill_repeats_nothing_that_was_stored(
    tmp_path: Path,
):
    small = Small(make_small_project(tmp_path / "small"))
    with small.start("train", "--steps", "1", deaf=False, **ROUNDS) as process:
        small.wait(rollouts("warmup", 2, 1), process)
        process.send_signal(signal.SIGKILL)
    stored = small.rows("select trace_id from rollouts where stage = 'warmup'")
    done = small.run("train", "--resume", "latest", "--json", **ROUNDS)
    assert done.code == 0, done.err
    tried = small.rows("select trace_id, task_id, step from rollouts where stage = 'warmup'")
    assert stored
    assert {name for (name,) in stored} <= {name for name, *_ in tried}
    assert len({(task, step) for _, task, step in tried}) == len(tried) == 12
    [told] = [line for line in done.err.splitlines() if line.startswith("warmup: ")]
    assert told.startswith("warmup: 4 demonstrations, again for ")


def test_one_round_tries_nothing(tmp_path: Path):
    small = Small(make_small_project(tmp_path / "small"))
    done = small.run("train", "--steps", "1", "--json")
    assert done.code == 0, done.err
    assert small.rows("select count(*) from rollouts where stage = 'warmup'") == [(0,)]
