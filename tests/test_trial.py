"""A trial: settings become tests, and the run's error is shared by its candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.test_summary import graded

from learnloop.config import GateConfig
from learnloop.gate import ErrorPool, GateOutcome, GateResult, refuse_early
from learnloop.task import Task
from learnloop.trace import Score
from learnloop.trial import pool_after, trial_of

TASK = Task(id="t", split="confirm", group="g", messages=(), tools=())


def result(outcome: GateOutcome, pairs: int = 80) -> GateResult:
    return GateResult(outcome=outcome, words="", pairs=pairs)


def test_an_adopted_candidate_gives_its_share_back_and_no_other_does():
    pool = ErrorPool(alpha=0.05, max_candidates=4)
    assert pool.share == 0.0125
    assert pool.after([result("adopt"), result("adopt")]).left == 4
    for spent in ("reject", "indecisive", "infra", "no_change"):
        assert pool.after([result(spent)]).left == 3
    assert pool.after([result("no_change", 0), result("leak", 0)]).left == 4


def test_a_spent_pool_closes_the_gate():
    pool = pool_after(GateConfig(), [result("reject")] * 4)
    found = refuse_early(same_content=False, leaks=(), confirm_tasks=40, pool=pool)
    assert found is not None
    assert found.outcome == "invalid"
    assert "spent on 4 candidates" in found.words


def test_a_later_candidate_has_pairs_of_its_own():
    tasks = [f"t{i}" for i in range(40)]
    plans = [
        trial_of(GateConfig(), ErrorPool(), number=n, seed=0).plan(tasks, seed=7) for n in (0, 1)
    ]
    first, second = ({(p.task_id, p.attempt) for p in plan} for plan in plans)
    assert len(first) == len(second) == 400
    assert not first & second


@pytest.mark.parametrize(
    ("claim", "better", "cheaper"),
    [("better", 0.0125, None), ("cheaper", None, 0.0125), ("either", 0.00625, 0.00625)],
)
def test_two_claims_share_the_error_of_one_candidate(
    claim: str, better: float | None, cheaper: float | None
):
    config = replace(GateConfig(), claim=claim)
    trial = trial_of(config, ErrorPool(), number=0, seed=0)
    assert (trial.better and trial.better.alpha) == better
    assert (trial.cheaper and trial.cheaper.alpha) == cheaper


def test_pairs_compare_what_the_settings_say():
    half = replace(graded("t", 0.0), score=Score(value=0.4, correct=0.5))
    full = replace(graded("t", 1.0, tools=("search",)), score=Score(value=0.9, correct=1.0))
    lost = replace(half, score=None, outcome="infra_fault")

    def scores(config: GateConfig) -> tuple[float | None, ...]:
        trial = trial_of(config, ErrorPool(), number=0, seed=0)
        pair, gone = trial.result(TASK, half, full), trial.result(TASK, lost, full)
        assert (pair.unit, pair.incumbent_cost is not None) == ("g", True)
        return pair.incumbent, pair.candidate, gone.incumbent

    assert scores(GateConfig()) == (0.0, 1.0, None)
    assert scores(GateConfig(scores="graded")) == (0.5, 1.0, None)


@pytest.mark.parametrize("cost", ["calls", "rounds", "tokens", "latency_s"])
def test_every_cost_is_above_zero_even_of_a_rollout_without_calls(cost: str):
    trial = trial_of(replace(GateConfig(), cost=cost), ErrorPool(), number=0, seed=0)
    bare = replace(graded("t", 1.0), latency_s=0.0)
    pair = trial.result(TASK, bare, bare)
    assert pair.incumbent_cost is not None
    assert pair.incumbent_cost > 0


def test_a_saving_alone_is_adopted_when_both_are_tested():
    config = GateConfig(claim="either", cost="calls")
    trial = trial_of(config, ErrorPool(), number=0, seed=0)
    slow, fast = graded("t", 1.0, tools=("a", "b", "c")), graded("t", 1.0, tools=("a",))
    results = [trial.result(replace(TASK, id=f"t{i}", group=""), slow, fast) for i in range(400)]
    assert trial.decide(results[:79]) is None
    found = trial.decide(results)
    assert found is not None
    assert (found.outcome, found.claim) == ("adopt", "cheaper")
