"""Packing: sharing what groups have in common, within the limit, losing nothing."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from learnloop.policy.pack import PASS_COST, Pack, balance, pack, pack_evenly
from learnloop.policy.transcript import Transcript


def make_row(prompt: list[int], own: list[int], first: int = 0) -> Transcript:
    marks = [False] * (len(prompt) + first) + [True] * (len(own) - first)
    ids = (*prompt, *own)
    return Transcript(ids=ids, sampled=tuple(marks), logprobs=(0.0,) * len(ids))


def make_rows(seed: int, count: int) -> list[Transcript]:
    rng = random.Random(seed)
    system, questions = [1] * 12, [[rng.randrange(9) for _ in range(5)] for _ in range(3)]
    return [
        make_row(
            system + rng.choice(questions), [rng.randrange(9) for _ in range(rng.randrange(2, 14))]
        )
        for _ in range(count)
    ]


def cheapest(rows: list[Transcript], limit: int) -> int:
    """Try every way to cut the sorted rows; return the least cost."""
    ordered = sorted(rows, key=lambda r: r.ids)
    costs: list[int] = []
    for cuts in (c for n in range(len(rows)) for c in combinations(range(1, len(rows)), n)):
        edges = [0, *cuts, len(rows)]
        parts = [ordered[a:b] for a, b in pairwise(edges)]
        sizes = [plain_size(p) for p in parts]
        if all(s <= limit or len(p) == 1 for s, p in zip(sizes, parts, strict=True)):
            costs.append(sum(sizes) + PASS_COST * len(parts))
    return min(costs)


def plain_size(rows: list[Transcript]) -> int:
    shared = 0
    most = min(r.sampled.index(True) - 1 for r in rows)
    while shared < most and len({r.ids[shared] for r in rows}) == 1:
        shared += 1
    return shared + sum(len(r.ids) - shared for r in rows)


@pytest.mark.parametrize("limit", [10, 60, 120, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_packs_are_the_cheapest_cut_within_the_limit_and_hold_every_row_once(
    seed: int, limit: int
) -> None:
    rows = make_rows(seed, 7)
    packs = pack(rows, limit)
    assert sorted(r.ids for p in packs for r in p.rows) == sorted(r.ids for r in rows)
    for one in packs:
        assert one.tokens <= limit or len(one.rows) == 1
        assert len({r.ids[: one.shared] for r in one.rows}) == 1
        assert one.tokens == plain_size(list(one.rows))
    cost = sum(p.tokens + PASS_COST for p in packs)
    assert cost == cheapest(rows, limit)


def test_two_groups_are_not_mixed_where_that_would_repeat_their_prompts() -> None:
    prompts = [[n] * 100 for n in (1, 2)]
    rows = [make_row(p, [i, i]) for i in range(4) for p in prompts]
    assert [(p.shared, len(p.rows)) for p in pack(rows, 10_000)] == [(99, 4), (99, 4)]


def test_tokens_from_which_a_sampled_one_is_predicted_are_not_shared() -> None:
    rows = [make_row([1, 2, 3], [5, n], first=0) for n in range(3)]
    assert pack(rows, 1000)[0].shared == 2


def test_no_rows_make_no_packs() -> None:
    assert pack([], 100) == []


def cost(packs: list[Pack]) -> int:
    return sum(p.tokens + PASS_COST for p in packs)


def test_balanced_shares_hold_every_pack_once_and_differ_by_less_than_the_largest() -> None:
    packs = pack(make_rows(1, 30), 60)
    shares = balance(packs, 3)
    assert sorted(map(id, packs)) == sorted(id(p) for share in shares for p in share)
    sizes = [sum(p.tokens for p in share) for share in shares]
    assert max(sizes) - min(sizes) <= max(p.tokens for p in packs)


@pytest.mark.parametrize("seed", range(4))
def test_packing_for_two_workers_never_makes_the_slower_one_slower(seed: int) -> None:
    rng = random.Random(seed)
    rows = [make_row([1] * 50, [rng.randrange(9) for _ in range(200)]) for _ in range(5)]
    evenly, plainly = pack_evenly(rows, 2000, 2), pack(rows, 2000)
    assert len(plainly) == 1
    assert sorted(r.ids for p in evenly for r in p.rows) == sorted(r.ids for r in rows)
    assert max(map(cost, balance(evenly, 2))) < cost(plainly)
    assert pack_evenly(rows, 2000, 1) == plainly
