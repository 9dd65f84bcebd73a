"""The share of training groups that hold both a pass and a failure, from a few attempts a task."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from learnloop.stats.interval import Estimate, deviation, t_quantile, wilson
from learnloop.stats.ratio import Floats, resamples

Cells = Sequence[tuple[int, int]]
"""One (passes, attempts) pair a task."""


def signal_unbiased(cells: Cells, group_size: int) -> float:
    """Return the share of groups of `group_size` attempts that hold both a pass and a failure.

    Exact and unbiased; every task needs at least `group_size` attempts.
    """
    g = group_size
    return math.fsum(
        1 - (math.comb(x, g) + math.comb(k - x, g)) / math.comb(k, g) for x, k in cells
    ) / len(cells)


def signal_beta_binomial(cells: Cells, group_size: int) -> Estimate:
    """Return the same share for larger groups, by beta-binomial empirical Bayes.

    A beta law of pass rates over tasks is fitted by maximum likelihood on a fixed grid of its
    mean and correlation; the interval takes the spread of fits on tasks drawn with replacement.
    """
    a, b = _beta_grid()
    kinds = sorted(set(cells))
    fit = np.stack([_log_beta_binomial(x, k, a, b) for x, k in kinds], axis=1)
    share = 1 - np.exp(_log_beta_binomial(0, group_size, a, b))
    share -= np.exp(_log_beta_binomial(group_size, group_size, a, b))
    owner = np.asarray([kinds.index(cell) for cell in cells])
    member = (owner[:, None] == np.arange(len(kinds))[None, :]).astype(np.float64)

    # Each draw refits the whole grid: few draws, or it takes seconds and hundreds of MB.
    weights = np.concatenate([np.ones((1, len(cells))), resamples(len(cells), 200)])
    found = share[np.argmax(fit @ (weights @ member).T, axis=0)]
    value, spread = float(found[0]), deviation(found[1:].tolist())
    low, high = wilson(value, _trials_behind(value, spread, len(cells)))
    return Estimate(value=value, low=min(low, value), high=max(high, value), n=len(cells))


def _trials_behind(share: float, spread: float, units: int) -> float:
    """Return how many independent trials know a share as well as its bootstrap spread says.

    Percentiles of the draws themselves cover 90 % at thirty tasks; Wilson's interval covers 93 %.
    """
    if units < 2:
        return 1.0
    shrink = (1.959964 / t_quantile(0.975, units - 1)) ** 2
    variance = spread**2 * units / (units - 1)
    return max(1.0, shrink * share * (1 - share) / variance) if variance > 1e-12 else float(units)


def signal_npmle(cells: Cells, group_size: int, *, rounds: int = 500) -> float:
    """Return the same share without a law of pass rates (NPMLE on a grid of 101 rates, by EM)."""
    rates = np.linspace(0.0, 1.0, 101)
    chances = np.stack([rates**x * (1 - rates) ** (k - x) for x, k in cells])
    weights = np.full(101, 1 / 101)
    for _ in range(rounds):
        posterior = chances * weights
        weights = (posterior / posterior.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(weights @ (1 - rates**group_size - (1 - rates) ** group_size))


def _beta_grid() -> tuple[Floats, Floats]:
    """Return the parameters a and b of every beta law of the grid.

    The smallest correlation is next to none, for tasks that are all alike.
    """
    rhos = np.concatenate([[1e-9], np.linspace(0.005, 0.995, 199)])
    center, rho = np.meshgrid(np.linspace(0.01, 0.99, 99), rhos)
    size = (1 - rho.ravel()) / rho.ravel()
    return center.ravel() * size, (1 - center.ravel()) * size


def _log_beta_binomial(x: int, k: int, a: Floats, b: Floats) -> Floats:
    """Return the log chance of one given order of x passes in k attempts under beta(a, b)."""
    up = sum((np.log(a + i) for i in range(x)), np.zeros_like(a))
    down = sum((np.log(b + i) for i in range(k - x)), np.zeros_like(a))
    return up + down - sum((np.log(a + b + i) for i in range(k)), np.zeros_like(a))
