"""Rules of others, written by us from what they publish, in the same worlds as our gate.

- `strict`: a candidate whose mean on the selection set is above the current one's stored score is
  accepted, and its score becomes the current one (SkillOpt).
- `argmax`: every candidate is scored once on the full validation set, the highest mean wins, the
  first of equals (GEPA's choice of its result).
- `k SE`: accepted when the mean difference over tasks exceeds k standard errors.
- `noise band`: the incumbent runs three times; its runs give a band for the difference of two means
  of three, from Bernoulli variances of tasks smoothed as Jeffreys does; a candidate is accepted when
  it clears the band (harness-evolve 0.3 and RRSI, whose papers leave the multiple open: 1.645 here).

At equal rollouts each rule is given as many pairs as our gate used on average, both arms run afresh,
and the threshold at which its worst false adoption over the null worlds equals ours; what the band's
own runs cost is not counted. That is kinder to them than how they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from bench.gate_worlds import COIN, MIXED, MIXED_U, churned, moved, shift
from numpy.typing import NDArray

Floats = NDArray[np.float64]
NULLS: Mapping[str, tuple[Floats, Floats]] = {
    "coin": (COIN, COIN),
    "mix": (MIXED, MIXED),
    "mixU": (MIXED_U, MIXED_U),
    "mix, churned": (MIXED, churned(MIXED)),
}
GAINS: Mapping[str, tuple[Floats, Floats]] = {
    "coin +5": (COIN, shift(COIN, 0.05)),
    "coin +10": (COIN, shift(COIN, 0.10)),
    "coin +20": (COIN, shift(COIN, 0.20)),
    "mix +5": (MIXED, shift(MIXED, 0.05)),
    "mix +10": (MIXED, shift(MIXED, 0.10)),
    "mix +20": (MIXED, shift(MIXED, 0.20)),
    "mixU +5": (MIXED_U, shift(MIXED_U, 0.05)),
    "mixU +10": (MIXED_U, shift(MIXED_U, 0.10)),
    "mix +10, 6 fixed and 2 broken": (MIXED, moved(MIXED, 6, 2)),
}
EDITS = 8
BAND_RUNS = 3
BAND = 1.645


def scores(rng: np.random.Generator, rates: Floats, runs: int, times: int = 1) -> Floats:
    """Return means over `times` attempts, one row a run and one column a task."""
    return rng.binomial(times, np.broadcast_to(rates, (runs, len(rates)))) / times


# --- as published: a run of eight edits ----------------------------------------------------------


def strict(rng: np.random.Generator, p: Floats, edits: list[Floats], runs: int) -> dict[str, Any]:
    """Return what SkillOpt's rule accepts over a run."""
    current = scores(rng, p, runs).mean(1)
    accepted, inflated = np.zeros(runs, dtype=int), np.zeros(runs)
    for q in edits:
        seen = scores(rng, q, runs).mean(1)
        better = seen > current
        accepted += better
        inflated = np.where(better, seen - q.mean(), inflated)
        current = np.where(better, seen, current)
    return _told(accepted > 0, inflated, len(p) * (1 + len(edits)))


def argmax(rng: np.random.Generator, p: Floats, edits: list[Floats], runs: int) -> dict[str, Any]:
    """Return whether the best on the full validation set is another one than the seed."""
    seen = np.stack([scores(rng, q, runs).mean(1) for q in (p, *edits)])
    best = seen.argmax(0)
    truth = np.array([q.mean() for q in (p, *edits)])
    inflated = seen.max(0) - truth[best]
    return _told(best > 0, inflated, len(p) * (1 + len(edits)))


def k_se(k: float) -> Callable[..., dict[str, Any]]:
    """Return the rule of k standard errors, both arms run afresh."""

    def rule(rng: np.random.Generator, p: Floats, edits: list[Floats], runs: int) -> dict[str, Any]:
        accepted, inflated = np.zeros(runs, dtype=int), np.zeros(runs)
        for q in edits:
            new = scores(rng, q, runs)
            d = new - scores(rng, p, runs)
            better = d.mean(1) > k * d.std(1, ddof=1) / np.sqrt(len(p))
            inflated = np.where(better & (accepted == 0), d.mean(1) - (q - p).mean(), inflated)
            accepted += better
        return _told(accepted > 0, inflated, 2 * len(p) * len(edits))

    return rule


def noise_band(
    rng: np.random.Generator, p: Floats, edits: list[Floats], runs: int
) -> dict[str, Any]:
    """Return what a band calibrated on three runs of the incumbent accepts."""
    old = scores(rng, p, runs, BAND_RUNS)
    band = BAND * np.sqrt(2 / BAND_RUNS * _jeffreys(old).sum(1)) / len(p)
    accepted, inflated = np.zeros(runs, dtype=int), np.zeros(runs)
    for q in edits:
        gain = (scores(rng, q, runs, BAND_RUNS) - old).mean(1)
        better = gain > band
        inflated = np.where(better & (accepted == 0), gain - (q - p).mean(), inflated)
        accepted += better
    return _told(accepted > 0, inflated, BAND_RUNS * len(p) * (1 + len(edits)))


