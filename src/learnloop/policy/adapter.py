"""A low-rank adapter as a way to parameterise weight matrices (LoRA, arXiv 2106.09685).

The model always runs on merged weights W + scale * B A; gradients of A and B follow from the
gradient of W by the chain rule, so sampling and training need no second code path.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from learnloop.policy.weights import Weights

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapter:
    """Factors A [r, in] and B [out, r] for every linear layer of the decoder, in fp32."""

    def __init__(self, base: Weights, *, rank: int, alpha: float, seed: int) -> None:
        self.base, self.scale = base, alpha / rank
        generator = torch.Generator().manual_seed(seed)
        self.down: dict[str, Tensor] = {}
        self.up: dict[str, Tensor] = {}
        for name, w in base.views():
            if name.split(".")[-2] in MATRICES and name.endswith(".weight"):
                bound = 1 / math.sqrt(w.shape[1])
                a = (torch.rand(rank, w.shape[1], generator=generator) * 2 - 1) * bound
                self.down[name] = a.to(w.device)
                self.up[name] = torch.zeros(w.shape[0], rank, device=w.device)

    def parameters(self) -> dict[str, Tensor]:
        """Return all factors by name."""
        return {f"{n}.A": t for n, t in self.down.items()} | {
            f"{n}.B": t for n, t in self.up.items()
        }

    @torch.no_grad()
    def merge_into(self, target: Weights) -> None:
        """Write base plus adapter into `target`."""
        for (name, out), (_, w) in zip(target.views(), self.base.views(), strict=True):
            if name in self.down:
                out.copy_(w + self.scale * (self.up[name] @ self.down[name]))

    @torch.no_grad()
    def gradients(self, full: Weights) -> dict[str, Tensor]:
        """Turn gradients of the merged weights into gradients of the factors."""
        grads: dict[str, Tensor] = {}
        for name, g in full.views():
            if name in self.down:
                grads[f"{name}.A"] = self.scale * (self.up[name].T @ g)
                grads[f"{name}.B"] = self.scale * (g @ self.down[name].T)
        return grads
