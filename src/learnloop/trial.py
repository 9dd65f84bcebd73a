"""A trial: the test of one candidate against the incumbent, as a project's settings want it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from learnloop.config import GateConfig
from learnloop.gate import (
    CheaperRules,
    Detectable,
    ErrorPool,
    GateResult,
    GateRules,
    Noise,
    PairResult,
    PlannedPair,
    decide,
    decide_cheaper,
    detectable,
    either,
    look_after,
    passes_of,
    plan_pairs,
)
from learnloop.task import Task
from learnloop.trace import Trace

_SHORTEST_S = 0.001


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one candidate is tested for, and the error that the test may make.

    Attributes:
        number: how many candidates of the run were tested before.
        config: the gate's settings.
        better: the test for a gain; None where only a saving is claimed.
        cheaper: the test for a saving; None where none is claimed.
    """

    number: int
    config: GateConfig
    better: GateRules | None
    cheaper: CheaperRules | None

    @property
    def looks(self) -> tuple[int, ...]:
        """Return the pair counts at which a verdict may come."""
        return self.config.looks

    def next_look(self, done: int) -> int:
        """Return up to how many pairs to run before the next decision."""
        return look_after(done, self.looks)

    def plan(self, task_ids: Sequence[str], seed: int) -> tuple[PlannedPair, ...]:
        """Return the pairs; a later candidate of the run has other ones, so that all are fresh."""
        cap = self.looks[-1]
        first = self.number * passes_of(len(task_ids), cap) if task_ids else 0
        return plan_pairs(task_ids, cap, seed + self.number, first_attempt=first)

    def result(self, task: Task, incumbent: Trace, candidate: Trace) -> PairResult:
        """Return a pair's result from its two rollouts."""
        return PairResult(
            task_id=task.id,
            group=task.group,
            incumbent=self._score(incumbent),
            candidate=self._score(candidate),
            incumbent_cost=self._cost(incumbent),
            candidate_cost=self._cost(candidate),
        )

    def decide(self, results: Sequence[PairResult]) -> GateResult | None:
        """Return the verdict on the pairs so far, or None when more are needed."""
        if self.cheaper is None:
            return decide(results, self.better) if self.better else None
        saving = decide_cheaper(results, self.cheaper)
        return either(decide(results, self.better), saving) if self.better else saving

    def _score(self, trace: Trace) -> float | None:
        """Return what is compared; None when the rollout was lost."""
        if trace.score is None:
            return None
        right = float(trace.score.is_right)
        return right if self.config.scores == "right" else trace.score.correct

    def _cost(self, trace: Trace) -> float:
        """Return a cost above zero: counts have one added, the answer that is always given."""
        counts = {
            "calls": len(trace.calls_run),
            "rounds": trace.rounds,
            "tokens": trace.tokens_total,
        }
        if self.config.cost in counts:
            return 1.0 + counts[self.config.cost]
        return max(_SHORTEST_S, trace.latency_s)


def pool_after(config: GateConfig, results: Sequence[GateResult]) -> ErrorPool:
    """Return the error that a run has left after the verdicts on its earlier candidates."""
    pool = ErrorPool(alpha=config.alpha, max_candidates=config.max_candidates)
    return pool.after(results)


def trial_of(
    config: GateConfig, pool: ErrorPool, *, number: int, seed: int, most: int | None = None
) -> Trial:
    """Return the trial of a run's next candidate.

    Args:
        config: the gate's settings.
        pool: the error that the run has left.
        number: candidates tested before.
        seed: fixes the random flips of graded scores.
        most: pairs beyond which nothing new is seen: the tasks, of a deterministic agent.
    """
    config = replace(config, looks=looks_up_to(config.looks, most))
    share = pool.share / 2 if config.claim == "either" else pool.share
    better = GateRules(alpha=share, looks=config.looks, scores=config.scores, seed=seed)
    cheaper = CheaperRules(
        alpha=share, margin=config.margin, looks=config.looks, scores=config.scores
    )
    return Trial(
        number=number,
        config=config,
        better=None if config.claim == "cheaper" else better,
        cheaper=None if config.claim == "better" else cheaper,
    )


def looks_up_to(looks: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    """Return the looks of a test that ends after so many pairs at the latest; None changes nothing."""
    if not most or most >= looks[-1]:
        return looks
    return (*(n for n in looks if n < most), most)


def visible_gain(config: GateConfig, share: float, *, tasks: int, once: bool = False) -> Detectable:
    """Return what the gate can show of an agent two runs of which differ by `share`.

    With `once`, of an agent that answers alike each time, so that each of the `tasks` of confirm counts once.
    """
    trial = trial_of(config, pool_after(config, ()), number=0, seed=0, most=tasks if once else None)
    rules = trial.better or GateRules(alpha=pool_after(config, ()).share, looks=trial.looks)
    return detectable(share, rules, tasks=tasks, target=config.target or None, once=once)


def answers_alike(noise: Noise | None, temperature: float) -> bool:
    """Return whether an agent is deterministic: it samples nothing, and its A/A run shows no difference."""
    return noise is not None and noise.is_deterministic and temperature == 0
