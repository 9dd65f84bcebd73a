"""Coverage of every interval that a report prints, in populations of tasks whose truth is known.

Tasks are drawn from a population, attempts from tasks, and the interval is computed by the functions
that the report uses. It covers when the population's value lies in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop import stats
from learnloop.stats import Estimate, UnitSums, UnitValues

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
ATTEMPTS = 5
TASKS = (30, 120)
LEAST = {30: 0.93, 120: 0.94}
POPULATION = 400_000


# --- populations: pass rates before and after ----------------------------------------------------


def mixed(rng: np.random.Generator, n: int) -> Floats:
    """Return pass rates: 45 % of tasks always pass, 35 % never, 20 % by a coin."""
    return rng.choice([1.0, 0.0, 0.5], size=n, p=[0.45, 0.35, 0.2])


def mixed_world(up: float = 0.0, shift: float = 0.0, down: float = 0.0) -> Draw:
    """Return a mixed population.

    A share `up` of tasks that fail at times becomes certain, `shift` is added to what is below 1,
    and a share `down` of those that always pass breaks.
    """

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        p = mixed(rng, n)
        q = np.where(p < 1, np.minimum(1.0, p + shift), p)
        q = np.where((p < 1) & (rng.random(n) < up), 1.0, q)
        return p, np.where((p == 1) & (rng.random(n) < down), 0.0, q)

    return draw


def never_fixed(share: float, broken: float) -> Draw:
    """Return a mixed population in which a share of all tasks goes 0 to 1, and another 1 to 0."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        p = mixed(rng, n)
        u = rng.random(n)
        q = np.where((p == 0) & (u < share / 0.35), 1.0, p)
        return p, np.where((p == 1) & (u < broken / 0.45), 0.0, q)

    return draw


def coin(gain: float, spread: float = 0.0) -> Draw:
    """Return a population of coins; the gain differs by `spread` either way."""

    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        return np.full(n, 0.5), 0.5 + gain + spread * rng.choice([-1.0, 1.0], size=n)

    return draw


WORLDS: Mapping[str, Draw] = {
    "mix null": mixed_world(),
    "mix +10 C": mixed_world(up=0.1 / 0.45),
    "mix +10 S": mixed_world(shift=0.1 / 0.55),
    "mix +13-3": never_fixed(0.13, 0.03),
    "mix rare +3": never_fixed(0.03, 0.0),
    "mix rare -3": never_fixed(0.0, 0.03),
    "coin null": coin(0.0),
    "coin +10": coin(0.1),
    "coin +10 +-25": coin(0.1, 0.25),
}
SIGNAL_WORLDS: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "mixU": lambda rng, n: np.where(
        (u := rng.random(n)) < 0.45, 1.0, np.where(u < 0.8, 0.0, rng.random(n))
    ),
    "Beta(.3,.4)": lambda rng, n: rng.beta(0.3, 0.4, n),
    "hard": lambda rng, n: np.where(rng.random(n) < 0.5, 0.05, mixed(rng, n)),
    "coin": lambda rng, n: np.full(n, 0.5),
    "25 % never": lambda rng, n: np.where(rng.random(n) < 0.25, 0.0, rng.beta(1, 3, n)),
}


# --- one sample ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Five attempts of both arms on each task: right or not, and a cost."""

    right: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    cost: tuple[Floats, Floats]


def sample(draw: Draw, rng: np.random.Generator, n: int) -> Sample:
    """Draw tasks and attempts; the candidate saves a fifth, tasks differ in cost and in saving."""
    rates = draw(rng, n)
    level = rng.lognormal(3.0, 0.5, n)
    saving = rng.normal(np.log(0.8), 0.15, n)
    noise = [rng.lognormal(0.0, 0.3, (n, ATTEMPTS)) for _ in range(2)]
    first, second = (rng.random((n, ATTEMPTS)) < p[:, None] for p in rates)
    return Sample(
        right=(first, second),
        cost=(
            level[:, None] * noise[0],
            (level * np.exp(saving))[:, None] * noise[1],
        ),
    )


def values(s: Sample, arm: int) -> UnitValues:
    cost = s.cost[arm]
    units = np.repeat(np.arange(len(cost)), cost.shape[1])
    return UnitValues(values=cost.ravel().astype(float), units=units)


def sums(s: Sample, arm: int, *, solved: bool) -> UnitSums:
    """Return cost over correct attempts; of the correct ones only where `solved`."""
    right, cost = s.right[arm], s.cost[arm]
    top = (cost * right if solved else cost).sum(1)
    return UnitSums(top=top.tolist(), bottom=right.sum(1).astype(float).tolist())


def _of_k(s: Sample, *, any_of: bool) -> Estimate | None:
    right = s.right[1]
    each = right.any(1) if any_of else right.all(1)
    return stats.clustered_share(each.astype(float).tolist(), len(right))


