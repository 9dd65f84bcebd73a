"""Boundaries of z values for a test that looks several times, spending its error as it goes.

For statistics that are normal with independent increments. The error spent up to a look is
alpha (n / n_max)^2, as in the exact sign test.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POINTS = 801
_FAR = 8.0
"""Beyond so many deviations no path is followed."""


@lru_cache(maxsize=64)
def z_boundaries(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """Return the z value to reach at each look, by walking the density of paths not yet crossed."""
    import numpy as np

    places, mass = np.zeros(1), np.ones(1)
    before, spent, out = 0.0, 0.0, list[float]()
    for n in looks:
        now = n / looks[-1]
        step, allowed = math.sqrt(now - before), alpha * now * now
        edge = _edge(places, mass, step, allowed - spent)
        out.append(edge / math.sqrt(now))
        after = np.linspace(-_FAR * math.sqrt(now), edge, _POINTS)
        spacing = float(after[1] - after[0])
        density = np.exp(-0.5 * ((after[:, None] - places) / step) ** 2) @ mass
        places, mass = after, density * (spacing / (step * math.sqrt(2 * math.pi)))
        mass[[0, -1]] /= 2
        before, spent = now, allowed
    return tuple(out)


def _edge(
    places: NDArray[np.float64], mass: NDArray[np.float64], step: float, tail: float
) -> float:
    """Return the place beyond which a share `tail` of the paths lies after a step."""
    # Imported here: scipy costs a tenth of a second that most commands need not pay.
    from scipy.special import ndtr  # pyright: ignore[reportMissingTypeStubs]

    low, high = -_FAR, _FAR
    for _ in range(60):
        middle = (low + high) / 2
        beyond = float(mass @ ndtr((places - middle) / step))
        low, high = (middle, high) if beyond > tail else (low, middle)
    return high
