"""Gradients of packed rollouts: one forward and backward pass a pack, logits only where sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from learnloop.policy.fused import token_logprob
from learnloop.policy.network import final_norm, finish_layer, project
from learnloop.policy.pack import Pack
from learnloop.policy.weights import Weights

TokenLoss = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each token of a pack stands: shared tokens first, then the rows' own, without padding.

    `positions` [N]; `pad` [N-P] maps own tokens into a padded [B, T] grid; `predict` [M] names the
    packed token from which the m-th sampled token `targets` [M] is predicted.
    """

    ids: Tensor
    positions: Tensor
    pad: Tensor
    rows: int
    width: int
    predict: Tensor
    targets: Tensor
    old: Tensor
    advantage: Tensor
    temperature: Tensor


def lay_out(pack: Pack, device: str) -> Layout:
    """Lay a pack out as tensors."""
    shared, width = pack.shared, max(len(r.ids) for r in pack.rows) - pack.shared
    ids, positions, pad = list(pack.rows[0].ids[:shared]), list(range(shared)), list[int]()
    predict, targets = list[int](), list[int]()
    values: list[tuple[float, float, float]] = []
    for number, row in enumerate(pack.rows):
        before = len(ids) - shared  # own tokens of earlier rows
        chosen = [i for i, s in enumerate(row.sampled) if s]
        predict += [before + i - 1 for i in chosen]
        targets += [row.ids[i] for i in chosen]
        values += [(row.logprobs[i], row.advantage, row.temperature) for i in chosen]
        ids += row.ids[shared:]
        positions += range(shared, len(row.ids))
        pad += range(number * width, number * width + len(row.ids) - shared)
    old, advantage, temperature = torch.tensor(values, device=device).unbind(-1)
    return Layout(
        ids=torch.tensor(ids, device=device),
        positions=torch.tensor(positions, device=device),
        pad=torch.tensor(pad, device=device),
        rows=len(pack.rows),
        width=width,
        predict=torch.tensor(predict, device=device),
        targets=torch.tensor(targets, device=device),
        old=old,
        advantage=advantage,
        temperature=temperature,
    )


def new_logprobs(weights: Weights, layout: Layout, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Return natural-log probabilities [M] of the sampled tokens at their sampling temperature."""
    x = F.embedding(layout.ids, weights["embed"])
    cos, sin = rope[0][layout.positions], rope[1][layout.positions]
    shared = len(layout.ids) - len(layout.pad)
    mask = _mask(layout.width, shared, x)
    for layer in range(weights.shape.layers):
        q, k, v = project(weights, layer, x, cos, sin)
        x = finish_layer(weights, layer, x, _attend(q, (k, v), layout, mask))
    heat = torch.where(layout.temperature > 0, layout.temperature, 1.0)
    hidden = final_norm(weights, x[layout.predict])
    return token_logprob(hidden, weights.head, layout.targets, heat)


def _mask(width: int, shared: int, like: Tensor) -> Tensor:
    """Return [T, P+T]: own tokens see the whole prefix and their own past; padding is in the future."""
    own = torch.ones(width, width, dtype=torch.bool, device=like.device).tril()
    past = torch.ones(width, shared, dtype=torch.bool, device=like.device)
    return torch.cat((past, own), dim=1)


def _attend(q: Tensor, kv: tuple[Tensor, Tensor], layout: Layout, mask: Tensor) -> Tensor:
    """Attend within the shared tokens, then from each row over shared and own ones; [N, Q*D]."""
    n, heads, dim = q.shape
    shared = n - len(layout.pad)
    outs: list[Tensor] = []
    if shared:
        own = [t[None, :shared] for t in (q, *kv)]
        outs.append(_sdpa(own[0], own[1:], _mask(shared, 0, q))[0])
    grid = [_spread(t[shared:], layout) for t in (q, *kv)]
    if shared:
        prefix = [t[None, :shared].expand(layout.rows, -1, -1, -1) for t in kv]
        grid[1:] = [torch.cat((p, g), dim=1) for p, g in zip(prefix, grid[1:], strict=True)]
    padded = _sdpa(grid[0], grid[1:], mask).reshape(-1, heads * dim)
    return torch.cat([*outs, padded[layout.pad]])


def _spread(own: Tensor, layout: Layout) -> Tensor:
    """Place packed tokens [N-P, heads, D] into a padded grid [B, T, heads, D]."""
    empty = own.new_zeros(layout.rows * layout.width, *own.shape[1:])
    grid = empty.index_copy(0, layout.pad, own)
    return grid.view(layout.rows, layout.width, *own.shape[1:])


def _sdpa(q: Tensor, kv: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return [B, T, Q*D] of queries [B, T, Q, D] over keys and values [B, S, K, D] under [T, S].

    The G query heads of one key head become G times as many query rows: no key is copied.
    """
    rows, width, heads, dim = q.shape
    kv_heads = kv[0].shape[2]
    groups = heads // kv_heads
    q = q.view(rows, width, kv_heads, groups, dim).permute(0, 2, 3, 1, 4)
    k, v = (t.transpose(1, 2) for t in kv)
    out = F.scaled_dot_product_attention(
        q.reshape(rows, kv_heads, groups * width, dim), k, v, attn_mask=mask.repeat(groups, 1)
    )
    out = out.view(rows, kv_heads, groups, width, dim).permute(0, 3, 1, 2, 4)
    return out.reshape(rows, width, heads * dim)
