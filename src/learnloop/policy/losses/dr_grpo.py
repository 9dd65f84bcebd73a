"""Dr. GRPO: clipped ratio loss on centred rewards, summed over tokens (arXiv 2503.20783).

With the upper clip above the lower one ("clip-higher") and a dual clip for negative advantages as
in DAPO (arXiv 2503.14476) and arXiv 1912.09729.
"""

from __future__ import annotations

import torch
from torch import Tensor

DUAL_CLIP = 3.0


def token_loss(
    new_N: Tensor, old_N: Tensor, advantage_N: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Return the loss of each of N sampled tokens and whether its ratio was clipped, both [N].

    `new_N` and `old_N` are natural-log probabilities; gradients flow through `new_N` only.
    """
    ratio = (new_N - old_N).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain = torch.minimum(ratio * advantage_N, clipped * advantage_N)
    gain = torch.where(advantage_N < 0, torch.maximum(gain, DUAL_CLIP * advantage_N), gain)
    outside = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
    return -gain, outside
