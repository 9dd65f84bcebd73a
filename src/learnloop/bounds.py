"""The exact boundary of the gate: how many wins adopt a candidate at each look."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence


def bounds(discordant: Sequence[int], allowed: Sequence[int], scale: int) -> list[int]:
    """Return the wins needed at each look, in whole numbers throughout.

    Given the number of discordant pairs, a candidate that is no better wins each with chance at
    most one half. Walk over all paths of wins: at each look the paths with most wins are cut off
    as adopted, as many as the error allowed so far pays for; what is left walks on.

    Args:
        discordant: discordant pairs at each look, cumulative.
        allowed: error allowed up to each look, as `allowed[k] / scale`.
        scale: the common denominator.

    Returns:
        For each look the least number of wins that adopts; above `discordant[k]` means never.
    """
    return list(boundaries(discordant, allowed, scale))


def boundaries(discordant: Iterable[int], allowed: Iterable[int], scale: int) -> Iterator[int]:
    """Yield what `bounds` returns, one look at a time."""
    alive = [1]  # alive[w]: paths with w wins that have not crossed; 2^d paths in all
    crossed, before = 0, 0
    for total, budget in zip(discordant, allowed, strict=True):
        fresh = total - before
        alive, crossed, before = _walk(alive, fresh), crossed << fresh, total
        least = len(alive)
        while least and (crossed + alive[least - 1]) * scale <= budget << total:
            least -= 1
            crossed += alive[least]
        yield least
        alive = alive[:least] or [0]


def _walk(paths: Sequence[int], steps: int) -> list[int]:
    """Return path counts by wins after `steps` more discordant pairs."""
    ways, after = [math.comb(steps, j) for j in range(steps + 1)], [0] * (len(paths) + steps)
    for wins, count in enumerate(paths):
        for more, way in enumerate(ways):
            after[wins + more] += count * way
    return after
