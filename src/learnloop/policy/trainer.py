"""One update from graded rollouts: accumulate gradients over packs, clip, step, publish weights."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from learnloop.errors import ConfigError
from learnloop.policy.adapter import Adapter
from learnloop.policy.losses import dr_grpo, supervised
from learnloop.policy.network import rope_table
from learnloop.policy.pack import Pack, balance, pack_evenly
from learnloop.policy.train import TokenLoss, lay_out, new_logprobs
from learnloop.policy.transcript import Transcript
from learnloop.policy.weights import Weights

LOSSES: dict[str, TokenLoss] = {"dr_grpo": dr_grpo.token_loss, "supervised": supervised.token_loss}

WORKERS = 2
"""Threads that compute gradients of different packs at the same time on a processor."""


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
    """Holds fp32 master weights (or an adapter), optimizer state, and the compute copy in use.

    `version` counts updates, `skipped` those that were thrown away for a non-finite gradient.
    """

    def __init__(self, master: Weights, dtype: torch.dtype, settings: TrainerSettings) -> None:
        self.settings, self.master, self.dtype = settings, master, dtype
        self.device = str(master["embed"].device)
        self.rope = rope_table(master.shape, settings.max_context + 1, self.device)
        self.adapter: Adapter | None = None
        if settings.method == "lora":
            self.adapter = Adapter(
                master, rank=settings.lora_rank, alpha=settings.lora_alpha, seed=settings.seed
            )
        self.version = 0
        self.skipped = 0
        self.parameters = self.adapter.parameters() if self.adapter else dict(master.tensors)
        parameters = list(self.parameters.values())
        self.adam = torch.optim.AdamW(
            parameters,
            lr=settings.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.0,
            fused=True,
        )
        self.current = self._publish(master.cast(dtype, self.device))

    def update(
        self, rows: Sequence[Transcript], algorithm: str, learning_rate: float | None = None
    ) -> dict[str, float]:
        """Make one optimizer step on all rows and return its metrics.

        The loss is the sum over sampled tokens divided by the number of sampled tokens of the whole
        update, whatever the packs. A non-finite loss or gradient leaves the weights untouched and is
        counted in `skipped`. Metrics are means over sampled tokens unless their name says otherwise.

        Raises:
            ValueError: no row has a sampled token.
        """
        began = time.monotonic()
        rows = [r for r in rows if r.trainable]
        if not rows:
            raise ValueError("no row has a trainable token")
        self._reach(max(len(r.ids) for r in rows))
        count = sum(r.trainable for r in rows)
        packs = pack_evenly(rows, self.settings.micro_batch_tokens, self._workers)
        full, sums = self.gradients(packs, LOSSES[algorithm], count)
        means = {k: v / count for k, v in sums.items()}
        rate = self.settings.learning_rate if learning_rate is None else learning_rate
        for group in self.adam.param_groups:
            group["lr"] = rate
        norm = self._apply(full, usable=math.isfinite(means["loss"]))
        return means | {
            "grad_norm": norm,
            "tokens_trained": float(count),
            "tokens_packed": float(sum(p.tokens for p in packs)),
            "tokens_unpacked": float(sum(len(r.ids) for r in rows)),
            "skipped": float(self.skipped),
            "version": float(self.version),
            "seconds": time.monotonic() - began,
        }

    def _reach(self, tokens: int) -> None:
        """Make sure that positions are known for rows of so many tokens (demonstrations may be long)."""
        if tokens > len(self.rope[0]):
            self.rope = rope_table(self.master.shape, tokens, self.device)

    @property
    def _workers(self) -> int:
        return WORKERS if self.device == "cpu" and torch.get_num_threads() >= WORKERS else 1

    def gradients(
        self, packs: Sequence[Pack], loss: TokenLoss, count: int
    ) -> tuple[Weights, dict[str, float]]:
        """Return fp32 gradients of the loss by the compute copy, and sums over sampled tokens.

        On processors two threads with half of the cores each share the packs: many pieces of a pass
        are too small to keep all cores busy. Each thread has gradients of its own in memory.
        """
        threads = torch.get_num_threads()
        shares = [share for share in balance(packs, self._workers) if share]

        def work(share: Sequence[Pack]) -> tuple[Weights, dict[str, float]]:
            torch.set_num_threads(max(1, threads // len(shares)))
            return self._share_gradients(share, loss, count)

        try:
            with ThreadPoolExecutor(len(shares)) as pool:
                parts = list(pool.map(work, shares))
        finally:
            torch.set_num_threads(threads)
        total, sums = parts[0]
        for more, values in parts[1:]:
            for name, tensor in total.tensors.items():
                tensor.add_(more[name])
            sums = {name: sums[name] + values[name] for name in sums}
        return total, sums

    def _share_gradients(
        self, packs: Sequence[Pack], loss: TokenLoss, count: int
    ) -> tuple[Weights, dict[str, float]]:
        shape = self.master.shape
        total = {n: torch.zeros_like(t) for n, t in self.master.tensors.items()}
        leaves = {n: t.detach().requires_grad_(True) for n, t in self.current.tensors.items()}
        for name, leaf in leaves.items():
            leaf.register_post_accumulate_grad_hook(partial(_move_gradient, total[name]))
        sums: dict[str, float] = defaultdict(float)
        for one in packs:
            for name, value in self._backward(one, Weights(shape, leaves), loss, count).items():
                sums[name] += value
        return Weights(shape, total), sums

    def _backward(
        self, one: Pack, leaves: Weights, loss: TokenLoss, count: int
    ) -> dict[str, float]:
        """Add the gradients of one pack to its leaves; return sums over its sampled tokens."""
        layout = lay_out(one, self.device)
        new = new_logprobs(leaves, layout, self.rope)
        low, high = self.settings.clip_low, self.settings.clip_high
        each, clipped = loss(new, layout.old, layout.advantage, clip_low=low, clip_high=high)
        (each.sum() / count).backward()
        gap = (new - layout.old).detach()
        return {
            "loss": float(each.detach().sum()),
            "clip_fraction": float(clipped.sum()),
            "approx_kl": float((gap.exp() - 1 - gap).sum()),
            "abs_logprob_gap": float(gap.abs().sum()),
        }

    def _apply(self, full: Weights, *, usable: bool) -> float:
        """Clip gradients, take one step, publish the weights; return the norm before clipping."""
        grads = self.adapter.gradients(full) if self.adapter else full.tensors
        norm = float(torch.stack([g.norm() for g in grads.values()]).norm())
        if not (usable and math.isfinite(norm)):
            self.skipped += 1
            return norm
        scale = min(1.0, self.settings.max_grad_norm / (norm + 1e-6))
        for name, parameter in self.parameters.items():
            parameter.grad = grads[name].mul_(scale)
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
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
            "method": self.settings.method,
            "parameters": self.parameters,
            "optimizer": self.adam.state_dict(),
            "version": self.version,
            "skipped": self.skipped,
            "extra": dict(extra),
        }
        staging = path.with_suffix(".partial")
        try:
            # Into a file of Python's: torch's own writer does not say that the disk is full.
            with staging.open("wb") as file:
                torch.save(state, file)
            staging.replace(path)
        finally:
            staging.unlink(missing_ok=True)

    @torch.no_grad()
    def load_state(self, path: Path) -> dict[str, Any]:
        """Read a file of `save_state` and return its `extra` part.

        Raises:
            ConfigError: the state was saved by another method or for another model.
        """
        state = torch.load(path, map_location=self.device, weights_only=True)
        saved: dict[str, Tensor] = state["parameters"]
        ours = {n: t.shape for n, t in self.parameters.items()}
        if {n: t.shape for n, t in saved.items()} != ours:
            raise ConfigError(
                f"the saved state is of another model or method (`{state['method']}`)",
                where=str(path),
                fix="Resume with the settings that the run was started with.",
            )
        for name, tensor in saved.items():
            self.parameters[name].copy_(tensor)
        self.adam.load_state_dict(state["optimizer"])
        self.version, self.skipped = int(state["version"]), int(state["skipped"])
        self._publish(self.current)
        return dict(state["extra"])

    @torch.no_grad()
    def reset_optimizer(self) -> None:
        """Forget Adam's moments, as a new stage starts."""
        self.adam.state.clear()


def _move_gradient(total: Tensor, leaf: Tensor) -> None:
    """Add a leaf's gradient to its fp32 total as soon as it is there, and free it."""
    assert leaf.grad is not None
    total.add_(leaf.grad)
    leaf.grad = None
