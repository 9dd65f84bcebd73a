"""Attention over a pack, with a hand-written gradient.

A block of queries at a time sees the shared tokens and its own row's past: nothing is padded, no
masked half is computed, and a block's scores stay in the cache. The backward pass keeps queries,
keys and values only and computes the weights again (as FlashAttention does, arXiv 2205.14135).

Shapes: queries [N, Q, D], keys and values [N, K, D] over the N packed tokens, shared ones first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

BLOCK = 192
"""Queries that are computed together."""


def packed_attention(q: Tensor, k: Tensor, v: Tensor, shared: int, own: Sequence[int]) -> Tensor:
    """Return [N, Q, D]: `shared` causal tokens, then rows of `own` tokens, each behind the shared."""
    # A view of the whole projection would keep all of it until the backward pass.
    return PackedAttention.apply(q * q.shape[-1] ** -0.5, k, v.contiguous(), shared, tuple(own))


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One row: packed tokens `start` to `start + length`, which see `prefix` tokens before them."""

    start: int
    length: int
    prefix: int

    @property
    def place(self) -> slice:
        return slice(self.start, self.start + self.length)

    def seen(self, t: Tensor) -> Tensor:
        """Return what the row sees of keys or values [K, N, D]: [K, prefix + length, D]."""
        own = t[:, self.place]
        return torch.cat((t[:, : self.prefix], own), dim=1) if self.prefix else own

    def add(self, total: Tensor, part: Tensor) -> None:
        """Add `part` [K, prefix + some own tokens, D] to `total` [K, N, D] where it belongs."""
        own = part.shape[1] - self.prefix
        total[:, : self.prefix] += part[:, : self.prefix]
        total[:, self.start : self.start + own] += part[:, self.prefix :]

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Yield the packed tokens of each block of queries, and how many keys its last one sees."""
        for first in range(0, self.length, BLOCK):
            end = min(first + BLOCK, self.length)
            yield slice(self.start + first, self.start + end), self.prefix + end


def _rows(shared: int, own: Sequence[int]) -> list[_Row]:
    rows = [_Row(start=0, length=shared, prefix=0)] if shared else []
    start = shared
    for length in own:
        rows.append(_Row(start=start, length=length, prefix=shared))
        start += length
    return rows


class PackedAttention(Function):
    """Differentiable attention on scaled queries; see `packed_attention`."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, shared: int, own: tuple[int, ...]
    ) -> Tensor:
        ctx.save_for_backward(q, k, v)
        ctx.rows = _rows(shared, own)
        out = torch.empty_like(q)
        keys_by_head, values_by_head = k.transpose(0, 1), v.transpose(0, 1)
        future = future_bias(BLOCK, q)
        for row in ctx.rows:
            keys, values = row.seen(keys_by_head), row.seen(values_by_head)
            for block, seen in row.blocks():
                queries = _fold(q[block], len(keys))
                weight = _weights(queries, keys[:, :seen], future[: len(q[block])])
                out[block] = _unfold(weight @ values[:, :seen], q[block])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        keys_by_head, values_by_head = k.transpose(0, 1), v.transpose(0, 1)
        grad_q = torch.empty_like(q)
        # In fp32 and over all packed tokens: every row adds to what the shared ones get.
        grad_k = torch.zeros(keys_by_head.shape, dtype=torch.float32, device=k.device)
        grad_v = torch.zeros_like(grad_k)
        future = future_bias(BLOCK, q)
        for row in ctx.rows:
            keys, values = row.seen(keys_by_head), row.seen(values_by_head)
            for block, seen in row.blocks():
                queries, grad = _fold(q[block], len(keys)), _fold(grads[0][block], len(keys))
                weight = _weights(queries, keys[:, :seen], future[: len(q[block])])
                slope = torch.ops.aten._softmax_backward_data(
                    grad @ values[:, :seen].transpose(1, 2), weight, -1, weight.dtype
                )
                grad_q[block] = _unfold(slope @ keys[:, :seen], q[block])
                row.add(grad_k, slope.transpose(1, 2) @ queries)
                row.add(grad_v, weight.transpose(1, 2) @ grad)
        back = [g.transpose(0, 1).to(k.dtype) for g in (grad_k, grad_v)]
        return grad_q, back[0], back[1], None, None


def future_bias(size: int, like: Tensor) -> Tensor:
    """Return what is added to the scores among `size` tokens: minus infinity for those ahead."""
    full = torch.full((size, size), -torch.inf, dtype=like.dtype, device=like.device)
    return full.triu_(1)


def _fold(x: Tensor, kv_heads: int) -> Tensor:
    """Turn [T, Q, D] into [K, G*T, D]: the G query heads of a key head become rows."""
    tokens, heads, dim = x.shape
    x = x.view(tokens, kv_heads, heads // kv_heads, dim).permute(1, 2, 0, 3)
    return x.reshape(kv_heads, -1, dim)


def _unfold(x: Tensor, like: Tensor) -> Tensor:
    """Turn [K, G*T, D] back into [T, Q, D]."""
    kv_heads, _, dim = x.shape
    return x.view(kv_heads, -1, len(like), dim).permute(2, 0, 1, 3).reshape(like.shape)


def _weights(queries: Tensor, keys: Tensor, future: Tensor) -> Tensor:
    """Return weights [K, G*T, S] of keys [K, S, D]; the last T are the queries' own tokens.

    `future` holds T rows of `future_bias`.
    """
    scores = queries @ keys.transpose(1, 2)
    tokens = len(future)
    scores.view(len(keys), -1, tokens, keys.shape[1])[..., -tokens:].add_(future[:, :tokens])
    return scores.softmax(-1)
