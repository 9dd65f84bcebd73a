"""The decoder as functions over weights: pieces that sampling and training share.

Layout letters: N packed tokens, B rows, T tokens a row, P prefix tokens, S cached tokens,
H hidden, Q query heads, K key-value heads, G = Q/K, D head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from learnloop.policy.fused import feed_forward, norm_linear, rms_norm
from learnloop.policy.shape import Shape
from learnloop.policy.weights import Weights


def rope_table(shape: Shape, length: int, device: str) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each [length, D] in fp32 (rotary embedding, arXiv 2104.09864)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device)
    inverse = 1.0 / (shape.rope_theta ** (half / shape.head_dim))
    angle = torch.outer(torch.arange(length, dtype=torch.float32, device=device), inverse)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `x` [N, heads, D] by the rows of `cos` and `sin` [N, D]."""
    a, b = x.chunk(2, dim=-1)
    return x * cos[:, None].to(x.dtype) + torch.cat((-b, a), dim=-1) * sin[:, None].to(x.dtype)


def project(
    weights: Weights, layer: int, x: Tensor, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries [N, Q, D], keys and values [N, K, D] of hidden states `x` [N, H]."""
    s = weights.shape
    norm, bias = weights[f"{layer}.in_norm"], weights.get(f"{layer}.qkv_bias")
    qkv = norm_linear(x, norm, weights[f"{layer}.qkv"], bias, s.eps)
    q, k, v = qkv.split((s.q_rows, s.kv_rows, s.kv_rows), dim=-1)
    q, k = q.reshape(-1, s.heads, s.head_dim), k.reshape(-1, s.kv_heads, s.head_dim)
    q_norm = weights.get(f"{layer}.q_norm")
    if q_norm is not None:
        q = rms_norm(q, q_norm, s.eps)
        k = rms_norm(k, weights[f"{layer}.k_norm"], s.eps)
    return rotate(q, cos, sin), rotate(k, cos, sin), v.reshape(-1, s.kv_heads, s.head_dim)


def finish_layer(weights: Weights, layer: int, x: Tensor, attended: Tensor) -> Tensor:
    """Add attention output [N, Q*D] and the feed-forward part to `x` [N, H]."""
    s = weights.shape
    x = x + F.linear(attended, weights[f"{layer}.o"])
    norm, gate_up = weights[f"{layer}.post_norm"], weights[f"{layer}.gate_up"]
    return x + feed_forward(x, norm, gate_up, weights[f"{layer}.down"], s.eps)


def final_norm(weights: Weights, x: Tensor) -> Tensor:
    """Normalise the last layer's output [N, H]."""
    return rms_norm(x, weights["norm"], weights.shape.eps)
