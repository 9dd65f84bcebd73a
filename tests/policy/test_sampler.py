"""The sampler against transformers' `generate`, and what it computes how often."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from learnloop.policy.decode import BLOCK
from learnloop.policy.sampler import Lane, Sampler
from learnloop.policy.weights import Weights

Load = Callable[[str], Weights]
VOCAB = 384
ENDS = frozenset(range(0, VOCAB, 9))
"""A random model hardly ever says its own end token, so that many tokens end a turn here."""


def words(rng: random.Random, count: int) -> list[int]:
    return [t for t in (rng.randrange(VOCAB) for _ in range(count * 2)) if t not in ENDS][:count]


def make_sampler(weights: Weights, *, max_context: int = 512) -> Sampler:
    return Sampler(weights, end_ids=ENDS, max_context=max_context)


def run(sampler: Sampler) -> None:
    while sampler.busy:
        sampler.step()


class Talk:
    """A conversation driven by hand: feeds, turns, and everything that was in its context."""

    def __init__(self, sampler: Sampler, shared: Sequence[int], **options: float) -> None:
        self.sampler = sampler
        self.lane: Lane = sampler.open(
            tuple(shared),
            seed=int(options.get("seed", 0)),
            temperature=options.get("temperature", 0.0),
        )
        self.context = list(shared)
        self.turns: list[list[int]] = []
        self.reasons: list[str] = []

    def feed(self, tokens: Sequence[int], max_tokens: int = 12) -> None:
        self.context += tokens
        self.sampler.feed(self.lane, tokens, max_tokens, self._done)

    def _done(self, reason: str) -> None:
        self.reasons.append(reason)
        self.turns.append(list(self.lane.sampled))
        self.context += self.lane.sampled


def reference(folder: Path, context: Sequence[int], max_tokens: int = 12) -> list[int]:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([context])
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_tokens,
        eos_token_id=sorted(ENDS),
        pad_token_id=1,
    )
    return out[0, len(context) :].tolist()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_greedy_turns_equal_those_of_transformers_over_two_turns_with_mixed_arrivals(
    family: str, tiny_models: dict[str, Path], tiny_weights: Load
) -> None:
    rng = random.Random(1)
    shared, sampler = words(rng, 21), make_sampler(tiny_weights(family))
    early = [Talk(sampler, shared) for _ in range(4)]
    for talk, length in zip(early, (3, 17, 3, 60), strict=True):
        talk.feed(words(rng, length))
    for _ in range(3):
        sampler.step()
    late = [Talk(sampler, shared), Talk(sampler, words(rng, 5)), Talk(sampler, ())]
    for talk, length in zip(late, (90, 4, 30), strict=True):
        talk.feed(words(rng, length))
    run(sampler)
    talks = [*early, *late]
    for talk in talks:
        assert talk.turns[0] == reference(tiny_models[family], talk.context[: -len(talk.turns[0])])
    for number, talk in enumerate(talks):  # a tool result each, the longer ones while others decode
        talk.feed(words(rng, 2 + 11 * number))
        sampler.step()
    run(sampler)
    for talk in talks:
        assert talk.turns[1] == reference(tiny_models[family], talk.context[: -len(talk.turns[1])])
    assert {"stop", "length"} <= {r for t in talks for r in t.reasons}


def test_feeds_longer_than_a_block_equal_those_of_transformers_also_after_others(
    tiny_models: dict[str, Path], tiny_weights: Load
) -> None:
    rng = random.Random(3)
    shared, sampler = words(rng, 21), make_sampler(tiny_weights("llama"), max_context=1024)
    talks = [Talk(sampler, shared) for _ in range(3)]
    for sizes in ((2 * BLOCK + 40, 5, BLOCK), (BLOCK + 30, 2 * BLOCK, 7)):
        for talk, size in zip(talks, sizes, strict=True):
            talk.feed(words(rng, size), 6)
        run(sampler)
        for talk in talks:
            turn = talk.turns[-1]
            assert turn == reference(tiny_models["llama"], talk.context[: -len(turn)], 6)


def test_logprobs_are_those_of_a_full_forward_pass(tiny_model: Path, tiny_weights: Load) -> None:
    rng = random.Random(2)
    sampler = make_sampler(tiny_weights("llama"))
    talk = Talk(sampler, words(rng, 10), temperature=0.7, seed=3)
    talk.feed(words(rng, 20))
    run(sampler)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([talk.context])).logits[0]
    n = len(talk.turns[0])
    expected = (logits[-n - 1 : -1] / 0.7).log_softmax(-1)
    expected = expected.gather(1, torch.tensor(talk.turns[0])[:, None])[:, 0]
    assert torch.allclose(torch.tensor(talk.lane.logprobs), expected, atol=1e-4)


def test_a_shared_prompt_is_computed_once_and_a_second_turn_computes_only_what_is_new(
    tiny_weights: Load,
) -> None:
    rng = random.Random(3)
    sampler = make_sampler(tiny_weights("llama"))
    shared, prompt, result = words(rng, 20), words(rng, 15), words(rng, 6)
    talks = [Talk(sampler, shared, temperature=1.0, seed=i) for i in range(8)]
    for talk in talks[:5]:
        talk.feed(prompt)
    run(sampler)
    for talk in talks[5:]:  # late, yet of the same group
        talk.feed(prompt)
    run(sampler)
    assert sampler.counts.prefilled == 20 + 15
    assert sampler.counts.reused == 7 * 20 + 7 * 15
    assert [t.lane.reused for t in talks] == [20] + 7 * [35]
    before = [t.lane.context for t in talks]
    for talk in talks:
        talk.feed(result)
    run(sampler)
    # The last sampled token of a turn has not been computed yet.
    assert sampler.counts.prefilled == 20 + 15 + 8 * (6 + 1)
    assert [t.lane.reused for t in talks] == [n - 1 for n in before]


def test_a_prompt_outlives_the_lane_that_computed_it(tiny_weights: Load) -> None:
    rng = random.Random(4)
    sampler = make_sampler(tiny_weights("llama"))
    shared, prompt = words(rng, 8), words(rng, 12)
    first, second, third = (Talk(sampler, shared, seed=i) for i in range(3))
    first.feed(prompt)
    second.feed(prompt)
    sampler.step()
    sampler.close(first.lane)
    third.feed(prompt)
    run(sampler)
    assert sampler.counts.prefilled == 8 + 12
    assert second.turns == third.turns
    sampler.close(second.lane)
    sampler.close(third.lane)
    fourth = Talk(sampler, shared)
    fourth.feed(prompt)
    run(sampler)
    assert sampler.counts.prefilled == 8 + 12 + 12
    assert fourth.turns == third.turns


@pytest.mark.parametrize("when", [0, 1, 2, 5])
def test_closing_lanes_at_any_moment_disturbs_nobody_and_frees_their_slots(
    when: int, tiny_weights: Load
) -> None:
    rng = random.Random(5)
    prompts = [words(rng, 5 + 3 * (i // 2)) for i in range(8)]
    alone: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        sampler = make_sampler(tiny_weights("llama"))
        talk = Talk(sampler, (), temperature=1.0, seed=number)
        talk.feed(prompt)
        run(sampler)
        alone += talk.turns
    sampler = make_sampler(tiny_weights("llama"))
    talks = [Talk(sampler, (), temperature=1.0, seed=i) for i in range(8)]
    for talk, prompt in zip(talks, prompts, strict=True):
        talk.feed(prompt)
    for _ in range(when):
        sampler.step()
    for talk in talks[::2]:
        sampler.close(talk.lane)
        sampler.close(talk.lane)
    run(sampler)
    assert [t.turns for t in talks[1::2]] == [[x] for x in alone[1::2]]
    for talk in talks[1::2]:
        assert sampler.cache.slots == 8
        sampler.close(talk.lane)
    assert sampler.cache.slots == 0  # the last one out frees the memory
    again = [Talk(sampler, (), temperature=1.0, seed=i) for i in range(8)]
    for talk, prompt in zip(again, prompts, strict=True):
        talk.feed(prompt)
    run(sampler)
    assert [t.turns[0] for t in again] == alone
    assert sampler.cache.slots == 8


def test_a_callback_may_close_its_own_lane_and_others(tiny_weights: Load) -> None:
    rng = random.Random(6)
    sampler = make_sampler(tiny_weights("llama"))
    lanes = [sampler.open((), seed=i, temperature=1.0) for i in range(4)]
    ended: list[int] = []

    def done(number: int) -> Callable[[str], None]:
        def close(_: str) -> None:
            ended.append(number)
            for lane in lanes:
                sampler.close(lane)

        return close

    for number, lane in enumerate(lanes):
        sampler.feed(lane, words(rng, 4), 1, done(number))
    run(sampler)
    assert len(ended) == 1


def test_growing_the_cache_does_not_change_what_is_sampled(tiny_weights: Load) -> None:
    rng = random.Random(7)
    prompts = [words(rng, n) for n in (5, 400, 30)]

    def sample(*, spacious: bool) -> list[list[int]]:
        sampler = make_sampler(tiny_weights("llama"), max_context=1024)
        if spacious:
            sampler.cache.reserve(1024)
            sampler.cache.give_back(sampler.cache.take())
        talks = [Talk(sampler, words(random.Random(8), 9)) for _ in range(12)]
        for number, talk in enumerate(talks):
            talk.feed(prompts[number % 3], 150 if number == 4 else 20)
            sampler.step()
        run(sampler)
        return [t.turns[0] for t in talks]

    assert sample(spacious=False) == sample(spacious=True)


def test_a_turn_that_fills_the_context_says_so_and_later_ones_get_no_room(
    tiny_weights: Load,
) -> None:
    rng = random.Random(9)
    sampler = Sampler(tiny_weights("llama"), end_ids=frozenset(), max_context=40)
    talk = Talk(sampler, words(rng, 10))
    talk.feed(words(rng, 10), max_tokens=50)
    run(sampler)
    assert talk.reasons == ["context"]
    assert len(talk.turns[0]) == 20
    talk.feed(words(rng, 1))
    assert talk.reasons == ["context", "context"]
    assert talk.turns[1] == []


def test_what_is_drawn_depends_on_seed_and_position_only(tiny_weights: Load) -> None:
    rng = random.Random(10)
    shared, prompts = words(rng, 7), [words(rng, 3 + 5 * (i % 4)) for i in range(10)]
    follow = [words(rng, 4 + i) for i in range(10)]

    def sample(order: Sequence[int], gap: int) -> dict[int, list[list[int]]]:
        sampler = make_sampler(tiny_weights("llama"))
        talks = {i: Talk(sampler, shared, temperature=0.9, seed=1000 + i) for i in order}
        for number, talk in talks.items():
            talk.feed(prompts[number])
            for _ in range(gap):
                sampler.step()
        run(sampler)
        for number, talk in talks.items():
            talk.feed(follow[number])
        run(sampler)
        return {i: t.turns for i, t in talks.items()}

    together = sample(range(10), gap=0)
    assert sample(range(9, -1, -1), gap=3) == together
    assert {i: sample([i], gap=0)[i] for i in range(10)} == together


def test_weights_that_are_not_finite_are_an_error_and_not_a_token(tiny_weights: Load) -> None:
    weights = tiny_weights("llama")
    weights["norm"].fill_(float("nan"))
    sampler = make_sampler(weights)
    Talk(sampler, (5, 6)).feed([7])
    with pytest.raises(ValueError, match="not finite"):
        run(sampler)
