"""Drawing tokens: frequencies, log-probabilities, and the edges of the random stream."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from learnloop.policy.draw import draw, uniforms


def logits_of(vocab: int, *, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(vocab, generator=torch.Generator().manual_seed(vocab))


@pytest.mark.parametrize(("vocab", "temperature"), [(7, 1.0), (300, 0.7), (512, 1.6)])
def test_frequencies_follow_the_softmax(vocab: int, temperature: float) -> None:
    count = 40_000
    logits = logits_of(vocab)
    u = uniforms([11] * count, range(count))
    tokens, _ = draw(logits.expand(count, -1), torch.full((count,), temperature), u)
    seen = torch.bincount(tokens, minlength=vocab).double()
    expected = (logits.double() / temperature).softmax(-1) * count
    common = expected >= 5  # chi-square needs five a cell: the rare ones share one
    observed = [*seen[common].tolist(), float(seen[~common].sum())]
    wanted = [*expected[common].tolist(), float(expected[~common].sum())]
    keep = [i for i, w in enumerate(wanted) if w > 0]
    result = stats.chisquare([observed[i] for i in keep], [wanted[i] for i in keep])
    assert result.pvalue > 0.001


def test_logprobs_are_those_of_the_softmax_at_the_rows_temperature() -> None:
    logits = torch.stack([logits_of(300), logits_of(300) + 40.0])
    heat = torch.tensor([0.5, 2.0])
    tokens, logprobs = draw(logits, heat, torch.tensor([0.3, 0.9], dtype=torch.float64))
    expected = (logits.double() / heat[:, None]).log_softmax(-1).gather(1, tokens[:, None])[:, 0]
    assert torch.allclose(logprobs.double(), expected, atol=1e-5)


def test_temperature_zero_takes_the_likeliest_token_and_reports_it_at_temperature_one() -> None:
    logits = logits_of(300)[None].repeat(2, 1)
    heat = torch.tensor([0.0, 1.0])
    tokens, logprobs = draw(logits, heat, torch.tensor([0.001, 0.001], dtype=torch.float64))
    assert int(tokens[0]) == int(logits[0].argmax())
    assert float(logprobs[0]) == pytest.approx(float(logits[0].log_softmax(-1).max()), abs=1e-6)
    assert int(tokens[1]) != int(tokens[0])


@pytest.mark.parametrize("vocab", [1, 5, 256, 257, 384, 600])
def test_both_ends_of_the_stream_give_tokens_of_the_vocabulary(vocab: int) -> None:
    logits = logits_of(vocab).expand(3, -1)
    ends = torch.tensor([2.0**-53, 1 - 2.0**-53, 1.0], dtype=torch.float64)
    tokens, logprobs = draw(logits, torch.ones(3), ends)
    assert int(tokens[0]) == 0
    assert [int(t) for t in tokens[1:]] == [vocab - 1] * 2
    assert bool(logprobs.isfinite().all())


def test_a_token_without_probability_is_never_drawn() -> None:
    logits = torch.zeros(4, 700)
    logits[:, :3] = -torch.inf
    logits[:, 250:520] = -torch.inf  # a whole block of 256 and parts of its neighbours
    logits[:, 690:] = -torch.inf
    inside = 0.5 * (1 + 2.0**-40)
    u = torch.tensor([2.0**-53, inside, 1 - 2.0**-53, 1.0], dtype=torch.float64)
    tokens, logprobs = draw(logits, torch.ones(4), u)
    assert bool(logprobs.isfinite().all())
    assert [int(tokens[0]), int(tokens[2]), int(tokens[3])] == [3, 689, 689]


def test_the_stream_is_inside_zero_and_one_and_differs_by_seed_and_position() -> None:
    u = uniforms([1] * 1000 + [2] * 1000, [*range(1000), *range(1000)])
    assert len(set(u.tolist())) == 2000
    assert 0 < float(u.min()) < 0.01
    assert 0.99 < float(u.max()) < 1
    assert stats.kstest(u.numpy(), "uniform").pvalue > 0.001
    assert abs(float(torch.corrcoef(torch.stack([u[:1000], u[1000:]]))[0, 1])) < 0.1
    assert uniforms([-5], [3]).tolist() == uniforms([2**64 - 5], [3]).tolist()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = logits_of(10).expand(2, -1).clone()
    logits[1, 4] = bad
    with pytest.raises(ValueError, match="not finite"):
        draw(logits, torch.ones(2), torch.tensor([0.5, 0.5], dtype=torch.float64))
