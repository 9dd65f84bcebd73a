"""Forward passes without gradients over cached keys and values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from learnloop.policy.kv import Prefix, SlotCache
from learnloop.policy.network import final_norm, finish_layer, project
from learnloop.policy.weights import Weights

CLOSE = 1.6
"""Slots count as close together when the slice that holds them is at most this much longer."""
WIDE = 16
"""New tokens a row from which the fused attention kernel pays."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """New tokens of some conversations: row b holds `lengths[b]` of T columns, the rest is padding.

    `slots` [B] says where each row's cache is, `offsets` [B] how many own tokens it holds already.
    """

    tokens: Tensor
    lengths: Tensor
    slots: Tensor
    offsets: Tensor

    def rows(self, at: Tensor) -> Chunk:
        """Return some rows of the chunk."""
        return Chunk(
            tokens=self.tokens[at],
            lengths=self.lengths[at],
            slots=self.slots[at],
            offsets=self.offsets[at],
        )


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
def forward_chunk(
    weights: Weights, cache: SlotCache, prefix: Prefix, chunk: Chunk, rope: tuple[Tensor, Tensor]
) -> Tensor:
    """Feed a chunk, write its keys and values in place, return hidden states [B, H] of last tokens."""
    rows, width = chunk.tokens.shape
    own = chunk.offsets[:, None] + torch.arange(width, device=chunk.tokens.device)
    cos, sin = (t[(len(prefix) + own).clamp(max=len(t) - 1).flatten()] for t in rope)
    span = int(own.max()) + 1
    span = min(-(-span // 32) * 32, cache.capacity)
    keys_at = torch.arange(span, device=own.device)
    hidden = keys_at[None, None, :] > own[:, :, None]
    x = weights["embed"][chunk.tokens.flatten()]
    if width >= WIDE:
        attend = _attend_wide
        groups = weights.shape.heads // weights.shape.kv_heads
        ahead = torch.nn.functional.pad(hidden[:, None].repeat(1, 1, groups, 1), (len(prefix), 0))
        mask = torch.zeros(ahead.shape, dtype=x.dtype, device=x.device)
        mask.masked_fill_(ahead, -torch.inf)
    else:
        attend, mask = _attend_narrow, hidden[:, None, None]
    where = _Rows(chunk.slots, span)
    for layer in range(weights.shape.layers):
        q, k, v = project(weights, layer, x, cos, sin)
        _write(cache, layer, chunk.slots, own, (k, v))
        out = attend(q.reshape(rows, width, *q.shape[1:]), cache, layer, prefix, where, mask)
        x = finish_layer(weights, layer, x, out)
    last = torch.arange(rows, device=own.device) * width + chunk.lengths - 1
    return final_norm(weights, x[last])


def _write(
    cache: SlotCache, layer: int, slots: Tensor, own: Tensor, kv: tuple[Tensor, Tensor]
) -> None:
    k, v = (t.reshape(*own.shape, *t.shape[1:]) for t in kv)
    cache.keys[layer][slots[:, None], :, :, own] = k
    cache.values[layer][slots[:, None], :, own] = v


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


def _attend_wide(
    q: Tensor, cache: SlotCache, layer: int, prefix: Prefix, where: _Rows, seen: Tensor
) -> Tensor:
    """Attend with many queries a row: the fused kernel, on gathered keys and values.

    Returns [B*T, Q*D] for queries [B, T, Q, D]; `seen` is [B, 1, G*T, P+S], zero or minus infinity.
    The G query heads of a key head become G times as many query rows: no key is copied for them.
    """
    rows, width, heads, dim = q.shape
    keys = cache.keys[layer][..., : where.span][where.slots].transpose(2, 3)
    values = cache.values[layer][:, :, : where.span][where.slots]
    if len(prefix):
        shared = prefix.keys[layer].transpose(1, 2).expand(rows, -1, -1, -1)
        keys = torch.cat((shared, keys), dim=2)
        values = torch.cat((prefix.values[layer].expand(rows, -1, -1, -1), values), dim=2)
    kv_heads = keys.shape[1]
    grouped = q.view(rows, width, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
    out = torch.nn.functional.scaled_dot_product_attention(
        grouped.reshape(rows, kv_heads, -1, dim), keys, values, attn_mask=seen
    )
    out = out.view(rows, kv_heads, -1, width, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(rows * width, heads * dim)


def _attend_narrow(
    q: Tensor, cache: SlotCache, layer: int, prefix: Prefix, where: _Rows, hidden: Tensor
) -> Tensor:
    """Attend with few queries a row: one softmax, the G heads of a group as query rows.

    Returns [B*T, Q*D] for queries [B, T, Q, D]; `hidden` is [B, 1, 1, T, S]. The prefix is one
    matrix product for all rows. The fused kernel is several times slower here.
    """
    rows, width, heads, dim = q.shape
    kv_heads = cache.shape.kv_heads
    groups = heads // kv_heads
    q = (q * dim**-0.5).reshape(rows, width, kv_heads, groups, dim).permute(0, 2, 3, 1, 4)
    own_q = where.spread(q.reshape(rows, kv_heads, groups * width, dim))
    scores = where.take(own_q @ where.keys(cache.keys[layer]))
    scores = scores.view(rows, kv_heads, groups, width, where.span).masked_fill(hidden, -torch.inf)
    if len(prefix):
        shared_q = q.transpose(0, 1).reshape(kv_heads, rows * groups * width, dim)
        shared = (shared_q @ prefix.keys[layer]).view(kv_heads, rows, groups, width, -1)
        scores = torch.cat((shared.transpose(0, 1), scores), dim=-1)
    # bf16 in and out, fp32 inside: six times faster than asking for fp32 and casting back.
    weight = scores.softmax(dim=-1)
    own_w = weight[..., len(prefix) :].reshape(rows, kv_heads, groups * width, where.span)
    out = where.take(where.spread(own_w) @ where.values(cache.values[layer]))
    out = out.view(rows, kv_heads, groups, width, dim)
    if len(prefix):
        shared_w = weight[..., : len(prefix)].transpose(0, 1).reshape(kv_heads, -1, len(prefix))
        shared_out = (shared_w @ prefix.values[layer]).view(kv_heads, rows, groups, width, dim)
        out = out + shared_out.transpose(0, 1)
    return out.permute(0, 3, 1, 2, 4).reshape(rows * width, heads * dim)
