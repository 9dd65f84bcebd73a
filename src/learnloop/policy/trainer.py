"""One update from graded rollouts: accumulate gradients over packs, clip, step, publish weights."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from learnloop.policy.adapter import Adapter
from learnloop.policy.losses import dr_grpo, supervised
from learnloop.policy.network import rope_table
from learnloop.policy.pack import pack
from learnloop.policy.train import TokenLoss, lay_out, new_logprobs
from learnloop.policy.transcript import Transcript
from learnloop.policy.weights import Weights

LOSSES: dict[str, TokenLoss] = {"dr_grpo": dr_grpo.token_loss, "supervised": supervised.token_loss}


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """What an update does; names as in `[train.rft]`."""

    method: Literal["full", "lora"] = "full"
    learning_rate: float = 3e-5
    lora_rank: int = 16
    lora_alpha: float = 32.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    max_grad_norm: float = 1.0
    micro_batch_tokens: int = 4096
    max_context: int = 2048
    seed: int = 0


class Trainer:
    """Holds fp32 master weights (or an adapter), Adam's state, and the compute copy in use."""

    def __init__(self, master: Weights, dtype: torch.dtype, settings: TrainerSettings) -> None:
        self.settings, self.master, self.dtype = settings, master, dtype
        device = str(master["embed"].device)
        self.rope = rope_table(master.shape, settings.max_context + 1, device)
        self.adapter: Adapter | None = None
        if settings.method == "lora":
            self.adapter = Adapter(master, rank=settings.lora_rank, alpha=settings.lora_alpha, seed=settings.seed)
        self.version = 0
        self.skipped = 0
        self.parameters = self.adapter.parameters() if self.adapter else dict(master.tensors)
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        self.current = self._publish(master.cast(dtype, device))

    def update(self, rows: Sequence[Transcript], algorithm: str, learning_rate: float | None = None) -> dict[str, float]:
        """Make one Adam step on all rows and return its metrics.

        The loss is the sum over sampled tokens divided by the number of sampled tokens of the whole
        update, whatever the packs. A non-finite loss or gradient leaves the weights untouched and is
        counted in `skipped`. Raises ValueError when no row has a sampled token.
        """
        rows = [r for r in rows if r.trainable]
        if not rows:
            raise ValueError("no row has a trainable token")
        began = time.monotonic()
        count = sum(r.trainable for r in rows)
        grads, sums = self._gradients(rows, LOSSES[algorithm], count)
        norm = self._apply(grads, learning_rate or self.settings.learning_rate)
        packed = sum(p.tokens for p in pack(rows, self.settings.micro_batch_tokens))
        return {k: v / count for k, v in sums.items()} | {
            "grad_norm": norm,
            "tokens_trained": float(count),
            "tokens_packed": float(packed),
            "tokens_unpacked": float(sum(len(r.ids) for r in rows)),
            "skipped": float(self.skipped),
            "version": float(self.version),
            "seconds": time.monotonic() - began,
        }

    def _gradients(self, rows: Sequence[Transcript], loss: TokenLoss, count: int) -> tuple[Weights, dict[str, float]]:
        total = Weights(self.master.shape, {n: torch.zeros_like(t) for n, t in self.master.tensors.items()})
        sums = dict.fromkeys(("loss", "clip_fraction", "approx_kl", "abs_logprob_gap"), 0.0)
        s = self.settings
        leaves = self.current.tensors
        for t in leaves.values():
            t.requires_grad_(True)
        for one in pack(rows, s.micro_batch_tokens):
            layout = lay_out(one, str(self.rope[0].device))
            new = new_logprobs(self.current, layout, self.rope)
            each, clipped = loss(new, layout.old, layout.advantage, clip_low=s.clip_low, clip_high=s.clip_high)
            (each.sum() / count).backward()
            for name, leaf in leaves.items():
                if leaf.grad is not None:
                    total.tensors[name] += leaf.grad.float()
                    leaf.grad = None
            gap = (new - layout.old).detach()
            sums["loss"] += float(each.detach().sum())
            sums["clip_fraction"] += float(clipped.sum())
            sums["approx_kl"] += float((gap.exp() - 1 - gap).sum())
            sums["abs_logprob_gap"] += float(gap.abs().sum())
        for t in leaves.values():
            t.requires_grad_(False)
        return total, sums

    def _apply(self, full: Weights, learning_rate: float) -> float:
        grads = self.adapter.gradients(full) if self.adapter else full.tensors
        norm = float(torch.stack([g.norm() for g in grads.values()]).norm())
        if not torch.isfinite(torch.tensor(norm)):
            self.skipped += 1
            return norm
        scale = min(1.0, self.settings.max_grad_norm / (norm + 1e-6))
        for name, parameter in self.parameters.items():
            parameter.grad = grads[name].mul_(scale)
        self.optimizer.param_groups[0]["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.version += 1
        self._publish(self.current)
        return norm

    @torch.no_grad()
    def _publish(self, target: Weights) -> Weights:
        """Bring the compute copy up to date with master weights or adapter."""
        if self.adapter:
            self.adapter.merge_into(target)
        else:
            for name, tensor in target.tensors.items():
                tensor.copy_(self.master[name])
        return target

    def save_state(self, path: Path, extra: Mapping[str, Any]) -> None:
        """Write everything that resuming needs into one file that appears whole or not at all."""
        state = {
            "parameters": self.parameters,
            "optimizer": self.optimizer.state_dict(),
            "version": self.version,
            "skipped": self.skipped,
            "extra": dict(extra),
        }
        staging = path.with_suffix(".partial")
        torch.save(state, staging)
        os.replace(staging, path)

    @torch.no_grad()
    def load_state(self, path: Path) -> dict[str, Any]:
        """Read a file of `save_state` and return its `extra` part."""
        state = torch.load(path, map_location=self.rope[0].device, weights_only=True)
        for name, tensor in state["parameters"].items():
            self.parameters[name].copy_(tensor)
        self.optimizer.load_state_dict(state["optimizer"])
        self.version, self.skipped = int(state["version"]), int(state["skipped"])
        self._publish(self.current)
        return dict(state["extra"])

    @torch.no_grad()
    def reset_optimizer(self) -> None:
        """Forget Adam's moments, as a new stage starts."""
        self.optimizer.state.clear()
