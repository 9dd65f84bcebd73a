"""Forward passes without gradients over cached keys and values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from learnloop.policy.attention import future_bias
from learnloop.policy.kv import Prefix, SlotCache
from learnloop.policy.network import final_norm, finish_layer, project
from learnloop.policy.weights import Weights

CLOSE = 1.6
"""Slots count as close together when the slice that holds them is at most this much longer."""
BLOCK = 256
"""Fed tokens of one conversation whose attention is computed together."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """New tokens of one conversation, whose cache at `slot` holds `offset` own tokens already."""

    tokens: Sequence[int]
    slot: int
    offset: int


@torch.inference_mode()
def compute_prefix(
    weights: Weights, tokens: tuple[int, ...], rope: tuple[Tensor, Tensor]
) -> Prefix:
    """Run the tokens of a shared prefix once and keep their keys and values."""
    prefix = Prefix(tokens)
    ids = torch.tensor(tokens, device=rope[0].device)
    x = weights["embed"][ids]
    cos, sin = rope[0][: len(tokens)], rope[1][: len(tokens)]
    groups = weights.shape.heads // weights.shape.kv_heads
    for layer in range(weights.shape.layers):
        q, k, v = project(weights, layer, x, cos, sin)
        prefix.keys.append(k.permute(1, 2, 0).contiguous())
        prefix.values.append(v.transpose(0, 1).contiguous())
        out = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            k.transpose(0, 1).repeat_interleave(groups, 0)[None],
            v.transpose(0, 1).repeat_interleave(groups, 0)[None],
            is_causal=True,
        )
        x = finish_layer(weights, layer, x, out[0].transpose(0, 1).reshape(len(tokens), -1))
    return prefix


@torch.inference_mode()
def forward(
    weights: Weights,
    cache: SlotCache,
    prefix: Prefix,
    feeds: Sequence[Feed],
    rope: tuple[Tensor, Tensor],
) -> Tensor:
    """Compute feeds side by side, write keys and values in place; [B, H] hidden states of last tokens."""
    device = rope[0].device
    sizes = [len(f.tokens) for f in feeds]
    tokens = torch.tensor([t for f in feeds for t in f.tokens], device=device)
    own = [range(f.offset, f.offset + n) for f, n in zip(feeds, sizes, strict=True)]
    at = torch.tensor([i for places in own for i in places], device=device)
    slots = torch.tensor(
        [f.slot for f, n in zip(feeds, sizes, strict=True) for _ in range(n)], device=device
    )
    cos, sin = (t[len(prefix) + at] for t in rope)
    x = weights["embed"][tokens]
    attend: Callable[..., Tensor]
    if max(sizes) == 1:
        where = _Rows(slots, _span(feeds, cache))
        hidden = torch.arange(where.span, device=device) > at[:, None]
        attend = partial(_attend_one, where=where, hidden=hidden[:, None, None])
    else:
        attend = partial(_attend_blocks, blocks=_blocks(feeds), future=future_bias(BLOCK, x))
    for layer in range(weights.shape.layers):
        q, k, v = project(weights, layer, x, cos, sin)
        cache.keys[layer][slots, :, :, at] = k
        cache.values[layer][slots, :, at] = v
        x = finish_layer(weights, layer, x, attend(q, cache, layer, prefix))
    last = torch.tensor(sizes, device=device).cumsum(0) - 1
    return final_norm(weights, x[last])


def _span(feeds: Sequence[Feed], cache: SlotCache) -> int:
    """Return how many own tokens to look at for one new token each: the most that any row has."""
    longest = max(f.offset for f in feeds) + 1
    return min(-(-longest // 32) * 32, cache.capacity)


@dataclass(frozen=True, kw_only=True)
class _Block:
    """Fed tokens `start` to `start + size` of a pass, which see `past` own tokens and themselves."""

    start: int
    size: int
    slot: int
    past: int


def _blocks(feeds: Sequence[Feed]) -> list[_Block]:
    out: list[_Block] = []
    start = 0
    for feed in feeds:
        for first in range(0, len(feed.tokens), BLOCK):
            size = min(BLOCK, len(feed.tokens) - first)
            past = feed.offset + first
            out.append(_Block(start=start + first, size=size, slot=feed.slot, past=past))
        start += len(feed.tokens)
    return out


def _attend_blocks(
    q: Tensor,
    cache: SlotCache,
    layer: int,
    prefix: Prefix,
    *,
    blocks: Sequence[_Block],
    future: Tensor,
) -> Tensor:
    """Attend from queries [N, Q, D], block by block over what each sees; returns [N, Q*D].

    The prefix is one matrix product for all. The G heads of a key head are rows: [K, N*G, D].
    """
    count, heads, dim = q.shape
    kv_heads = cache.shape.kv_heads
    groups = heads // kv_heads
    rows_q = (q * dim**-0.5).view(count, kv_heads, groups, dim).transpose(0, 1)
    rows_q = rows_q.reshape(kv_heads, count * groups, dim)
    shared = rows_q @ prefix.keys[layer] if len(prefix) else None
    out = torch.empty_like(rows_q)
    for b in blocks:
        rows = slice(b.start * groups, (b.start + b.size) * groups)
        seen = b.past + b.size
        scores = rows_q[:, rows] @ cache.keys[layer][b.slot, :, :, :seen]
        ahead = scores.view(kv_heads, b.size, groups, seen)[..., b.past :]
        ahead.add_(future[: b.size, None, : b.size])
        if shared is not None:
            scores = torch.cat((shared[:, rows], scores), dim=-1)
        weight = scores.softmax(dim=-1)
        part = weight[..., len(prefix) :] @ cache.values[layer][b.slot, :, :seen]
        if shared is not None:
            part += weight[..., : len(prefix)] @ prefix.values[layer]
        out[:, rows] = part
    return out.view(kv_heads, count, groups, dim).transpose(0, 1).reshape(count, heads * dim)


class _Rows:
    """How to read some slots' caches: as one slice where they lie close together, else by gathering.

    A slice may hold slots that are not asked for: `spread` puts the rows of a tensor at their places
    in it, `take` brings them back. That is cheaper than copying keys and values for every token.
    """

    def __init__(self, slots: Tensor, span: int) -> None:
        self.slots, self.span = slots, span
        first, last = int(slots.min()), int(slots.max()) + 1
        self.size = last - first
        self.close = self.size <= CLOSE * len(slots)
        self.place = slots - first
        self.range = slice(first, last)

    def spread(self, x: Tensor) -> Tensor:
        """Return `x` [B, ...] with its rows at their places in the slice."""
        if not self.close:
            return x
        out = x.new_zeros(self.size, *x.shape[1:])
        return out.index_copy_(0, self.place, x)

    def take(self, x: Tensor) -> Tensor:
        """Return the asked-for rows of what was computed over the slice."""
        return x[self.place] if self.close else x

    def keys(self, stored: Tensor) -> Tensor:
        """Return keys [rows, K, D, span] of the slice, or of the slots themselves."""
        seen = stored[..., : self.span]
        return seen[self.range] if self.close else seen[self.slots]

    def values(self, stored: Tensor) -> Tensor:
        """Return values [rows, K, span, D] in the same way."""
        seen = stored[:, :, : self.span]
        return seen[self.range] if self.close else seen[self.slots]


def _attend_one(
    q: Tensor, cache: SlotCache, layer: int, prefix: Prefix, *, where: _Rows, hidden: Tensor
) -> Tensor:
    """Attend with one query a row: one softmax, the G heads of a group as query rows.

    Returns [B, Q*D] for queries [B, Q, D]; `hidden` is [B, 1, 1, S]. The prefix is one matrix
    product for all rows. The fused kernel is several times slower here.
    """
    rows, heads, dim = q.shape
    kv_heads = cache.shape.kv_heads
    q = (q * dim**-0.5).view(rows, kv_heads, -1, dim)
    scores = where.take(where.spread(q) @ where.keys(cache.keys[layer]))
    scores = scores.masked_fill(hidden, -torch.inf)
    if len(prefix):
        shared_q = q.transpose(0, 1).reshape(kv_heads, -1, dim)
        shared = (shared_q @ prefix.keys[layer]).view(kv_heads, rows, -1, len(prefix))
        scores = torch.cat((shared.transpose(0, 1), scores), dim=-1)
    # bf16 in and out, fp32 inside: six times faster than asking for fp32 and casting back.
    weight = scores.softmax(dim=-1)
    own = where.spread(weight[..., len(prefix) :].contiguous())
    out = where.take(own @ where.values(cache.values[layer]))
    if len(prefix):
        shared_w = weight[..., : len(prefix)].transpose(0, 1).reshape(kv_heads, -1, len(prefix))
        shared_out = (shared_w @ prefix.values[layer]).view(kv_heads, rows, -1, dim)
        out = out + shared_out.transpose(0, 1)
    return out.reshape(rows, heads * dim)
