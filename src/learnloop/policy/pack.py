"""Packing rollouts for training: what several share is computed once, the rest side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learnloop.policy.transcript import Transcript


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Transcripts that start with the same `shared` tokens, none of which was sampled."""

    shared: int
    rows: tuple[Transcript, ...]

    @property
    def tokens(self) -> int:
        """Return how many tokens a pass computes."""
        return self.shared + sum(len(r.ids) - self.shared for r in self.rows)


def pack(rows: Sequence[Transcript], max_tokens: int) -> list[Pack]:
    """Split rows into packs of at most `max_tokens` computed tokens (a longer row stands alone).

    Rows are sorted by their tokens, so that rollouts of one group meet; every row keeps at least
    one token of its own before its first sampled token, from which that token is predicted.
    """
    packs: list[Pack] = []
    open_rows: list[Transcript] = []
    for row in sorted(rows, key=lambda r: r.ids):
        trial = _make([*open_rows, row])
        if open_rows and (trial.tokens > max_tokens or _splits_prompt(open_rows, trial.shared)):
            packs.append(_make(open_rows))
            open_rows = [row]
        else:
            open_rows.append(row)
    return [*packs, _make(open_rows)] if open_rows else packs


def _make(rows: Sequence[Transcript]) -> Pack:
    limit = min(r.sampled.index(True) - 1 for r in rows)
    first, last = rows[0].ids, rows[-1].ids
    shared = next((i for i in range(limit) if first[i] != last[i]), limit)
    return Pack(shared=max(shared, 0), rows=tuple(rows))


def _splits_prompt(rows: Sequence[Transcript], shared: int) -> bool:
    """Say whether taking another row would make a group of several compute its own prompt again."""
    own = _make(rows).shared - shared
    return len(rows) > 1 and own * (len(rows) - 1) > shared
