"""Packing rollouts for training: what several share is computed once, the rest side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.policy.transcript import Transcript

PASS_COST = 64
"""What a pass costs beside its tokens, in tokens: adding up gradients of all weights."""


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Transcripts that start with the same `shared` tokens, none of which was sampled.

    Every row keeps at least one token of its own before its first sampled token, from which that
    token is predicted.
    """

    shared: int
    rows: tuple[Transcript, ...]

    @property
    def tokens(self) -> int:
        """Return how many tokens a pass computes."""
        return self.shared + sum(len(r.ids) - self.shared for r in self.rows)


def pack(rows: Sequence[Transcript], max_tokens: int) -> list[Pack]:
    """Split rows into packs of at most `max_tokens` computed tokens (a longer row stands alone).

    Rows are sorted by their tokens, so that those of one group are neighbours; among all ways to
    cut the sorted rows into packs the cheapest is taken. Every row has a sampled token.
    """
    ordered = sorted(rows, key=lambda r: r.ids)
    costs, best = [0.0], list[tuple[int, int]]()
    for end in range(1, len(ordered) + 1):
        ways = _last_packs(ordered[:end], max_tokens)
        cost, start, shared = min((costs[s] + tokens + PASS_COST, s, p) for s, p, tokens in ways)
        costs.append(cost)
        best.append((start, shared))
    packs: list[Pack] = []
    end = len(ordered)
    while end:
        start, shared = best[end - 1]
        packs.append(Pack(shared=shared, rows=tuple(ordered[start:end])))
        end = start
    return packs[::-1]


def pack_evenly(rows: Sequence[Transcript], max_tokens: int, shares: int) -> list[Pack]:
    """Pack rows for so many workers: into smaller packs where that makes the largest share smaller."""
    whole = pack(rows, max_tokens)
    if shares == 1 or not whole:
        return whole
    total = sum(p.tokens for p in whole)
    limits = [min(max_tokens, whole[0].shared - (-total // (shares * n))) for n in (1, 2)]
    ways = [whole, *(pack(rows, limit) for limit in limits)]
    return min(ways, key=lambda way: max(map(_cost, balance(way, shares))))


def _cost(share: Sequence[Pack]) -> int:
    return sum(p.tokens + PASS_COST for p in share)


def balance(packs: Sequence[Pack], shares: int) -> list[list[Pack]]:
    """Deal packs out so that the shares hold about the same tokens: largest first, to the smallest."""
    out: list[list[Pack]] = [[] for _ in range(shares)]
    for one in sorted(packs, key=lambda p: -p.tokens):
        min(out, key=lambda share: sum(p.tokens for p in share)).append(one)
    return out


def _last_packs(rows: Sequence[Transcript], max_tokens: int) -> list[tuple[int, int, int]]:
    """Return each pack that could end with the last row: its first row, shared tokens, all tokens."""
    ways: list[tuple[int, int, int]] = []
    after = rows[-1]
    shared, length = len(after.ids), 0
    for start in range(len(rows) - 1, -1, -1):
        row = rows[start]
        shared = min(shared, row.sampled.index(True) - 1, _common(row.ids, after.ids))
        length, count, after = length + len(row.ids), len(rows) - start, row
        tokens = length - (count - 1) * shared
        if ways and tokens > max_tokens:
            break
        ways.append((start, shared, tokens))
    return ways


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two rows start with in common."""
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
