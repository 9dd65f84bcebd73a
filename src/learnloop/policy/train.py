"""Gradients of packed rollouts: one forward and backward pass a pack, logits only where sampled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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
    p, width = pack.shared, max(len(r.ids) for r in pack.rows) - pack.shared
    ids, positions, pad = list(pack.rows[0].ids[:p]), list(range(p)), list[int]()
    predict, targets, old, advantage, heat = list[int](), list[int](), list[float](), list[float](), list[float]()
    for number, row in enumerate(pack.rows):
        start = len(ids) - p
        for i in range(p, len(row.ids)):
            if row.sampled[i]:
                predict.append(p + start + i - p - 1)
                targets.append(row.ids[i])
                old.append(row.logprobs[i])
                advantage.append(row.advantage)
                heat.append(row.temperature)
        ids += row.ids[p:]
        positions += range(p, len(row.ids))
        pad += range(number * width, number * width + len(row.ids) - p)
    f = lambda x: torch.tensor(x, device=device)  # noqa: E731
    return Layout(
        ids=f(ids), positions=f(positions), pad=f(pad), rows=len(pack.rows), width=width, predict=f(predict),
        targets=f(targets), old=f(old), advantage=f(advantage), temperature=f(heat),
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
    logits = (final_norm(weights, x[layout.predict]) @ weights.head.T).float()
    scaled = logits / torch.where(layout.temperature > 0, layout.temperature, 1.0)[:, None]
    return scaled.gather(1, layout.targets[:, None])[:, 0] - scaled.logsumexp(-1)


def _mask(width: int, shared: int, like: Tensor) -> Tensor:
    """Return [T, P+T]: own tokens see the whole prefix and their own past; padding sits in the future."""
    own = torch.ones(width, width, dtype=torch.bool, device=like.device).tril()
    return torch.cat((torch.ones(width, shared, dtype=torch.bool, device=like.device), own), dim=1)


def _attend(q: Tensor, kv: tuple[Tensor, Tensor], layout: Layout, mask: Tensor) -> Tensor:
    n, heads, dim = q.shape
    shared, groups = n - len(layout.pad), heads // kv[0].shape[1]
    outs: list[Tensor] = []
    if shared:
        own = [t[:shared].transpose(0, 1)[None] for t in (q, *kv)]
        outs.append(_sdpa(own, groups, None)[0].transpose(0, 1))
    grid = [_spread(t[shared:], layout) for t in (q, *kv)]
    if shared:
        prefix = [t[:shared].transpose(0, 1)[None].expand(layout.rows, -1, -1, -1) for t in kv]
        grid[1:] = [torch.cat((p, g), dim=2) for p, g in zip(prefix, grid[1:], strict=True)]
    padded = _sdpa(grid, groups, mask).transpose(1, 2).reshape(-1, heads, dim)
    outs.append(padded[layout.pad])
    return torch.cat(outs).reshape(n, heads * dim)


def _spread(own: Tensor, layout: Layout) -> Tensor:
    """Place packed tokens [N-P, heads, D] into a padded grid [B, heads, T, D]."""
    empty = own.new_zeros(layout.rows * layout.width, *own.shape[1:])
    grid = empty.index_copy(0, layout.pad, own)
    return grid.view(layout.rows, layout.width, *own.shape[1:]).transpose(1, 2)


def _sdpa(qkv: Sequence[Tensor], groups: int, mask: Tensor | None) -> Tensor:
    q, k, v = qkv
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