def _jeffreys(means: Floats) -> Floats:
    """Return the variance of an attempt by task, from three attempts each."""
    smoothed = (BAND_RUNS * means + 0.5) / (BAND_RUNS + 1)
    return smoothed * (1 - smoothed)


def _told(adopted: NDArray[np.bool_], inflated: Floats, rollouts: int) -> dict[str, Any]:
    return {
        "runs": len(adopted),
        "adopted": int(adopted.sum()),
        "inflation": round(float(inflated[adopted].mean()) if adopted.any() else 0.0, 4),
        "rollouts": rollouts,
    }


RULES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "strict": strict,
    "argmax": argmax,
    "1 SE": k_se(1.0),
    "2 SE": k_se(2.0),
    "noise band": noise_band,
}


def published_rows(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each rule and world: eight null edits, and one edit of +10."""
    worlds = {"coin": COIN, "mix": MIXED, "mixU": MIXED_U}
    for w, (world, p) in enumerate(worlds.items()):
        for r, (name, rule) in enumerate(RULES.items()):
            rng = np.random.default_rng((seed, w, r))
            cases = {"8 null edits": [p] * EDITS, "one edit of +10": [shift(p, 0.10)]}
            for case, edits in cases.items():
                yield {"rule": name, "world": world, "case": case, **rule(rng, p, edits, runs)}


# --- at equal rollouts and equal false adoption --------------------------------------------------


def pair_sums(
    rng: np.random.Generator, p: Floats, q: Floats, pairs: int, runs: int
) -> tuple[Floats, Floats, Floats]:
    """Return, by run and task, sums of differences and of their squares, and counts.

    Balanced passes: all tasks equally often, a random part of them once more.
    """
    tasks, whole = len(p), pairs // len(p)
    count = np.full((runs, tasks), whole)
    rest = pairs - whole * tasks
    count += rng.random((runs, tasks)).argsort(1) < rest
    win, loss = q * (1 - p), p * (1 - q)
    wins = rng.binomial(count, win)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_rest = np.where(win < 1, loss / (1 - win), 0.0)
    losses = rng.binomial(count - wins, np.clip(of_rest, 0, 1))
    return wins - losses, wins + losses, count


Statistic = Callable[[np.random.Generator, Floats, tuple[Floats, Floats, Floats]], Floats]


def margin(rng: np.random.Generator, p: Floats, seen: tuple[Floats, Floats, Floats]) -> Floats:
    """Return the mean difference: `strict` and `argmax` with a margin."""
    return seen[0].sum(1) / seen[2].sum(1)


def se_of_tasks(rng: np.random.Generator, p: Floats, seen: tuple[Floats, Floats, Floats]) -> Floats:
    """Return the mean of task differences in standard errors over tasks."""
    d = seen[0] / np.maximum(1, seen[2])
    spread = d.std(1, ddof=1) / np.sqrt(d.shape[1])
    return np.divide(d.mean(1), spread, out=np.zeros(len(d)), where=spread > 0)


def se_of_pairs(rng: np.random.Generator, p: Floats, seen: tuple[Floats, Floats, Floats]) -> Floats:
    """Return the mean difference in standard errors over pairs."""
    n, total, squares = seen[2].sum(1), seen[0].sum(1), seen[1].sum(1)
    spread = np.sqrt(np.maximum(squares - total**2 / n, 0))
    return np.divide(total, spread, out=np.zeros(len(total)), where=spread > 0)


def band_multiple(
    rng: np.random.Generator, p: Floats, seen: tuple[Floats, Floats, Floats]
) -> Floats:
    """Return the mean difference in units of the band of three runs of the incumbent."""
    old = scores(rng, p, len(seen[0]), BAND_RUNS)
    band = np.sqrt(2 * _jeffreys(old).mean(1) / seen[2].sum(1))
    return margin(rng, p, seen) / band


STATISTICS: Mapping[str, Statistic] = {
    "strict or argmax with a margin": margin,
    "k SE over tasks": se_of_tasks,
    "k SE over pairs": se_of_pairs,
    "noise band": band_multiple,
}


def equal_rows(
    pairs: Mapping[str, float], level: float, runs: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield each rule's power with our mean pairs and at our false adoption, world by world."""
    for w, (world, (p, q)) in enumerate(GAINS.items()):
        n = round(pairs[world])
        rng = np.random.default_rng((seed, w))
        nulls = [(a, pair_sums(rng, a, b, n, runs)) for a, b in NULLS.values()]
        seen = pair_sums(rng, p, q, n, runs)
        for name, statistic in STATISTICS.items():
            cut = max(
                float(np.quantile(statistic(rng, a, s), 1 - level, method="higher"))
                for a, s in nulls
            )
            yield {
                "rule": name,
                "world": world,
                "pairs": n,
                "level": level,
                "threshold": round(cut, 5),
                "runs": runs,
                "adopted": int((statistic(rng, p, seen) > cut).sum()),
            }
