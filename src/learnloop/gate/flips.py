"""The test of graded scores: random sign flips of the pair differences, guarded by a bet on the mean.

The sign test throws the size of differences away, and adopts a candidate that is a little better
nearly always and collapses now and then. Flipping signs at random keeps the sizes, but still tests
whether the arms are exchangeable and not whether the mean rose; so the candidate must also win a
bet that pays only if the mean is above zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from learnloop.gate.result import Flips, Tally
from learnloop.gate.rules import GateRules

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PATHS = 20_000
STAKES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
# Sums that are equal on paper may differ in the last bits; a tie counts against the candidate.
_TIE = 1e-9


def flip_tallies(differences: Sequence[float], rules: GateRules) -> Iterator[Tally]:
    """Yield the tally at each look that so many differences in [-1, 1] reach.

    The error allowed up to a look buys a number of flip paths: those with the largest sums are
    marked as crossed there, and the candidate crosses if its own sum would be among them.
    """
    import numpy as np

    d = np.asarray(differences, dtype=np.float64)
    bets = e_values(differences)
    sums, alive, before = np.zeros(PATHS), np.ones(PATHS, dtype=bool), 0
    for n in (n for n in rules.looks if n <= len(differences)):
        sums += _flipped(d[before:n], rules.seed, before)
        before = n
        total, size = float(d[:n].sum()), float(np.abs(d[:n]).sum())
        flips = Flips(
            total=total,
            alive=int(alive.sum()),
            reaching=int((alive & (sums >= total - _TIE * size)).sum()),
            quota=math.floor(rules.error_allowed(n) * (PATHS + 1)) - int((~alive).sum()),
            e_value=bets[n - 1],
        )
        noise = math.sqrt(float((d[:n] ** 2).sum()))
        yield Tally(
            wins=int((d[:n] > 0).sum()),
            losses=int((d[:n] < 0).sum()),
            boundary=None,
            flips=flips,
            z=total / noise if noise else 0.0,
        )
        _cross(alive, sums, flips.quota)


def _cross(alive: NDArray[np.bool_], sums: NDArray[np.float64], quota: int) -> None:
    """Mark the `quota` largest of the paths that are alive as crossed."""
    if quota > 0:
        places = alive.nonzero()[0]
        quota = min(quota, places.size)
        largest = places[(-sums[places]).argpartition(quota - 1)[:quota]]
        alive[largest] = False


def _flipped(differences: NDArray[np.float64], seed: int, start: int) -> NDArray[np.float64]:
    """Return for each path the sum of the differences between two looks under random signs.

    Eight pairs at a time: a random byte says which of the eight keep their sign, and a table holds
    the sum for each of the 256 bytes.
    """
    import numpy as np

    octets = -(-differences.size // 8)
    padded = np.zeros(8 * octets)
    padded[: differences.size] = differences
    keeps = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    tables = (2.0 * keeps - 1) @ padded.reshape(octets, 8).T
    drawn = _octets(seed, start, octets)
    sums = np.zeros(PATHS)
    for i in range(octets):
        sums += tables[drawn[i], i]
    return sums


@lru_cache(maxsize=16)
def _octets(seed: int, start: int, octets: int) -> NDArray[np.uint8]:
    """Return a random byte for each eight pairs and each path."""
    import numpy as np

    rng = np.random.default_rng((seed, start))
    return rng.integers(0, 256, size=(octets, PATHS), dtype=np.uint8)


def e_values(differences: Sequence[float]) -> list[float]:
    """Return after each pair the largest wealth so far of a bet that the mean is above zero.

    The bet starts with 1, spread evenly over stakes. If the mean is zero or below, the chance that
    it ever reaches 10 is at most a tenth, whatever the shape of the differences.
    """
    wealth, best, out = [1.0] * len(STAKES), 1.0, list[float]()
    for d in differences:
        wealth = [w * (1 + stake * d) for w, stake in zip(wealth, STAKES, strict=True)]
        best = max(best, math.fsum(wealth) / len(STAKES))
        out.append(best)
    return out
