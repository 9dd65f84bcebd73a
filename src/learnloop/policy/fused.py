"""Pieces of the decoder with hand-written gradients: the same values, far fewer tensors kept.

Autograd keeps every intermediate result for the backward pass. These functions keep their input
and what cannot be had again cheaply; norms compute in fp32 inside, whatever their precision.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

ROWS = 128
"""Rows of logits that are in fp32 at the same time."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last dimension of `x` by its root mean square (arXiv 1910.07467)."""
    return RmsNorm.apply(x, weight, eps)


def norm_linear(x: Tensor, norm: Tensor, matrix: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Return the linear layer [N, O] of normalised `x` [N, H]; `matrix` is [O, H]."""
    return NormLinear.apply(x, norm, matrix, bias, eps)


def feed_forward(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float) -> Tensor:
    """Return the gated feed-forward layer [N, H] of normalised `x` [N, H] (arXiv 2002.05202).

    `gate_up` is [2I, H], `down` [H, I].
    """
    return FeedForward.apply(x, norm, gate_up, down, eps)


def token_logprob(hidden: Tensor, head: Tensor, targets: Tensor, heat: Tensor) -> Tensor:
    """Return natural-log probabilities [M] of `targets` [M] after `hidden` [M, H].

    `head` is [V, H], `heat` [M] the temperature of each token. Its backward pass runs once.
    """
    return TokenLogprob.apply(hidden, head, targets, heat)


def _normalise(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return normalised `x` and the factor of each row."""
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight).to(x.dtype), scale


def _normalise_again(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Return normalised `x` from the factor of each row that `_normalise` found."""
    return (x.float() * scale * weight).to(x.dtype)


def _unnormalise(grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients of `x` and of the weight from that of the normalised `x`."""
    wide, unit = grad.float(), x.float() * scale
    grad_weight = (wide * unit).reshape(-1, x.shape[-1]).sum(0).to(weight.dtype)
    inner = wide * weight
    along = (inner * unit).mean(-1, keepdim=True)
    return inner.sub_(unit.mul_(along)).mul_(scale).to(x.dtype), grad_weight


class RmsNorm(Function):
    """Root-mean-square normalisation; keeps its input and one number a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out, scale = _normalise(x, weight, eps)
        ctx.save_for_backward(x, weight, scale)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        return (*_unnormalise(grads[0], x, weight, scale), None)


class NormLinear(Function):
    """Norm and linear layer; the normalised input is computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm: Tensor, matrix: Tensor, bias: Tensor | None, eps: float
    ) -> Tensor:
        normed, scale = _normalise(x, norm, eps)
        ctx.save_for_backward(x, norm, matrix, scale)
        ctx.biased = bias is not None
        return F.linear(normed, matrix, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, norm, matrix, scale = ctx.saved_tensors
        normed = _normalise_again(x, norm, scale)
        grad_x, grad_norm = _unnormalise(grads[0] @ matrix, x, norm, scale)
        grad_bias = grads[0].sum(0) if ctx.biased else None
        return grad_x, grad_norm, grads[0].T @ normed, grad_bias, None


class FeedForward(Function):
    """Norm, gated activation and both linear layers; keeps its input and one number a row.

    What lies between is more than half of what a layer would keep, and one product brings it back.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float
    ) -> Tensor:
        normed, scale = _normalise(x, norm, eps)
        ctx.save_for_backward(x, norm, gate_up, down, scale)
        gate, up = F.linear(normed, gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, down)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        x, norm, gate_up, down, scale = ctx.saved_tensors
        normed = _normalise_again(x, norm, scale)
        inner = F.linear(normed, gate_up)
        gate, up = inner.chunk(2, dim=-1)
        active, grad = F.silu(gate), grads[0] @ down
        to_inner = torch.empty_like(inner)
        to_gate, to_up = to_inner.chunk(2, dim=-1)
        torch.mul(grad, active, out=to_up)
        to_gate.copy_(torch.ops.aten.silu_backward(grad.mul_(up), gate))
        grad_down = grads[0].T @ active.mul_(up)
        grad_x, grad_norm = _unnormalise(to_inner @ gate_up, x, norm, scale)
        return grad_x, grad_norm, to_inner.T @ normed, grad_down, None


class TokenLogprob(Function):
    """Log-probabilities of given tokens; keeps probabilities in the precision of the weights."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, heat: Tensor) -> Tensor:
        probs = hidden @ head.T
        out = torch.empty(len(targets), device=hidden.device)
        for start in range(0, len(targets), ROWS):
            rows = slice(start, start + ROWS)
            scaled = probs[rows].float().div_(heat[rows, None])
            norm = scaled.logsumexp(-1)
            out[rows] = scaled.gather(1, targets[rows, None])[:, 0] - norm
            probs[rows] = scaled.sub_(norm[:, None]).exp_()
        ctx.save_for_backward(hidden, head, targets, heat, probs, out)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, Tensor, None, None]:
        hidden, head, targets, heat, probs, out = ctx.saved_tensors
        share = grads[0] / heat
        slope = probs.mul_(-share[:, None].to(probs.dtype))
        # 1 - p of a likely token would be lost in bf16: take it from the log-probability.
        own = -share * torch.expm1(out)
        slope.scatter_(1, targets[:, None], own[:, None].to(probs.dtype))
        return slope @ head, slope.T @ hidden, None, None
