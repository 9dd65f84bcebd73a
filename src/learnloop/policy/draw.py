"""Drawing a token from logits, with a random stream that depends on conversation and position only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_BLOCK = 256


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> Tensor:
    """Return one number in (0, 1), both ends excluded, a row: the SplitMix64 hash of seed and position.

    Algorithm: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
    """
    with np.errstate(over="ignore"):
        z = np.asarray([s & (2**64 - 1) for s in seeds], dtype=np.uint64)
        z = z + (np.asarray(positions, dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    # 52 bits and a half: with 53 the largest number would round to 1.
    return torch.from_numpy((z >> np.uint64(12)).astype(np.float64) * 2.0**-52 + 2.0**-53)


def draw(logits: Tensor, temperatures: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one token a row of `logits` [B, V] by inverting the cumulative distribution at `u` [B].

    Rows of temperature 0 take the most likely token. Returns token ids [B] and their natural-log
    probabilities [B] at the row's temperature (at 1 for greedy rows). The inversion works in two
    levels, blocks of 256 and then within one, so that no cumulative sum over V is needed.

    Raises:
        ValueError: a row of logits is not finite, as after a diverged update.
    """
    greedy = temperatures <= 0
    scaled = logits.float() / torch.where(greedy, 1.0, temperatures)[:, None]
    logp_norm = scaled.logsumexp(dim=-1)
    if not bool(logp_norm.isfinite().all()):
        raise ValueError("the model's logits are not finite")
    probs = (scaled - logp_norm[:, None]).exp()
    token = _invert(probs, u.to(probs.device))
    if bool(greedy.any()):
        token = torch.where(greedy, logits.argmax(-1), token)
    return token, scaled.gather(1, token[:, None])[:, 0] - logp_norm


def _invert(probs: Tensor, u: Tensor) -> Tensor:
    """Return the first token of each row whose cumulative probability exceeds `u`; never one of 0."""
    padded = torch.nn.functional.pad(probs, (0, -probs.shape[1] % _BLOCK))
    blocks = padded.view(len(probs), -1, _BLOCK)
    edges = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    goal = u[:, None] * edges[:, -1:]
    block = _first_above(edges, goal)
    before = torch.where(block > 0, edges.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block[..., None].expand(-1, 1, _BLOCK))[:, 0].double().cumsum(-1)
    return (block * _BLOCK + _first_above(inside, goal - before))[:, 0]


def _first_above(cumulative: Tensor, goal: Tensor) -> Tensor:
    """Return where each row first exceeds its goal, or where it reaches its end if rounding hides it."""
    found = torch.searchsorted(cumulative, goal, right=True)
    last = (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(found, last)
