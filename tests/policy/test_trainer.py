"""Updates: gradients against transformers and an oracle in numpy, whatever the packing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from transformers import AutoModelForCausalLM

from learnloop.errors import ConfigError
from learnloop.policy.adapter import Adapter
from learnloop.policy.network import rope_table
from learnloop.policy.pack import pack
from learnloop.policy.sampler import Sampler
from learnloop.policy.train import lay_out, new_logprobs
from learnloop.policy.trainer import LOSSES, Trainer, TrainerSettings
from learnloop.policy.transcript import Transcript
from learnloop.policy.weights import Weights, load_weights, save_weights

Load = Callable[[str], Weights]
VOCAB = 384


def make_row(rng: random.Random, prompt: Sequence[int], length: int) -> Transcript:
    own = [rng.randrange(VOCAB) for _ in range(length)]
    marks = [False] * len(prompt) + [i < 2 or i % 5 > 2 for i in range(length)]
    return Transcript(
        ids=(*prompt, *own),
        sampled=tuple(marks),
        logprobs=tuple(-6 + rng.gauss(0, 0.5) if m else 0.0 for m in marks),
        advantage=rng.uniform(-1, 1),
        temperature=0.7,
    )


def make_rows(seed: int = 0) -> list[Transcript]:
    """Return two groups behind one system prompt, and a row that shares nothing."""
    rng = random.Random(seed)
    system = [rng.randrange(VOCAB) for _ in range(13)]
    rows: list[Transcript] = []
    for size in (4, 3):
        question = [rng.randrange(VOCAB) for _ in range(6)]
        rows += [make_row(rng, system + question, rng.randrange(5, 30)) for _ in range(size)]
    rows.append(make_row(rng, [rng.randrange(VOCAB) for _ in range(3)], 11))
    rng.shuffle(rows)
    return rows


def near_the_policy(rows: Sequence[Transcript], folder: Path) -> list[Transcript]:
    """Give rows old log-probabilities around those of the model: some ratios clip, most do not."""
    rng = random.Random(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    out: list[Transcript] = []
    for row in rows:
        with torch.no_grad():
            logps = logprobs_of(model, {}, row)
        old = iter((logps + torch.tensor([rng.gauss(0, 0.6) for _ in logps])).tolist())
        out.append(replace(row, logprobs=tuple(next(old) if s else 0.0 for s in row.sampled)))
    return out


def logprobs_of(model: Any, parameters: Mapping[str, Tensor], row: Transcript) -> Tensor:
    """Return log-probabilities of the sampled tokens by transformers, one whole row at a time."""
    out = functional_call(model, dict(parameters), (torch.tensor([row.ids]),))
    at = torch.tensor([i for i, s in enumerate(row.sampled) if s])
    logps = (out.logits[0, at - 1] / row.temperature).log_softmax(-1)
    return logps.gather(1, torch.tensor(row.ids)[at][:, None])[:, 0]


def old_of(row: Transcript) -> list[float]:
    return [x for x, s in zip(row.logprobs, row.sampled, strict=True) if s]


def reference_loss(
    model: Any, parameters: Mapping[str, Tensor], rows: Sequence[Transcript]
) -> Tensor:
    """Return the Dr. GRPO loss over unpacked rows, written token by token."""
    total = torch.zeros(())
    for row in rows:
        new, a = logprobs_of(model, parameters, row), row.advantage
        for logp, old in zip(new, old_of(row), strict=True):
            ratio = (logp - old).exp()
            gain = min(ratio * a, ratio.clamp(0.8, 1.28) * a)
            total = total - (max(gain, torch.tensor(3.0 * a)) if a < 0 else gain)
    return total / sum(r.trainable for r in rows)


def relative_error(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    assert ours.keys() == theirs.keys()
    gaps = [(ours[n].double() - theirs[n].double()).norm() for n in ours]
    whole = torch.stack([theirs[n].double().norm() for n in ours]).norm()
    return float(torch.stack(gaps).norm() / whole)


def full_gradients(weights: Weights, rows: Sequence[Transcript], **settings: Any) -> Weights:
    trainer = Trainer(weights, torch.float32, TrainerSettings(max_context=128, **settings))
    packs = pack(rows, trainer.settings.micro_batch_tokens)
    count = sum(r.trainable for r in rows)
    return trainer.gradients(packs, LOSSES["dr_grpo"], count)[0]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_packed_gradients_equal_those_of_transformers_row_by_row(
    family: str, tiny_models: dict[str, Path], tiny_weights: Load
) -> None:
    rows = near_the_policy(make_rows(), tiny_models[family])
    model = AutoModelForCausalLM.from_pretrained(tiny_models[family], dtype=torch.float32)
    reference_loss(model, {}, rows).backward()
    theirs = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert len(pack(rows, 4096)) < len(rows)
    ours = dict(full_gradients(tiny_weights(family), rows, micro_batch_tokens=4096).views())
    assert relative_error(ours, theirs) <= 1e-5


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Let torch use two threads, as the policy process does."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_threads_find_the_gradients_of_one(
    tiny_model: Path, tiny_weights: Load, request: pytest.FixtureRequest
) -> None:
    rows = near_the_policy(make_rows(), tiny_model)
    assert len(pack(rows, 40)) >= 3
    one = full_gradients(tiny_weights("llama"), rows, micro_batch_tokens=40).tensors
    request.getfixturevalue("two_threads")
    two = full_gradients(tiny_weights("llama"), rows, micro_batch_tokens=40).tensors
    assert torch.get_num_threads() == 2
    assert relative_error(two, one) <= 1e-5


@pytest.mark.usefixtures("two_threads")
def test_a_fault_in_one_of_two_threads_is_raised_and_leaves_their_number_as_it_was(
    tiny_model: Path, tiny_weights: Load
) -> None:
    rows = near_the_policy(make_rows(), tiny_model)
    trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=128))

    def broken(*_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        raise ArithmeticError("broken loss")

    with pytest.raises(ArithmeticError, match="broken loss"):
        trainer.gradients(pack(rows, 40), broken, 1)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("micro_batch_tokens", [1, 40, 100, 10_000])
def test_gradients_do_not_depend_on_the_packing(
    micro_batch_tokens: int, tiny_model: Path, tiny_weights: Load
) -> None:
    rows = near_the_policy(make_rows(), tiny_model)
    alone = full_gradients(tiny_weights("llama"), rows, micro_batch_tokens=1).tensors
    packed = full_gradients(
        tiny_weights("llama"), rows[::-1], micro_batch_tokens=micro_batch_tokens
    ).tensors
    assert relative_error(packed, alone) <= 1e-5


def test_adapter_gradients_equal_those_of_transformers_through_the_factors(
    tiny_model: Path, tiny_weights: Load
) -> None:
    rows = near_the_policy(make_rows(), tiny_model)
    weights = tiny_weights("llama")
    settings = TrainerSettings(method="lora", lora_rank=3, lora_alpha=5.0, max_context=128)
    trainer = Trainer(weights, torch.float32, settings)
    adapter = trainer.adapter
    assert isinstance(adapter, Adapter)
    for factor in adapter.up.values():  # B starts at zero, where A has no gradient
        factor.copy_(0.05 * torch.randn(factor.shape, generator=torch.Generator().manual_seed(1)))
    adapter.merge_into(trainer.current)
    count = sum(r.trainable for r in rows)
    full, _ = trainer.gradients(pack(rows, 100), LOSSES["dr_grpo"], count)
    ours = adapter.gradients(full)

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    factors = {n: t.clone().requires_grad_() for n, t in adapter.parameters().items()}
    base = dict(weights.views())
    merged = {n: base[n] + 5.0 / 3 * (factors[f"{n}.B"] @ factors[f"{n}.A"]) for n in adapter.down}
    reference_loss(model, merged, rows).backward()
    theirs = {n: t.grad for n, t in factors.items() if t.grad is not None}
    assert relative_error(ours, theirs) <= 1e-5


def dr_grpo_in_numpy(
    new: Sequence[float], old: Sequence[float], advantage: Sequence[float], low: float, high: float
) -> list[float]:
    """Write the loss out by cases: A > 0 stops paying above 1+high, A < 0 below 1-low and above 3."""
    out: list[float] = []
    for n, o, a in zip(new, old, advantage, strict=True):
        ratio = float(np.exp(np.float64(n) - np.float64(o)))
        capped = min(ratio, 1 + high) if a >= 0 else min(max(ratio, 1 - low), 3.0)
        out.append(-capped * a)
    return out


def test_the_loss_equals_an_oracle_in_numpy_with_both_clips_and_the_dual_clip() -> None:
    ratios = [0.1, 0.5, 0.79, 0.81, 1.0, 1.2, 1.27, 1.29, 2.0, 2.9, 3.1, 50.0]
    cases = [(math.log(r), a) for r in ratios for a in (-2.0, -0.3, 0.0, 0.4, 1.5)]
    old = [-3.0 - 0.1 * i for i in range(len(cases))]
    new = [o + gap for o, (gap, _) in zip(old, cases, strict=True)]
    advantage = [a for _, a in cases]
    each, clipped = LOSSES["dr_grpo"](
        torch.tensor(new), torch.tensor(old), torch.tensor(advantage), clip_low=0.2, clip_high=0.28
    )
    expected = dr_grpo_in_numpy(new, old, advantage, 0.2, 0.28)
    assert np.allclose(each.numpy(), expected, rtol=1e-5, atol=1e-6)
    outside = [not 0.8 <= math.exp(gap) <= 1.28 for gap, _ in cases]
    assert clipped.tolist() == outside


def test_the_loss_and_the_counts_of_an_update_are_those_of_its_rows(
    tiny_model: Path, tiny_weights: Load
) -> None:
    rows = near_the_policy(make_rows(), tiny_model)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    losses: list[float] = []
    gaps: list[float] = []
    for row in rows:
        with torch.no_grad():
            new = logprobs_of(model, {}, row).double().tolist()
        advantage = [row.advantage] * len(new)
        losses += dr_grpo_in_numpy(new, old_of(row), advantage, 0.2, 0.28)
        gaps += [n - o for n, o in zip(new, old_of(row), strict=True)]
    trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=128))
    metrics = trainer.update(rows, "dr_grpo")
    assert metrics["tokens_trained"] == len(losses)
    assert metrics["tokens_unpacked"] == sum(len(r.ids) for r in rows)
    assert metrics["tokens_packed"] < metrics["tokens_unpacked"]
    assert metrics["loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert metrics["abs_logprob_gap"] == pytest.approx(np.mean(np.abs(gaps)), rel=1e-4)
    kl = np.mean([math.exp(g) - 1 - g for g in gaps])
    assert metrics["approx_kl"] == pytest.approx(kl, rel=1e-4)
    clipped = np.mean([not 0.8 <= math.exp(g) <= 1.28 for g in gaps])
    assert 0 < clipped < 1
    assert metrics["clip_fraction"] == pytest.approx(clipped)


def bits(weights: Weights) -> dict[str, bytes]:
    return {n: t.detach().numpy().tobytes() for n, t in weights.tensors.items()}


def test_values_where_nothing_was_sampled_change_nothing(tiny_weights: Load) -> None:
    rows = make_rows()
    noise = [
        replace(
            r,
            logprobs=tuple(x if s else -99.0 for x, s in zip(r.logprobs, r.sampled, strict=True)),
        )
        for r in rows
    ]
    after: list[dict[str, bytes]] = []
    for some in (rows, noise, [*rows, replace(rows[0], sampled=(False,) * len(rows[0].ids))]):
        trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=128))
        trainer.update(some, "dr_grpo")
        after.append(bits(trainer.current))
    assert after[0] == after[1] == after[2]
    assert after[0] != bits(tiny_weights("llama"))


def test_a_later_token_that_was_not_sampled_gets_no_gradient_of_its_own(tiny_weights: Load) -> None:
    row = make_row(random.Random(3), [1, 2, 3], 20)
    last = max(i for i, s in enumerate(row.sampled) if s)
    cut = Transcript(
        ids=row.ids[: last + 1],
        sampled=row.sampled[: last + 1],
        logprobs=row.logprobs[: last + 1],
        advantage=row.advantage,
        temperature=row.temperature,
    )
    tail = replace(
        cut,
        ids=(*cut.ids, 7, 8, 9),
        sampled=(*cut.sampled, False, False, False),
        logprobs=(*cut.logprobs, 0.0, 0.0, 0.0),
    )
    short = full_gradients(tiny_weights("llama"), [cut]).tensors
    long = full_gradients(tiny_weights("llama"), [tail]).tensors
    assert relative_error(long, short) <= 1e-6


def test_on_policy_the_ratio_is_one_at_temperature_0_7(tiny_weights: Load) -> None:
    rng = random.Random(4)
    sampler = Sampler(tiny_weights("llama"), end_ids=frozenset({1}), max_context=256)
    system = tuple(rng.randrange(2, VOCAB) for _ in range(15))
    question = [rng.randrange(2, VOCAB) for _ in range(9)]
    lanes = [sampler.open(system, seed=i, temperature=0.7) for i in range(12)]
    parts: list[list[tuple[list[int], list[float]]]] = [[] for _ in lanes]

    def keep(number: int) -> Callable[[str], None]:
        lane = lanes[number]
        return lambda _: parts[number].append((list(lane.sampled), list(lane.logprobs)))

    results = [[rng.randrange(2, VOCAB) for _ in range(3 + i)] for i in range(12)]
    for number, lane in enumerate(lanes):
        sampler.feed(lane, question, 20, keep(number))
    while sampler.busy:
        sampler.step()
    for number, lane in enumerate(lanes):
        sampler.feed(lane, results[number], 20, keep(number))
    while sampler.busy:
        sampler.step()
    rows: list[Transcript] = []
    for number, ((one, logps_one), (two, logps_two)) in enumerate(parts):
        told, result = len(system) + len(question), results[number]
        rows.append(
            Transcript(
                ids=(*system, *question, *one, *result, *two),
                sampled=(False,) * told
                + (True,) * len(one)
                + (False,) * len(result)
                + (True,) * len(two),
                logprobs=(0.0,) * told + (*logps_one,) + (0.0,) * len(result) + (*logps_two,),
                advantage=1.0 if number % 2 else -1.0,
                temperature=0.7,
            )
        )
    trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=256))
    metrics = trainer.update(rows, "dr_grpo")
    assert metrics["abs_logprob_gap"] <= 1e-5
    assert metrics["clip_fraction"] == 0
    assert metrics["approx_kl"] <= 1e-8


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("spoilt", ["advantage", "logprobs"])
def test_a_gradient_that_is_not_finite_leaves_the_weights_and_counts(
    method: str, spoilt: str, tiny_weights: Load
) -> None:
    rows = make_rows()
    settings = TrainerSettings(method=method, max_context=128)  # type: ignore[arg-type]
    trainer = Trainer(tiny_weights("llama"), torch.float32, settings)
    trainer.update(rows, "dr_grpo", 1e-3)
    before = bits(trainer.current)
    moments = [s["exp_avg"].clone() for s in trainer.adam.state.values()]
    if spoilt == "advantage":
        rows[2] = replace(rows[2], advantage=math.nan)
    else:
        rows[2] = replace(rows[2], logprobs=tuple(math.nan for _ in rows[2].ids))
    metrics = trainer.update(rows, "dr_grpo", 1e-3)
    assert (metrics["skipped"], metrics["version"]) == (1, 1)
    assert bits(trainer.current) == before
    after = [s["exp_avg"] for s in trainer.adam.state.values()]
    assert all(bool((a == b).all()) for a, b in zip(moments, after, strict=True))
    assert trainer.update(make_rows(1), "dr_grpo", 1e-3)["version"] == 2
    assert bits(trainer.current) != before


def test_rows_without_a_sampled_token_are_refused() -> None:
    with pytest.raises(ValueError, match="first token"):
        Transcript(ids=(1,), sampled=(True,), logprobs=(0.0,))
    with pytest.raises(ValueError, match="one entry"):
        Transcript(ids=(1, 2), sampled=(False,), logprobs=(0.0, 0.0))


def test_an_update_without_a_trainable_token_is_an_error(tiny_weights: Load) -> None:
    trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=128))
    empty = Transcript(ids=(1, 2), sampled=(False, False), logprobs=(0.0, 0.0))
    with pytest.raises(ValueError, match="trainable"):
        trainer.update([empty], "dr_grpo")


def test_a_learning_rate_of_zero_moves_nothing_and_a_long_row_is_no_error(
    tiny_weights: Load,
) -> None:
    trainer = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(max_context=16))
    trainer.update(make_rows(), "dr_grpo", 0.0)
    assert bits(trainer.current) == bits(tiny_weights("llama"))


@pytest.mark.parametrize("method", ["full", "lora"])
def test_three_updates_equal_one_and_two_after_a_restart(
    method: Literal["full", "lora"],
    tmp_path: Path,
    tiny_weights: Load,
) -> None:
    settings = TrainerSettings(
        method=method,
        learning_rate=1e-3,
        max_context=128,
    )
    whole = Trainer(tiny_weights("llama"), torch.bfloat16, settings)
    for seed in range(3):
        whole.update(make_rows(seed), "dr_grpo")
    first = Trainer(tiny_weights("llama"), torch.bfloat16, settings)
    first.update(make_rows(0), "dr_grpo")
    first.save_state(tmp_path / "state.pt", {"step": 1})
    second = Trainer(tiny_weights("llama"), torch.bfloat16, replace(settings, seed=9))
    assert second.load_state(tmp_path / "state.pt") == {"step": 1}
    for seed in (1, 2):
        second.update(make_rows(seed), "dr_grpo")
    assert second.version == whole.version == 3
    for name, tensor in whole.parameters.items():
        assert torch.equal(tensor, second.parameters[name])
    for name, tensor in whole.current.tensors.items():
        assert torch.equal(tensor, second.current[name])
    assert [f.name for f in tmp_path.iterdir()] == ["state.pt"]


def test_a_state_of_another_method_is_refused(tmp_path: Path, tiny_weights: Load) -> None:
    full = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings())
    full.save_state(tmp_path / "state.pt", {})
    lora = Trainer(tiny_weights("llama"), torch.float32, TrainerSettings(method="lora"))
    with pytest.raises(ConfigError, match="another model or method"):
        lora.load_state(tmp_path / "state.pt")


def test_updates_make_rewarded_tokens_likelier_and_punished_ones_less_so(
    tiny_weights: Load,
) -> None:
    rng = random.Random(5)
    prompt = [rng.randrange(VOCAB) for _ in range(8)]
    trainer = Trainer(
        tiny_weights("llama"), torch.float32, TrainerSettings(learning_rate=1e-3, max_context=64)
    )

    def logps() -> Tensor:
        rope = rope_table(trainer.current.shape, 64, "cpu")
        rows = [
            Transcript(ids=(*prompt, t), sampled=(False,) * 8 + (True,), logprobs=(0.0,) * 9)
            for t in range(VOCAB)
        ]
        with torch.no_grad():
            return new_logprobs(trainer.current, lay_out(pack(rows, 9000)[0], "cpu"), rope)

    before = logps()
    for _ in range(5):
        rows = [
            Transcript(
                ids=(*prompt, token),
                sampled=(False,) * 8 + (True,),
                logprobs=(0.0,) * 8 + (float(logps()[token]),),
                advantage=advantage,
            )
            for token, advantage in ((17, 1.0), (23, -1.0))
        ]
        trainer.update(rows, "dr_grpo")
    assert float(logps()[17] - before[17]) > 0.1
    assert float(logps()[23] - before[23]) < -0.1


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_written_folder_loads_in_transformers_and_here_with_the_same_weights(
    family: str, tmp_path: Path, tiny_models: dict[str, Path], tiny_weights: Load
) -> None:
    trainer = Trainer(tiny_weights(family), torch.float32, TrainerSettings(max_context=128))
    trainer.update(make_rows(), "dr_grpo", 1e-3)
    save_weights(trainer.current, tiny_models[family], tmp_path / "out")
    assert bits(load_weights(tmp_path / "out", torch.float32)) == bits(trainer.current)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    theirs = dict(model.named_parameters())
    for name, tensor in trainer.current.views():
        assert torch.equal(theirs[name], tensor)
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


def test_a_write_that_fails_leaves_nothing_behind(
    tiny_models: Mapping[str, Path], tmp_path: Path
) -> None:
    master = load_weights(tiny_models["llama"], torch.float32)
    trainer = Trainer(master, torch.float32, TrainerSettings())
    with pytest.raises(Exception, match="pickle"):
        trainer.save_state(tmp_path / "state.pt", {"unwritable": lambda: 0})
    with pytest.raises(FileNotFoundError):
        save_weights(master, tmp_path / "no model", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
