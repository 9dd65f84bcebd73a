"""Power: what a test can show with so many pairs, and how many pairs an effect needs.

Under independent pairs, the chance of adoption depends on two numbers only: the effect, candidate
minus incumbent, and the share of pairs in which the two differ.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist

from learnloop.bounds import bounds
from learnloop.errors import ConfigError
from learnloop.gate.rules import GateRules, futility_limit

_INFLATION = 1.05
"""What looking early costs, against one look at the end."""
_Z_80 = 0.84


@dataclass(frozen=True, kw_only=True)
class Power:
    """The chance that a candidate is adopted, and the mean number of pairs until the verdict."""

    adopted: float
    pairs: float


def minimum_detectable_effect(alpha: float, discordant_share: float, pairs: int) -> float:
    """Return the difference that the gate adopts in 80 % of cases, as a fraction."""
    z = NormalDist().inv_cdf(1 - alpha)
    return _INFLATION * (z + _Z_80) * math.sqrt(discordant_share / pairs)


def pairs_needed(alpha: float, discordant_share: float, effect: float) -> int:
    """Return the largest number of pairs that adopts `effect` in 80 % of cases."""
    z = NormalDist().inv_cdf(1 - alpha)
    return math.ceil(discordant_share * (_INFLATION * (z + _Z_80) / effect) ** 2)


def power(
    effect: float, discordant_share: float, rules: GateRules, *, draws: int = 60, seed: int = 0
) -> Power:
    """Return the power of the sign test for an effect; exact but for the discordant counts.

    Args:
        effect: chance of a win minus chance of a loss.
        discordant_share: chance of either; at least the size of the effect.
        rules: the test.
        draws: how many paths of discordant counts are averaged over.
        seed: fixes them.
    """
    if not abs(effect) <= discordant_share <= 1 or discordant_share == 0:
        raise ConfigError(
            f"{discordant_share:.0%} of pairs that differ cannot give an effect of {effect:+.0%}"
        )
    rng, found = random.Random(seed), list[Power]()
    for _ in range(draws):
        counts, differing = list[int](), 0
        for before, n in zip((0, *rules.looks), rules.looks, strict=False):
            differing += sum(rng.random() < discordant_share for _ in range(n - before))
            counts.append(differing)
        found.append(_given(counts, (1 + effect / discordant_share) / 2, rules))
    return Power(
        adopted=math.fsum(x.adopted for x in found) / draws,
        pairs=math.fsum(x.pairs for x in found) / draws,
    )


def _given(counts: list[int], win: float, rules: GateRules) -> Power:
    """Return the power given the discordant counts: wins are binomial then."""
    cap, scale = rules.looks[-1], 1_000_000
    share = round(rules.alpha * scale)
    needed = bounds(counts, [share * n * n for n in rules.looks], scale * cap * cap)
    alive, before, adopted, pairs = {0: 1.0}, 0, 0.0, 0.0
    for n, total, least in zip(rules.looks, counts, needed, strict=True):
        alive = _walk(alive, total - before, win)
        before = total
        crossed = math.fsum(p for w, p in alive.items() if w >= least)
        limit = futility_limit(n, cap) * math.sqrt(total) if n < cap else math.inf
        over = {w: p for w, p in alive.items() if w >= least or 2 * w - total <= limit}
        stopped = math.fsum(over.values())
        adopted, pairs = adopted + crossed, pairs + n * stopped
        alive = {w: p for w, p in alive.items() if w not in over}
    return Power(adopted=adopted, pairs=pairs)


def _walk(chances: dict[int, float], steps: int, win: float) -> dict[int, float]:
    """Return the chance of each number of wins after `steps` more discordant pairs."""
    ways = [math.comb(steps, j) * win**j * (1 - win) ** (steps - j) for j in range(steps + 1)]
    after = dict[int, float]()
    for wins, chance in chances.items():
        for more, way in enumerate(ways):
            after[wins + more] = after.get(wins + more, 0.0) + chance * way
    return after
