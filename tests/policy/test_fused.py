"""Hand-written gradients against autograd's own on the plain formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from learnloop.policy.fused import ROWS, feed_forward, norm_linear, rms_norm, token_logprob

EPS = 1e-5
DTYPES = [torch.float32, torch.bfloat16]


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).requires_grad_()


def gradients(
    make: Callable[..., Tensor], inputs: Sequence[Tensor]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    out = make(*inputs)
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    return out.detach(), torch.autograd.grad(out, list(inputs), weight)


def same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    """Return whether all gradients agree to the rounding of their precision."""
    tolerance = 2e-5 if ours[0].dtype == torch.float32 else 2e-2
    return all(
        float((a.double() - b.double()).norm() / b.double().norm()) < tolerance
        for a, b in zip(ours, theirs, strict=True)
    )


def plain_norm(x: Tensor, norm: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), norm, EPS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7, 24), (5, 3, 16)])
def test_a_norm_is_that_of_torch_to_the_bit_and_so_are_its_gradients_to_rounding(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    inputs = [noise(*shape, dtype=dtype), noise(shape[-1], seed=1, dtype=dtype)]
    out, ours = gradients(lambda x, w: rms_norm(x, w, EPS), inputs)
    expected, theirs = gradients(plain_norm, inputs)
    assert torch.equal(out, expected)
    assert same(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [True, False])
def test_norm_and_linear_layer_equal_the_two_in_turn(dtype: torch.dtype, biased: bool) -> None:  # noqa: FBT001
    inputs = [
        noise(9, 16, dtype=dtype),
        noise(16, seed=1, dtype=dtype),
        noise(20, 16, seed=2, dtype=dtype),
    ]
    inputs += [noise(20, seed=3, dtype=dtype)] if biased else []

    def ours_of(x: Tensor, norm: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        return norm_linear(x, norm, matrix, bias, EPS)

    def plain(x: Tensor, norm: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(plain_norm(x, norm), matrix, bias)

    out, ours = gradients(ours_of, inputs)
    expected, theirs = gradients(plain, inputs)
    assert torch.equal(out, expected)
    assert same(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_feed_forward_layer_equals_its_parts_in_turn(dtype: torch.dtype) -> None:
    inputs = [
        noise(9, 16, dtype=dtype),
        noise(16, seed=1, dtype=dtype),
        noise(24, 16, seed=2, dtype=dtype),
        noise(16, 12, seed=3, dtype=dtype),
    ]

    def ours_of(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        return feed_forward(x, norm, gate_up, down, EPS)

    def plain(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        gate, up = F.linear(plain_norm(x, norm), gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, down)

    out, ours = gradients(ours_of, inputs)
    expected, theirs = gradients(plain, inputs)
    assert torch.equal(out, expected)
    assert same(ours, theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, ROWS, ROWS + 5])
def test_logprobs_and_their_gradients_are_those_of_a_log_softmax(
    count: int, dtype: torch.dtype
) -> None:
    inputs = [noise(count, 8, dtype=dtype), noise(50, 8, seed=1, dtype=dtype)]
    targets = torch.arange(count) % 50
    heat = 0.5 + torch.rand(count, generator=torch.Generator().manual_seed(2))

    def plain(hidden: Tensor, head: Tensor) -> Tensor:
        logits = (hidden @ head.T).float() / heat[:, None]
        return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]

    out, ours = gradients(lambda h, w: token_logprob(h, w, targets, heat), inputs)
    expected, theirs = gradients(plain, inputs)
    assert torch.allclose(out, expected, atol=1e-5)
    assert same(ours, theirs)


def test_a_likely_token_keeps_its_small_gradient_in_bf16() -> None:
    hidden = torch.tensor([[1.0]], dtype=torch.bfloat16, requires_grad=True)
    head = torch.tensor([[7.0], [0.0]], dtype=torch.bfloat16)
    token_logprob(hidden, head, torch.tensor([0]), torch.ones(1)).backward()
    assert hidden.grad is not None
    expected = 7 * (1 - torch.tensor(7.0).sigmoid())
    assert float(hidden.grad) == pytest.approx(float(expected), rel=0.01)
