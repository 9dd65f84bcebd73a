"""Whole runs of several candidates, the test for a saving, and the order in which pairs finish."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from bench.gate_worlds import (
    ALPHA,
    CAP,
    COIN,
    MIXED,
    World,
    fixed,
    independent,
    pairs_of,
    shift,
)

from learnloop.bounds import bounds
from learnloop.gate import (
    CheaperRules,
    ErrorPool,
    GateResult,
    GateRules,
    PairResult,
    decide,
    decide_cheaper,
)

SLOWER = 3.0
"""How much longer a failing attempt of the candidate takes."""
IN_FLIGHT = 16


def run_rows(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield how often a run of eight null candidates ends with a false adoption."""
    for w, (name, p) in enumerate((("coin", COIN), ("mix", MIXED))):
        for k in (4, 8):
            rng = np.random.default_rng((seed, 50, w, k))
            false = sum(one_run(rng, p, k, good=0) for _ in range(runs))
            yield _row(f"{name}: run of 8 null candidates, K = {k}", runs, false, "at most", 0.05)
        rng = np.random.default_rng((seed, 51, w))
        false = sum(one_run(rng, p, 4, good=1) for _ in range(runs))
        yield _row(
            f"{name}: run of 1 good and 8 null candidates, K = 4", runs, false, "at most", 0.05
        )


def one_run(rng: np.random.Generator, p: np.ndarray, k: int, *, good: int) -> bool:
    """Return whether a run adopts a candidate that changes nothing; an adopted good one is kept."""
    pool, rates = ErrorPool(max_candidates=k), p
    for number in range(8 + good):
        if pool.left == 0:
            return False
        q = np.minimum(1, shift(rates, 0.15)) if number < good else rates
        world = World(name="", truth=0, rates=fixed(rates, q), luck=independent)
        found = decide(pairs_of(world, rng), GateRules(alpha=pool.share))
        assert found is not None, "the cap always decides"
        pool = pool.after([found])
        if found.outcome == "adopt":
            if number >= good:
                return True
            rates = q
    return False


def _row(case: str, runs: int, adopted: int, holds: str, bound: float) -> dict[str, Any]:
    return {"case": case, "runs": runs, "adopted": adopted, "holds": holds, "bound": bound}


# --- the test for a saving -----------------------------------------------------------------------


def saving_rows(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield level at the edge of each part of the null, and power."""
    cases = (
        ("saving: loses the margin of 5 points, saves half", 0.05, 0.10, 0.5, "at most", ALPHA),
        ("saving: loses the margin, many pairs differ", 0.225, 0.275, 0.5, "at most", ALPHA),
        ("saving: no saving, gains 4 points", 0.04, 0.0, 0.0, "at most", ALPHA),
        ("saving: equal quality (4 % differ), saves 20 %", 0.02, 0.02, 0.2, "at least", 0.85),
        ("saving: equal quality (10 % differ), saves 20 %", 0.05, 0.05, 0.2, "at least", 0.60),
        ("saving: equal quality (50 % differ), saves 20 %", 0.25, 0.25, 0.2, "", 0.0),
    )
    for i, (case, win, loss, saved, holds, bound) in enumerate(cases):
        rng = np.random.default_rng((seed, 60, i))
        verdicts = [decide_cheaper(costly(rng, win, loss, saved), SAVING) for _ in range(runs)]
        yield _row(
            case, runs, sum(v is not None and v.outcome == "adopt" for v in verdicts), holds, bound
        )


SAVING = CheaperRules(alpha=ALPHA, margin=0.05)


def costly(rng: np.random.Generator, win: float, loss: float, saved: float) -> list[PairResult]:
    """Return pairs on 40 tasks with lognormal costs; how much is saved differs by task."""
    u, task = rng.random(CAP), np.arange(CAP) % 40
    old = np.where(u < win, 0.0, 1.0)
    new = np.where((u >= win) & (u < win + loss), 0.0, 1.0)
    level, own = rng.lognormal(7, 0.7, 40)[task], rng.normal(np.log(1 - saved), 0.1, 40)[task]
    noise = rng.lognormal(0, 0.5, (2, CAP))
    return [
        PairResult(task_id=f"{t}", incumbent=a, candidate=b, incumbent_cost=x, candidate_cost=y)
        for t, a, b, x, y in zip(
            task.tolist(),
            old.tolist(),
            new.tolist(),
            (level * noise[0]).tolist(),
            (level * np.exp(own) * noise[1]).tolist(),
            strict=True,
        )
    ]


# --- finish order --------------------------------------------------------------------------------


def finish_order_rows(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield what the order of finishing does to the verdict, and to a gate that counts by it.

    Failing attempts of the candidate take three times as long; nothing was changed.
    """
    world = World(name="", truth=0, rates=fixed(COIN), luck=independent)
    rng, changed, fooled, planned = np.random.default_rng((seed, 70)), 0, 0, 0
    for _ in range(runs):
        pairs = pairs_of(world, rng)
        order = finish_order(rng, pairs)
        changed += _as_they_come(pairs, order) != decide(pairs, GateRules(alpha=ALPHA))
        fooled += first_look([pairs[i] for i in order[:80]])
        planned += first_look(pairs[:80])
    yield _row("another verdict", runs, changed, "", 0.0)
    yield _row("first look p <= .0125 by finish order", runs, fooled, "", 0.0)
    yield _row("first look p <= .0125 by planned order", runs, planned, "", 0.0)


def finish_order(rng: np.random.Generator, pairs: list[PairResult]) -> list[int]:
    """Return the pairs' places in the order in which they finish, sixteen in flight."""
    free, ends = np.zeros(IN_FLIGHT), list[float]()
    for pair in pairs:
        slow = SLOWER if pair.candidate == 0 else 1.0
        worker = int(free.argmin())
        free[worker] += max(rng.lognormal(0, 0.3), slow * rng.lognormal(0, 0.3))
        ends.append(float(free[worker]))
    return sorted(range(len(pairs)), key=ends.__getitem__)


def _as_they_come(pairs: list[PairResult], order: list[int]) -> GateResult | None:
    """Return the verdict of a gate that asks after every pair that finishes."""
    there, rules = dict[int, PairResult](), GateRules(alpha=ALPHA)
    ready = 0
    for place in order:
        there[place] = pairs[place]
        before = ready
        while ready in there:
            ready += 1
        # Only what a look newly covers can change the answer.
        if any(before < n <= ready for n in rules.looks):
            found = decide([there[i] for i in range(ready)], rules)
            if found is not None:
                return found
    return None


def first_look(pairs: list[PairResult]) -> bool:
    """Return whether a sign test of these pairs has p <= .0125."""
    wins = sum(p.clean_difference > 0 for p in pairs)
    losses = sum(p.clean_difference < 0 for p in pairs)
    return wins >= bounds([wins + losses], [1], 80)[0]
