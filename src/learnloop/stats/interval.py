"""Intervals and tests of differences and rates, with tasks as units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

SIGN_FLIPS = 20_000
EXACT_FLIPS_UP_TO = 14
NORMAL_FROM = 1000
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

    All sign patterns are counted up to 14 non-zero differences; above that 20,000 are drawn, and
    above 1,000 the normal law of the sum takes their place.
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
    if d.size > NORMAL_FROM:
        return 2 * NormalDist().cdf(-abs(float(d.sum())) / math.sqrt(float((d * d).sum())))
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


def tasks_needed(sd: float, difference: float) -> int:
    """Return how many tasks show `difference` with 80 % power at 5 % (two-sided)."""
    return math.ceil(((1.96 + 0.84) * sd / difference) ** 2)
