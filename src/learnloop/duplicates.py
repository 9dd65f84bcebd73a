"""Near-duplicates: questions of different splits that are almost the same text.

Each question becomes its set of three-word runs; runs that many questions share are the template
and do not count. MinHash finds the pairs worth comparing, so that not all are compared with all,
and what it finds is then compared exactly.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from learnloop.splits import question_text
from learnloop.task import Split, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_SIMILARITY = 0.8
RUN = 3
FEWEST_RUNS = 4
"""A question with fewer runs of its own is too short to be called a near-duplicate."""
TEMPLATE_SHARE = 0.1
_BANDS, _ROWS = 16, 4
_KEPT = 8
"""Questions kept of one split and band to compare others with: a template may fill a band."""
_DECIDING = ("confirm", "test")


@dataclass(frozen=True, kw_only=True)
class NearDuplicate:
    """Two tasks of different splits whose questions share a large part of their own words."""

    task_ids: tuple[str, str]
    splits: tuple[Split, Split]
    similarity: float

    @property
    def decides(self) -> bool:
        """Return whether what is learned from meets what decides."""
        return len({split in _DECIDING for split in self.splits}) == 2

    @property
    def words(self) -> str:
        """Return it as it is printed."""
        (a, b), (first, second) = self.task_ids, self.splits
        return f"{a} ({first}) and {b} ({second}) are {self.similarity:.0%} alike"


def near_duplicates(tasks: Sequence[Task]) -> list[NearDuplicate]:
    """Return pairs across splits that are almost the same, those that spoil a verdict first.

    Equal questions are not among them: `splits.find_leaks` tells of those.
    """
    runs = _own_runs(tasks)
    split_of: dict[str, Split] = {task.id: task.split for task in tasks}
    found = [
        NearDuplicate(task_ids=(a, b), splits=(split_of[a], split_of[b]), similarity=similarity)
        for a, b in _candidates(runs, split_of)
        if LEAST_SIMILARITY <= (similarity := _jaccard(runs[a], runs[b])) < 1
    ]
    return sorted(found, key=lambda x: (not x.decides, -x.similarity, x.task_ids))


def _own_runs(tasks: Sequence[Task]) -> dict[str, frozenset[str]]:
    """Return the three-word runs of each question that are not part of a template."""
    runs = {task.id: _runs(question_text(task)) for task in tasks}
    seen = Counter(run for some in runs.values() for run in some)
    most = max(2, TEMPLATE_SHARE * len(tasks))
    own = {name: frozenset(r for r in some if seen[r] <= most) for name, some in runs.items()}
    return {name: some for name, some in own.items() if len(some) >= FEWEST_RUNS}


def _runs(text: str) -> set[str]:
    words = text.split()
    return {" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)


def _candidates(
    runs: Mapping[str, frozenset[str]], split_of: Mapping[str, Split]
) -> Iterator[tuple[str, str]]:
    """Yield each pair across splits that agrees in a band of its MinHash, once."""
    bands = defaultdict[tuple[int, bytes], dict[Split, list[str]]](dict)
    told = set[tuple[str, str]]()
    for name in sorted(runs):
        ours = split_of[name]
        for band in _bands(runs[name]):
            there = bands[band]
            for other in (x for split, names in there.items() if split != ours for x in names):
                pair = (other, name)
                if pair not in told:
                    told.add(pair)
                    yield pair
            mine = there.setdefault(ours, [])
            if len(mine) < _KEPT:
                mine.append(name)


def _bands(runs: frozenset[str]) -> Iterator[tuple[int, bytes]]:
    """Yield the MinHash of a set in bands; two sets alike by 80 % share one nearly always."""
    # Imported here: numpy costs a tenth of a second that most commands need not pay.
    import numpy as np

    digests = [hashlib.blake2b(run.encode("utf-8", "surrogatepass"), digest_size=8) for run in runs]
    hashes = np.array([int.from_bytes(d.digest(), "big") for d in digests], dtype=np.uint64)
    factors, offsets = _turns()
    # Odd factors turn 64-bit numbers around without loss; overflow is meant.
    mixed = hashes[None, :] * factors + offsets
    least = (mixed ^ (mixed >> np.uint64(29))).min(axis=1).reshape(_BANDS, _ROWS)
    for i in range(_BANDS):
        yield i, least[i].tobytes()


@lru_cache(maxsize=1)
def _turns() -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return a factor and an offset for each of the hash functions."""
    import numpy as np

    drawn = np.random.default_rng(0).integers(0, 2**63, (2, _BANDS * _ROWS, 1), dtype=np.uint64)
    return drawn[0] * np.uint64(2) + np.uint64(1), drawn[1]
