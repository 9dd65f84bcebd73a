"""The embedded project on the embedded model, as small as it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.conftest import Small

SMALL = {
    "LEARNLOOP_PROBE__TASKS": "4",
    "LEARNLOOP_WARMUP__LIMIT": "16",
    "LEARNLOOP_WARMUP__EPOCHS": "1",
    "LEARNLOOP_TRAIN__EVAL_TASKS": "6",
    "LEARNLOOP_GATE__LOOKS": "[8, 16]",
}


@pytest.mark.slow
@pytest.mark.needs("model")
@pytest.mark.timeout(900)
def test_two_steps_on_the_embedded_project(tmp_path: Path):
    small = Small(tmp_path / "reports")
    made = small.run("init", str(small.root))
    assert made.code == 0, made.err
    done = small.run("train", "--steps", "2", "--rollouts", "16", "--json", **SMALL)
    assert done.code == 0, done.err
    assert done.json["rollouts"] == {"planned": 32, "graded": 32, "lost": 0}
    assert done.json["baseline"]["tokens_mean"] > 100
    assert Path(done.json["report"]).stat().st_size > 20_000
