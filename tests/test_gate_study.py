"""The study behind the gate's numbers: figures follow from rows, and a broken promise is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import gate_coverage, gate_peers
from bench.gate_runs import finish_order, finish_order_rows
from bench.gate_study import Settings, figures, judge, mean_pairs, study, targets
from bench.gate_worlds import COIN, MIXED, WORLDS, moved, pairs_of, shift

from learnloop.gate import LEAST_COVERAGE

Rows = dict[str, list[Any]]
TINY = Settings(runs=2, graded_runs=1, chains=2, peers=400, coverage=4, resampled=1)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return study(TINY)


def test_a_small_study_gives_every_figure_and_every_target(
    rows: Rows, capsys: pytest.CaptureFixture[str]
):
    found = figures(rows)
    assert set(found["worlds"]) == {world.name for world in WORLDS}
    assert len(list(targets(found))) > 200
    assert judge(found, "tiny") >= 0
    assert "hold" in capsys.readouterr().out


def test_a_promise_that_does_not_hold_is_told(rows: Rows, capsys: pytest.CaptureFixture[str]):
    found = figures(rows)
    found["worlds"]["coin null"] = {**found["worlds"]["coin null"], "adopted": 0.2, "runs": 2000}
    assert judge(found, "bent") >= 1
    assert "MISSED coin null: adopted 0.2000" in capsys.readouterr().out


def test_pairs_until_the_verdict_come_from_the_looks():
    assert mean_pairs([{"world": "w", "looks": "1135", "runs": 4}]) == {"w": 200.0}


def test_worlds_have_the_effect_that_their_name_says():
    for p, gain in ((COIN, 0.10), (MIXED, 0.05), (MIXED, 0.20)):
        assert float((shift(p, gain) - p).mean()) == pytest.approx(gain, abs=1e-6)
    assert float((moved(MIXED, 6, 2) - MIXED).mean()) == pytest.approx(0.10)


@pytest.mark.parametrize(
    "name", ["coin +10", "Beta(2,2) +5", "mean 0: +0.05 nearly always, -1 rarely"]
)
def test_simulated_pairs_have_the_mean_difference_of_their_world(name: str):
    world = next(w for w in WORLDS if w.name == name)
    rng = np.random.default_rng(0)
    d = [p.clean_difference for _ in range(100) for p in pairs_of(world, rng)]
    assert float(np.mean(d)) == pytest.approx(world.truth, abs=4 * float(np.std(d)) / len(d) ** 0.5)


def test_lost_attempts_are_as_many_as_their_world_says():
    world = next(w for w in WORLDS if w.name.startswith("coin null, lost: candidate's failures, 5"))
    rng = np.random.default_rng(0)
    pairs = [p for _ in range(50) for p in pairs_of(world, rng)]
    lost = [p for p in pairs if p.candidate is None]
    assert len(lost) / len(pairs) == pytest.approx(0.05, abs=0.01)
    assert all(p.incumbent is not None for p in pairs)
    assert 1 - len(lost) / len(pairs) > LEAST_COVERAGE


def test_finish_order_is_another_order_and_changes_no_verdict():
    rng = np.random.default_rng(3)
    order = finish_order(rng, pairs_of(WORLDS[0], rng))
    assert sorted(order) == list(range(400))
    assert order != sorted(order)
    changed = next(r for r in finish_order_rows(20, 1) if r["case"] == "another verdict")
    assert changed["adopted"] == 0


def test_a_pair_law_of_others_rules_is_that_of_ours():
    rng = np.random.default_rng(0)
    q = shift(MIXED, 0.1)
    total, squares, count = gate_peers.pair_sums(rng, MIXED, q, 200, 4000)
    assert (count.sum(1) == 200).all()
    assert float(total.sum(1).mean() / 200) == pytest.approx(0.1, abs=0.003)
    assert (squares >= np.abs(total)).all()


def test_populations_have_the_gain_that_their_name_says():
    for name, gain in (("mix +10 C", 0.10), ("mix +13-3", 0.10), ("mix rare -3", -0.03)):
        p, q = gate_coverage.WORLDS[name](np.random.default_rng(1), 400_000)
        assert float((q - p).mean()) == pytest.approx(gain, abs=0.003)
