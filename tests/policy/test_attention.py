"""Packed attention against torch's own, row by row: values and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from learnloop.policy.attention import BLOCK, packed_attention

HEADS, KV_HEADS, DIM = 6, 2, 8


def reference(q: Tensor, k: Tensor, v: Tensor, shared: int, own: Sequence[int]) -> Tensor:
    """Attend with one call a row, over a mask that is written out."""

    def attend(queries: slice, keys: Tensor) -> Tensor:
        size, seen = queries.stop - queries.start, len(keys)
        mask = torch.ones(size, seen, dtype=torch.bool).tril(seen - size)
        parts = [
            q[queries],
            k[keys].repeat_interleave(HEADS // KV_HEADS, 1),
            v[keys].repeat_interleave(HEADS // KV_HEADS, 1),
        ]
        by_head = [p.transpose(0, 1) for p in parts]
        return F.scaled_dot_product_attention(*by_head, attn_mask=mask).transpose(0, 1)

    start, outs = shared, [attend(slice(0, shared), torch.arange(shared))] if shared else []
    for length in own:
        keys = torch.cat((torch.arange(shared), torch.arange(start, start + length)))
        outs.append(attend(slice(start, start + length), keys))
        start += length
    return torch.cat(outs)


@pytest.mark.parametrize(
    ("shared", "own"),
    [
        (0, [5]),
        (0, [BLOCK, 3]),
        (7, [1, 12, 4]),
        (BLOCK + 1, [2 * BLOCK + 17, BLOCK, BLOCK - 1]),
    ],
)
def test_values_and_gradients_equal_those_of_attention_row_by_row(
    shared: int, own: list[int]
) -> None:
    generator = torch.Generator().manual_seed(len(own))
    count = shared + sum(own)
    ours, theirs = (
        [
            torch.randn(count, heads, DIM, generator=g, dtype=torch.float64, requires_grad=True)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        ]
        for g in (generator, torch.Generator().manual_seed(len(own)))
    )
    slope = torch.randn(count, HEADS, DIM, generator=generator, dtype=torch.float64)
    found = packed_attention(ours[0], ours[1], ours[2], shared, own)
    expected = reference(theirs[0], theirs[1], theirs[2], shared, own)
    assert torch.allclose(found, expected, atol=1e-12)
    found.backward(slope)
    expected.backward(slope)
    for one, other in zip(ours, theirs, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        # Gradients of keys and values are added up in fp32.
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=1e-5)
