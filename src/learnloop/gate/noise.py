"""The A/A run: the incumbent against itself, which shows the noise that a candidate must beat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.gate.label import FEW_TASKS
from learnloop.gate.pair import PairResult
from learnloop.gate.power import minimum_detectable_effect, pairs_needed
from learnloop.gate.rules import GateRules

SUSPICIOUS_P = 0.01


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What an agent does against itself.

    Attributes:
        pairs: pairs without a lost attempt; `planned` counts all.
        tasks: how many tasks they are of.
        share: mean squared difference; for 0/1 results the share of pairs that differ.
        low: lower end of its 95 % interval, tasks as units; `high` the upper one.
        gain: mean of the second arm minus the first; only noise, unless the arms are not run alike.
        p: two-sided sign test of that.
        lost: attempts without a score, of both arms.
    """

    pairs: int
    planned: int
    tasks: int
    share: float
    low: float
    high: float
    gain: float
    p: float
    lost: int

    @property
    def is_deterministic(self) -> bool:
        """Return whether no pair differs; at temperature 0 a second attempt then says nothing new."""
        return self.pairs > 0 and self.share == 0

    @property
    def is_lopsided(self) -> bool:
        """Return whether the arms differ though they are the same agent: a fault of the setup."""
        return self.p < SUSPICIOUS_P

    @property
    def words(self) -> str:
        """Return the noise as it is printed."""
        if self.pairs == 0:
            return "no pair of the A/A run has a score in both arms"
        words = (
            f"two runs of the same agent differ in {self.share:.0%} of {self.pairs} pairs "
            f"(95 % {self.low:.0%} to {self.high:.0%})"
        )
        if self.is_lopsided:
            words += (
                f"; and the second arm scores {100 * self.gain:+.1f} points (p = {self.p:.2g}): "
                "the arms are not run alike, find out why before any test"
            )
        return words


def noise_of(results: Sequence[PairResult]) -> Noise:
    """Return the noise that an A/A run shows."""
    # Imported here: numpy costs a tenth of a second that a gate without an A/A run need not pay.
    from learnloop import stats

    clean = [r for r in results if r.is_clean]
    differences = [r.clean_difference for r in clean]
    by_unit = dict[str, list[float]]()
    for result in clean:
        by_unit.setdefault(result.unit, []).append(result.clean_difference**2)
    means = [math.fsum(x) / len(x) for x in by_unit.values()]
    found = stats.clustered_share(means, len(clean))
    count = max(1, len(clean))
    return Noise(
        pairs=len(clean),
        planned=len(results),
        tasks=len({r.task_id for r in clean}),
        share=math.fsum(d * d for d in differences) / count,
        low=found.low if found and found.low is not None else 0.0,
        high=found.high if found and found.high is not None else 1.0,
        gain=math.fsum(differences) / count,
        p=sign_p(sum(d > 0 for d in differences), sum(d < 0 for d in differences)),
        lost=sum((r.incumbent is None) + (r.candidate is None) for r in results),
    )


def sign_p(wins: int, losses: int) -> float:
    """Return the two-sided p value of the exact sign test."""
    total = wins + losses
    tail = sum(math.comb(total, x) for x in range(max(wins, losses), total + 1)) / 2**total
    return min(1.0, 2 * tail)


@dataclass(frozen=True, kw_only=True)
class Detectable:
    """What a test can show, given the noise.

    Attributes:
        effect: the gain adopted in 80 % of cases if the edit changes nothing else.
        effect_churned: the same if the edit makes as many more pairs differ as it gains.
        share: mean squared difference of two runs of the agent; for 0/1 results the pairs that differ.
        once: whether each task counts once, because the agent is deterministic.
        target: the gain that is wanted; None when none was named.
        pairs_for_target: pairs that adopt the target in 80 % of cases.
        cap: the most pairs that the test will run.
        tasks: confirm tasks.
    """

    effect: float
    effect_churned: float
    share: float
    once: bool
    target: float | None
    pairs_for_target: int | None
    cap: int
    tasks: int

    @property
    def is_underpowered(self) -> bool:
        """Return whether the target would be missed more often than in one case of five."""
        return self.pairs_for_target is not None and self.pairs_for_target > self.cap

    @property
    def words(self) -> str:
        """Return what can be shown and what to do about it."""
        if self.effect >= 1:
            words = f"{self.cap} pairs are too few to adopt any gain in 80 % of cases"
        else:
            words = (
                f"{self.cap} pairs adopt a gain of {_span(self.effect, self.effect_churned)} points "
                "in 80 % of cases"
            )
        if self.once:
            words += " (each confirm task once: the agent answers alike each time)"
        if self.target is not None and self.is_underpowered:
            words += (
                f"; a gain of {100 * self.target:g} points needs about "
                f"{self.pairs_for_target} pairs: {'add confirm tasks' if self.once else 'raise gate.looks'} "
                "or want more"
            )
        if self.tasks < FEW_TASKS:
            words += (
                f"; {self.tasks} confirm tasks are few: what suits only these is adopted too, "
                f"{FEW_TASKS} or more tell it apart"
            )
        return words


def _span(low: float, high: float) -> str:
    ends = [f"{100 * x:.1f}" for x in (low, high)]
    return " to ".join(dict.fromkeys(ends))


def detectable(
    share: float,
    rules: GateRules,
    *,
    tasks: int,
    target: float | None = None,
    once: bool = False,
) -> Detectable:
    """Return what a test with these rules can show of an agent with this noise.

    Args:
        share: mean squared difference of two runs of the agent, as an A/A run or a probe shows it.
        rules: the test.
        tasks: confirm tasks.
        target: the gain that is wanted, as a fraction.
        once: whether the rules let each task count once only.
    """
    cap = rules.looks[-1]

    def visible(share: float) -> float:
        return minimum_detectable_effect(rules.alpha, share, cap)

    # An edit cannot gain more than the share of pairs that it changes, however quiet the agent.
    effect = min(1.0, max(visible(share), visible(1.0) ** 2))
    wanted = target if target is not None else effect
    churned = min(1.0, share + wanted)
    needed = pairs_needed(rules.alpha, churned, target) if target else None
    return Detectable(
        effect=effect,
        effect_churned=min(1.0, max(effect, visible(churned))),
        share=share,
        once=once,
        target=target,
        pairs_for_target=needed,
        cap=cap,
        tasks=tasks,
    )
