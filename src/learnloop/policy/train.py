"""Gradients of packed rollouts: one forward and backward pass a pack, logits only where sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from learnloop.policy.attention import packed_attention
from learnloop.policy.fused import token_logprob
from learnloop.policy.network import final_norm, finish_layer, project
from learnloop.policy.pack import Pack
from learnloop.policy.weights import Weights

TokenLoss = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each token of a pack stands: shared tokens first, then the rows' own, without padding.

    `shared` counts the shared tokens, `own` those of each row. `positions` [N]; `predict` [M] names
    the packed token from which the m-th sampled token `targets` [M] is predicted.
    """

    ids: Tensor
    positions: Tensor
    shared: int
    own: tuple[int, ...]
    predict: Tensor
    targets: Tensor
    old: Tensor
    advantage: Tensor
    temperature: Tensor


def lay_out(pack: Pack, device: str) -> Layout:
    """Lay a pack out as tensors."""
    shared = pack.shared
    ids, positions = list(pack.rows[0].ids[:shared]), list(range(shared))
    predict, targets = list[int](), list[int]()
    values: list[tuple[float, float, float]] = []
    for row in pack.rows:
        before = len(ids) - shared  # own tokens of earlier rows
        chosen = [i for i, s in enumerate(row.sampled) if s]
        predict += [before + i - 1 for i in chosen]
        targets += [row.ids[i] for i in chosen]
        values += [(row.logprobs[i], row.advantage, row.temperature) for i in chosen]
        ids += row.ids[shared:]
        positions += range(shared, len(row.ids))
    old, advantage, temperature = torch.tensor(values, device=device).unbind(-1)
    return Layout(
        ids=torch.tensor(ids, device=device),
        positions=torch.tensor(positions, device=device),
        shared=shared,
        own=tuple(len(r.ids) - shared for r in pack.rows),
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
    for layer in range(weights.shape.layers):
        q, k, v = project(weights, layer, x, cos, sin)
        attended = packed_attention(q, k, v, layout.shared, layout.own).flatten(1)
        x = finish_layer(weights, layer, x, attended)
    heat = torch.where(layout.temperature > 0, layout.temperature, 1.0)
    hidden = final_norm(weights, x[layout.predict])
    return token_logprob(hidden, weights.head, layout.targets, heat)