INTERVALS: Mapping[str, Callable[[Sample], Estimate | None]] = {
    "difference": lambda s: stats.plus_two_t((s.right[1].mean(1) - s.right[0].mean(1)).tolist()),
    "rate": lambda s: stats.clustered_share(s.right[1].mean(1).tolist(), s.right[1].size),
    "pass@5": lambda s: _of_k(s, any_of=True),
    "pass^5": lambda s: _of_k(s, any_of=False),
    "cost mean": lambda s: stats.cost_mean(s.cost[1].mean(1).tolist()),
    "cost change, logs": lambda s: stats.log_ratio(
        list(zip(s.cost[0].mean(1).tolist(), s.cost[1].mean(1).tolist(), strict=True))
    ),
    "cost a solved task": lambda s: stats.ratio_of_sums(sums(s, 1, solved=False)),
    "cost among right": lambda s: stats.ratio_of_sums(sums(s, 1, solved=True)),
    "change a solved task": lambda s: stats.change_of_ratios(
        sums(s, 0, solved=False), sums(s, 1, solved=False)
    ),
    "change of medians": lambda s: stats.change_of_quantiles(
        values(s, 0), values(s, 1), units=len(s.cost[0])
    ),
    "change of 95th percentiles": lambda s: stats.change_of_quantiles(
        values(s, 0), values(s, 1), units=len(s.cost[0]), q=0.95
    ),
}
SLOW = {"change of medians", "change of 95th percentiles"}
"""Intervals by resampling, which are computed for fewer samples."""


def truths(draw: Draw, rng: np.random.Generator) -> dict[str, float]:
    """Return the population's value of everything that has an interval."""
    s = sample(draw, rng, POPULATION)
    p, q = draw(rng, POPULATION)
    before, after = (c.mean(1) for c in s.cost)
    ratio = [(c * r).sum() / r.sum() for c, r in zip(s.cost, s.right, strict=True)]
    per = [c.sum() / r.sum() for c, r in zip(s.cost, s.right, strict=True)]
    return {
        "difference": float((q - p).mean()),
        "rate": float(q.mean()),
        "pass@5": float((1 - (1 - q) ** 5).mean()),
        "pass^5": float((q**5).mean()),
        "cost mean": float(after.mean()),
        "cost change, logs": float(np.expm1(np.log(after / before).mean())),
        "cost a solved task": float(per[1]),
        "cost among right": float(ratio[1]),
        "change a solved task": float(per[1] / per[0] - 1),
        "change of medians": float(np.median(s.cost[1]) / np.median(s.cost[0]) - 1),
        "change of 95th percentiles": float(
            np.quantile(s.cost[1], 0.95) / np.quantile(s.cost[0], 0.95) - 1
        ),
    }


def signal_cells(rates: Floats, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return (passes, attempts) of a probe."""
    return [(int(x), ATTEMPTS) for x in rng.binomial(ATTEMPTS, rates)]


def rows(runs: int, slow_runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each interval, world and number of tasks: how often it covered."""
    for index, (world, draw) in enumerate(WORLDS.items()):
        truth = truths(draw, np.random.default_rng((seed, 900, index)))
        for n in TASKS:
            count = counts(draw, truth, n, (runs, slow_runs), (seed, index, n))
            for name, (made, covered, width) in count.items():
                yield _row(name, world, n, made, covered, width)
    for index, (world, rates) in enumerate(SIGNAL_WORLDS.items()):
        for n in TASKS:
            yield signal_row(world, rates, n, slow_runs, (seed, 77, index, n))


def counts(
    draw: Draw,
    truth: Mapping[str, float],
    n: int,
    runs: tuple[int, int],
    seed: tuple[int, ...],
) -> dict[str, list[Any]]:
    """Return for each interval how many were made, how many covered, and the sum of their widths.

    `runs`: how many samples, and how many of them for intervals by resampling.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {name: [0, 0, 0.0] for name in INTERVALS}
    for run in range(runs[0]):
        s = sample(draw, rng, n)
        for name, interval in INTERVALS.items():
            if name not in SLOW or run < runs[1]:
                tally(found[name], interval(s), truth[name])
    return found


def _row(
    interval: str, world: str, tasks: int, made: int, covered: int, width: float
) -> dict[str, Any]:
    return {
        "interval": interval,
        "world": world,
        "tasks": tasks,
        "runs": made,
        "covered": covered,
        "width": round(width / max(1, made), 5),
    }


def tally(count: list[Any], found: Estimate | None, truth: float) -> None:
    """Count one interval; what could not be computed is not counted."""
    if found is None or found.low is None or found.high is None:
        return
    count[0] += 1
    # A truth at the end of what is possible (all tasks coins) is met up to rounding.
    count[1] += found.low - 1e-6 <= truth <= found.high + 1e-6
    count[2] += found.high - found.low


def signal_row(
    world: str,
    rates: Callable[[np.random.Generator, int], Floats],
    n: int,
    runs: int,
    seed: tuple[int, ...],
) -> dict[str, Any]:
    """Return the coverage of the share of groups of eight with signal, from five attempts."""
    rng = np.random.default_rng(seed)
    p = rates(np.random.default_rng(5), POPULATION)
    truth = float((1 - p**8 - (1 - p) ** 8).mean())
    count: list[Any] = [0, 0, 0.0]
    for _ in range(runs):
        cells = signal_cells(rates(rng, n), rng)
        tally(count, stats.signal_beta_binomial(cells, 8), truth)
    return _row("share of groups with signal", world, n, *count)
