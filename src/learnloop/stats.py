"""Intervals, tests and counts behind every number that is printed.

The unit of all of them is the task (or the group, where tasks share one), never the attempt:
attempts of one task are alike, and an interval that takes them for independent is far too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BOOTSTRAP_DRAWS = 2000
SIGN_FLIPS = 20_000
EXACT_FLIPS_UP_TO = 14
_FLIP_CHUNK = 2000
# Sums of flipped differences that are equal on paper may differ in the last bits.
_TIE = 1e-9


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number with its 95 % interval; `n` counts units.

    `low` and `high` are None where one unit alone gives no interval.
    """

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def above_zero(self) -> bool:
        """Return whether the whole interval lies above zero."""
        return self.low is not None and self.low > 0

    @property
    def below_zero(self) -> bool:
        """Return whether the whole interval lies below zero."""
        return self.high is not None and self.high < 0


def normal_quantile(p: float) -> float:
    """Return the z value below which a share `p` of the standard normal lies."""
    return NormalDist().inv_cdf(p)


def t_quantile(p: float, df: int) -> float:
    """Return the value below which a share `p` of Student's t with `df` degrees of freedom lies."""
    # Imported here: scipy costs a tenth of a second that most commands need not pay.
    from scipy.special import stdtrit  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(df, p))


def normal_of_t(t: float, df: int) -> float:
    """Return the z value that is as rare as a value of Student's t."""
    from scipy.special import ndtri, stdtr  # pyright: ignore[reportMissingTypeStubs]

    return -float(ndtri(stdtr(df, -t)))


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile by linear interpolation; `values` must not be empty."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), q))


def deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1); 0 for fewer than two values."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def t_interval(values: Sequence[float]) -> Estimate | None:
    """Return mean and 95 % t interval of unit means; None when there are none."""
    n = len(values)
    if n == 0:
        return None
    center = math.fsum(values) / n
    if n == 1:
        return Estimate(value=center, low=None, high=None, n=1)
    half = t_quantile(0.975, n - 1) * deviation(values) / math.sqrt(n)
    return Estimate(value=center, low=center - half, high=center + half, n=n)


def plus_two_t(differences: Sequence[float], *, score_range: float = 1.0) -> Estimate | None:
    """Return the mean difference with the plus-two t interval.

    Two pseudo-units at plus and minus half the score range are added for the interval only; they
    keep it honest when few tasks differ at all. The value stays the plain mean.
    """
    n = len(differences)
    if n == 0:
        return None
    center = math.fsum(differences) / (n + 2)
    sd = plus_two_sd(differences, score_range=score_range)
    half = t_quantile(0.975, n + 1) * sd / math.sqrt(n + 2)
    return Estimate(value=math.fsum(differences) / n, low=center - half, high=center + half, n=n)


def plus_two_sd(differences: Sequence[float], *, score_range: float = 1.0) -> float:
    """Return the deviation of unit differences with the two pseudo-units of `plus_two_t`."""
    return deviation([*differences, 0.5 * score_range, -0.5 * score_range])


def wilson(share: float, n_eff: float, *, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson interval of a share seen in `n_eff` independent trials."""
    shrink = 1 + z * z / n_eff
    center = (share + z * z / (2 * n_eff)) / shrink
    half = z / shrink * math.sqrt(share * (1 - share) / n_eff + z * z / (4 * n_eff * n_eff))
    return max(0.0, center - half), min(1.0, center + half)


def clustered_share(unit_means: Sequence[float], trials: int) -> Estimate | None:
    """Return a rate in [0, 1] with a Wilson interval that respects units.

    Wilson takes the effective number of trials m(1-m)/se^2, where se is that of the unit means,
    shrunk by (1.96/t)^2 for few units and held between 1 and `trials` (attempts in all).
    """
    n = len(unit_means)
    if n == 0:
        return None
    share = min(1.0, max(0.0, math.fsum(unit_means) / n))
    low, high = wilson(share, _effective_trials(unit_means, share, trials))
    # Rounding may put a bound a hair beyond a rate of 0 or 1.
    return Estimate(value=share, low=min(low, share), high=max(high, share), n=n)


def _effective_trials(unit_means: Sequence[float], share: float, trials: int) -> float:
    n = len(unit_means)
    if n < 2:
        return 1.0
    shrink = (1.959964 / t_quantile(0.975, n - 1)) ** 2
    variance = deviation(unit_means) ** 2 / n
    if variance > 0:
        seen = share * (1 - share) / variance
    else:
        # All units alike: at 0 or 1 attempts of one unit may be copies, so count units only.
        seen = float(n) if share in (0.0, 1.0) else float(trials)
    return min(float(max(trials, 1)), max(1.0, seen * shrink))


def log_ratio(pairs: Sequence[tuple[float, float]]) -> Estimate | None:
    """Return the relative change of (before, after) pairs: -0.42 means 42 % less.

    A t interval on differences of logs, carried back; every value must be above zero.
    """
    found = t_interval([math.log(after / before) for before, after in pairs])
    if found is None:
        return None
    return Estimate(
        value=math.expm1(found.value),
        low=None if found.low is None else math.expm1(found.low),
        high=None if found.high is None else math.expm1(found.high),
        n=found.n,
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p values corrected for looking at several slices (Holm's step-down)."""
    floor, corrected = 0.0, dict[str, float]()
    for rank, name in enumerate(sorted(p_values, key=lambda key: (p_values[key], key))):
        floor = max(floor, min(1.0, p_values[name] * (len(p_values) - rank)))
        corrected[name] = floor
    return corrected


def sign_flip_p(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the two-sided p value of a mean difference under random signs of each unit.

    All sign patterns are counted up to 14 non-zero differences; above that 20,000 are drawn.
    """
    d = np.asarray([x for x in differences if x != 0.0], dtype=np.float64)
    if d.size == 0:
        return 1.0
    reach = abs(float(d.sum())) - _TIE * float(np.abs(d).sum())
    if d.size <= EXACT_FLIPS_UP_TO:
        sums = np.zeros(1, dtype=np.float64)
        for x in d:
            sums = np.concatenate([sums + x, sums - x])
        return float(np.count_nonzero(np.abs(sums) >= reach)) / sums.size
    rng, hits = np.random.default_rng(seed), 0
    for _ in range(0, SIGN_FLIPS, _FLIP_CHUNK):
        signs = 1 - 2 * rng.integers(0, 2, size=(_FLIP_CHUNK, d.size))
        hits += int(np.count_nonzero(np.abs(signs @ d) >= reach))
    return (hits + 1) / (SIGN_FLIPS + 1)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Return the unbiased chance that at least one of k attempts passes, from n >= k attempts."""
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def pass_hat_k(n: int, correct: int, k: int) -> float:
    """Return the unbiased chance that all of k attempts pass (pass^k), from n >= k attempts."""
    return math.comb(correct, k) / math.comb(n, k)


@lru_cache(maxsize=16)
def _draws(units: int, draws: int) -> Floats:
    """Return how often each unit is drawn in each of the bootstrap's resamples, (draws, units)."""
    rng = np.random.default_rng(0)
    even = np.full(units, 1.0 / units)
    return rng.multinomial(units, even, size=draws).astype(np.float64)


def _bootstrapped(
    units: int, measure: Callable[[Floats], Floats], *, draws: int = BOOTSTRAP_DRAWS
) -> Estimate | None:
    """Return `measure` of the units as they are with its 95 % percentile interval over resamples.

    `measure` maps (draws, units) weights to one value a draw, nan where there is nothing to
    measure. Nan for the units as they are gives None; for over a tenth of the draws, no interval.
    """
    if units == 0:
        return None
    value = float(measure(np.ones((1, units)))[0])
    if math.isnan(value):
        return None
    seen = measure(_draws(units, draws)) if units > 1 else np.full(1, np.nan)
    seen = seen[~np.isnan(seen)]
    if seen.size < 0.9 * draws:
        return Estimate(value=value, low=None, high=None, n=units)
    low, high = (float(x) for x in np.quantile(seen, (0.025, 0.975)))
    return Estimate(value=value, low=low, high=high, n=units)


def _divide(top: Floats, bottom: Floats) -> Floats:
    """Return top/bottom, nan where the bottom is not above zero."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


@dataclass(frozen=True, kw_only=True)
class UnitSums:
    """One arm's sums per unit: `top` (cost) over `bottom` (solved, or correct rollouts)."""

    top: Sequence[float]
    bottom: Sequence[float]

    def ratio(self, weights: Floats) -> Floats:
        """Return sum(top)/sum(bottom) for each row of unit weights; nan where the bottom is 0."""
        top, bottom = np.asarray(self.top, np.float64), np.asarray(self.bottom, np.float64)
        return _divide(weights @ top, weights @ bottom)


def ratio_of_sums(sums: UnitSums) -> Estimate | None:
    """Return sum(top)/sum(bottom) over units, such as calls per solved task.

    Interval of `_jackknifed`. None when the bottom sums to zero.
    """
    return _jackknifed(len(sums.top), sums.ratio, _present(sums))


def cost_mean(values: Sequence[float]) -> Estimate | None:
    """Return the mean of unit costs; they are skewed, so that the interval is taken on the log."""
    return ratio_of_sums(UnitSums(top=values, bottom=[1.0] * len(values)))


def change_of_ratios(before: UnitSums, after: UnitSums) -> Estimate | None:
    """Return the relative change of sum(top)/sum(bottom) between two arms over the same units.

    A unit is left out in both arms together; interval of `_jackknifed`. None when a ratio is
    missing or the first one is zero.
    """
    units = _present(before) | _present(after)

    def change(weights: Floats) -> Floats:
        return _divide(after.ratio(weights), before.ratio(weights))

    found = _jackknifed(len(before.top), change, units)
    if found is None:
        return None
    return Estimate(
        value=found.value - 1,
        low=None if found.low is None else found.low - 1,
        high=None if found.high is None else found.high - 1,
        n=found.n,
    )


def _present(sums: UnitSums) -> NDArray[np.bool_]:
    """Return which units contribute anything."""
    return (np.asarray(sums.top) != 0) | (np.asarray(sums.bottom) != 0)


def _jackknifed(
    units: int, ratio: Callable[[Floats], Floats], present: NDArray[np.bool_]
) -> Estimate | None:
    """Return a ratio above zero with its 95 % interval: t on the logs, by leaving out each unit.

    Costs are skewed, and their ratios more so: a percentile bootstrap covers 90 % at thirty tasks
    where this covers 94 %. Degrees of freedom count the units that contribute. Where a log cannot
    be taken (a ratio of zero, one unit alone that solved anything) the bootstrap stands in.
    """
    if units == 0:
        return None
    value = float(ratio(np.ones((1, units)))[0])
    if math.isnan(value):
        return None
    left_out = ratio(1.0 - np.eye(units))
    n = int(present.sum())
    if n < 3 or value <= 0 or not bool(np.all(left_out > 0)):
        return _bootstrapped(units, ratio)
    logs = np.log(left_out)
    spread = math.sqrt((units - 1) / units * float(((logs - logs.mean()) ** 2).sum()))
    half = t_quantile(0.975, n - 1) * spread
    return Estimate(value=value, low=value * math.exp(-half), high=value * math.exp(half), n=units)


def change_of_medians(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> Estimate | None:
    """Return the relative change of the pooled median; entry i holds the values of unit i."""
    if not any(before) or not any(after):
        return None
    return _bootstrapped(
        len(before),
        lambda weights: _divide(_medians(after, weights), _medians(before, weights)) - 1,
    )


def _medians(units: Sequence[Sequence[float]], weights: Floats) -> Floats:
    """Return the pooled median for each row of unit weights; nan where nothing is drawn."""
    pairs = sorted((value, unit) for unit, values in enumerate(units) for value in values)
    values = np.asarray([value for value, _ in pairs], dtype=np.float64)
    reach = np.cumsum(weights[:, [unit for _, unit in pairs]], axis=1)
    total = reach[:, -1:]
    # The middle value of an odd count, the mean of the two middle ones of an even count.
    lower = np.argmax(reach >= np.floor((total + 1) / 2), axis=1)
    upper = np.argmax(reach >= np.floor(total / 2) + 1, axis=1)
    found = (values[lower] + values[upper]) / 2
    return np.where(total[:, 0] > 0, found, np.nan)


def swapped_distance_p95(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], *, seed: int = 0
) -> float:
    """Return the 95th percentile of the distance of two mixes when units swap arms at random.

    Entry [i][j] counts what unit i gave to category j; the distance is total variation. This is
    what two runs of one agent would show.
    """
    old, new = np.asarray(before, dtype=np.float64), np.asarray(after, dtype=np.float64)
    keep = np.random.default_rng(seed).integers(0, 2, size=(BOOTSTRAP_DRAWS, len(old)))
    stay = keep.astype(np.float64)
    first, second = stay @ old + (1 - stay) @ new, stay @ new + (1 - stay) @ old
    mixes = (_divide(x, np.broadcast_to(x.sum(1, keepdims=True), x.shape)) for x in (first, second))
    a, b = mixes
    # A draw that leaves one arm without any call has no mix; it counts as far apart.
    return float(np.quantile(np.nan_to_num(np.abs(a - b).sum(1) / 2, nan=1.0), 0.95))


def tasks_needed(sd: float, difference: float) -> int:
    """Return how many tasks show `difference` with 80 % power at 5 % (two-sided)."""
    return math.ceil(((1.96 + 0.84) * sd / difference) ** 2)


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
    weights = np.concatenate([np.ones((1, len(cells))), _draws(len(cells), 200)])
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
