"""Worlds in which the truth is known: agents made of pass rates, and what may befall their attempts.

Every world gives the pairs of one test in planned order, in balanced passes over its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from learnloop.gate import PairResult, plan_pairs

Floats = NDArray[np.float64]
Rates = Callable[[np.random.Generator], tuple[Floats, Floats]]
Luck = Callable[[np.random.Generator, Floats, Floats], tuple[Floats, Floats]]
Loss = Callable[[np.random.Generator, Floats, Floats], tuple[Floats, Floats]]
Holds = Literal["at most", "at least", ""]
CAP = 400
ALPHA = 0.0125
TRAP = 0.03
"""What is promised where the mean is zero and the arms are not exchangeable: a measured guard."""


@dataclass(frozen=True, kw_only=True)
class World:
    """One world and what must hold in it.

    Attributes:
        name: as it is printed.
        truth: mean of candidate minus incumbent on its tasks.
        rates: pass rates of both arms by task, drawn for each run.
        luck: results of all pairs, from both rates of each pair's task.
        loss: which attempts are lost, given the results: 1 where lost.
        holds: whether the share of adoptions must be `at most` or `at least` `bound`; "" shows it only.
        bound: that share.
        scores: what pairs are compared by.
        labelled: whether only adoptions that claim "tasks like these" count for the bound.
    """

    name: str
    truth: float
    rates: Rates
    luck: Luck
    loss: Loss | None = None
    holds: Holds = ""
    bound: float = 0.0
    scores: Literal["right", "graded"] = "right"
    labelled: bool = False


# --- rates ---------------------------------------------------------------------------------------

COIN = np.full(40, 0.5)
MIXED = np.concatenate([np.ones(18), np.zeros(14), np.full(8, 0.5)])
MIXED_U = np.concatenate([np.ones(18), np.zeros(14), (np.arange(8) + 0.5) / 8])


def fixed(p: Floats, q: Floats | None = None) -> Rates:
    """Return rates that are the same in every run."""
    return lambda _: (p, p if q is None else q)


def shift(p: Floats, gain: float) -> Floats:
    """Return rates with the same shift on every task below 1, clipped, for a mean gain."""
    low, high = 0.0, 1.0
    for _ in range(60):
        step = (low + high) / 2
        if float(np.where(p < 1, np.minimum(1, p + step) - p, 0).mean()) < gain:
            low = step
        else:
            high = step
    return np.where(p < 1, np.minimum(1, p + high), p)


def volatile(p: Floats, gain: float) -> Floats:
    """Return rates with the gain on the tasks between 0 and 1 only."""
    between = (p > 0) & (p < 1)
    return np.where(between, np.minimum(1.0, p + gain * len(p) / between.sum()), p)


def moved(p: Floats, up: int, down: int) -> Floats:
    """Return rates with `up` tasks going from 0 to 1 and `down` tasks from 1 to 0."""
    q = p.copy()
    q[np.flatnonzero(p == 0)[:up]] = 1
    q[np.flatnonzero(p == 1)[:down]] = 0
    return q


def churned(p: Floats) -> Floats:
    """Return rates of an edit without effect that turns eight certain tasks into coins."""
    q = p.copy()
    q[np.flatnonzero(p == 0)[:4]] = 0.5
    q[np.flatnonzero(p == 1)[:4]] = 0.5
    return q


def redrawn(tasks: int, share: float) -> Rates:
    """Return mixed rates of an edit that helps no population: it draws some tasks anew."""

    def draw(rng: np.random.Generator) -> tuple[Floats, Floats]:
        p, again = (rng.choice([1.0, 0.0, 0.5], tasks, p=[0.45, 0.35, 0.2]) for _ in range(2))
        return p, np.where(rng.random(tasks) < share, again, p)

    return draw


# --- luck ----------------------------------------------------------------------------------------


def independent(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return 0/1 results with luck of their own."""
    return (rng.random(len(p)) < p).astype(float), (rng.random(len(q)) < q).astype(float)


def shared(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return 0/1 results; in half of the pairs both arms have the same luck."""
    u, v = rng.random(len(p)), rng.random(len(p))
    second = np.where(rng.random(len(p)) < 0.5, u, v)
    return (u < p).astype(float), (second < q).astype(float)


def drift(kind: Literal["step", "linear"], gain: float = 0.0) -> Luck:
    """Return luck that both arms lose or gain over the test, as a service under load."""

    def luck(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
        t = np.arange(len(p)) / len(p)
        level = np.where(t < 0.5, 0.5, 0.2) if kind == "step" else 0.2 + 0.6 * t
        return independent(rng, level, np.clip(level + gain, 0, 1))

    return luck


def alike(icc: float, tasks: int) -> Luck:
    """Return luck that attempts of one arm at one task share in part."""

    def luck(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
        def frozen(rate: Floats) -> Floats:
            size = (1 - icc) / icc
            by_rate = {r: rng.beta(r * size, (1 - r) * size, tasks) for r in set(rate) - {0.0, 1.0}}
            return np.array([by_rate[r][i % tasks] if r in by_rate else r for i, r in places(rate)])

        return independent(rng, frozen(p), frozen(q))

    def places(rate: Floats) -> list[tuple[int, float]]:
        return list(zip(_TASK_OF[0].tolist(), rate.tolist(), strict=True))

    return luck


_TASK_OF: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)]
"""The task of each pair of the run that is drawn, for luck that stays with a task."""


def beta_scores(a: float, b: float, gain: float) -> Luck:
    """Return graded scores of one law, the candidate's moved up and clipped so that `gain` results."""
    grid = np.random.default_rng(0).beta(a, b, 200_000)
    low, high = 0.0, 0.9
    for _ in range(50):
        step = (low + high) / 2
        low, high = (
            (step, high) if np.minimum(1, grid + step).mean() - grid.mean() < gain else (low, step)
        )

    def luck(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
        old, new = rng.beta(a, b, len(p)), rng.beta(a, b, len(q))
        return old, np.minimum(1, new + high) if gain else new

    return luck


def collapse(gain: float) -> Luck:
    """Return graded scores with mean difference 0: a small gain nearly always, -1 now and then."""

    def luck(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
        hit = rng.random(len(p)) < gain / (1 + gain)
        return np.where(hit, 1.0, 1.0 - gain), np.where(hit, 0.0, 1.0)

    return luck


def lenient_judge(rng: np.random.Generator, p: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return graded scores of a judge that likes the candidate by .03, which 3 % of collapses undo."""
    old = np.clip(rng.normal(0.8, 0.08, len(p)), 0, 0.97)
    hit = rng.random(len(q)) < 0.03 / 0.83
    return old, np.where(hit, 0.0, np.clip(rng.normal(0.8, 0.08, len(q)), 0, 0.97) + 0.03)


# --- loss ----------------------------------------------------------------------------------------


def lose(
    incumbent: float = 0.0,
    candidate: float = 0.0,
    *,
    when: tuple[float | None, float | None] = (None, None),
) -> Loss:
    """Return a loss of so large a share of an arm's attempts.

    `when` names the result that is lost (0 or 1) in each arm; None loses at random. The share is of
    all attempts in a world where half of them pass.
    """

    def loss(rng: np.random.Generator, old: Floats, new: Floats) -> tuple[Floats, Floats]:
        out = list[Floats]()
        for results, share, result in zip((old, new), (incumbent, candidate), when, strict=True):
            chance = np.full(len(results), share)
            if result is not None:
                chance = np.where(results == result, min(1.0, 2 * share), 0.0)
            out.append((rng.random(len(results)) < chance).astype(float))
        return out[0], out[1]

    return loss


# --- all worlds ----------------------------------------------------------------------------------


def _binary() -> list[World]:
    out = list[World]()
    for name, p in (("coin", COIN), ("mix", MIXED), ("mixU", MIXED_U)):
        out.append(World(name=f"{name} null", truth=0, rates=fixed(p), luck=independent))
    out.append(
        World(
            name="mix null, churned", truth=0, rates=fixed(MIXED, churned(MIXED)), luck=independent
        )
    )
    out = [_must(w, "at most", ALPHA) for w in out]
    for name, p, gain, least in (
        ("coin +5", COIN, 0.05, None),
        ("coin +10", COIN, 0.10, 0.63),
        ("coin +20", COIN, 0.20, 0.99),
        ("mix +5", MIXED, 0.05, 0.57),
        ("mix +10", MIXED, 0.10, 0.985),
        ("mix +20", MIXED, 0.20, 0.995),
        ("mixU +5", MIXED_U, 0.05, None),
        ("mixU +10", MIXED_U, 0.10, None),
    ):
        world = World(name=name, truth=gain, rates=fixed(p, shift(p, gain)), luck=independent)
        out.append(_must(world, "at least", least) if least else world)
    for name, q, least in (
        ("mix +10, volatile tasks only", volatile(MIXED, 0.10), 0.985),
        ("mix +10, 4 never-pass tasks fixed", moved(MIXED, 4, 0), 0.985),
        ("mix +10, 6 fixed and 2 broken", moved(MIXED, 6, 2), 0.96),
    ):
        world = World(name=name, truth=0.10, rates=fixed(MIXED, q), luck=independent)
        out.append(_must(world, "at least", least))
    return out


def _must(world: World, holds: Holds, bound: float) -> World:
    return replace(world, holds=holds, bound=bound)


def _drifting() -> list[World]:
    better = fixed(COIN, shift(COIN, 0.1))
    worlds = [
        World(name="drift, step of -30", truth=0, rates=fixed(COIN), luck=drift("step")),
        World(name="drift, .2 to .8", truth=0, rates=fixed(COIN), luck=drift("linear")),
        World(name="coin null, luck shared by arms", truth=0, rates=fixed(COIN), luck=shared),
        World(
            name="coin null, attempts alike (.1), 400 tasks",
            truth=0,
            rates=fixed(np.full(400, 0.5)),
            luck=alike(0.1, 400),
        ),
        World(
            name="mix null, 20 % redrawn, 400 tasks",
            truth=0,
            rates=redrawn(400, 0.2),
            luck=independent,
        ),
    ]
    out = [_must(w, "at most", ALPHA) for w in worlds]
    out += [
        _must(
            World(name="coin +10, luck shared by arms", truth=0.1, rates=better, luck=shared),
            "at least",
            0.86,
        ),
        World(name="coin +10, step of -30", truth=0.1, rates=fixed(COIN), luck=drift("step", 0.1)),
        World(
            name="coin null, attempts alike (.1), 40 tasks",
            truth=0,
            rates=fixed(COIN),
            luck=alike(0.1, 40),
        ),
    ]
    labelled = World(
        name="mix null, 20 % redrawn, 40 tasks, labelled",
        truth=0,
        rates=redrawn(40, 0.2),
        luck=independent,
        labelled=True,
    )
    return [*out, _must(labelled, "at most", ALPHA)]


_LOSSES: Mapping[str, tuple[Loss, float | None]] = {
    "5 % of both arms at random": (lose(0.05, 0.05), 0.50),
    "candidate's failures, 5 %": (lose(0, 0.05, when=(None, 0.0)), 0.60),
    "candidate's failures, 10 %": (lose(0, 0.10, when=(None, 0.0)), 0.60),
    "incumbent's passes, 5 %": (lose(0.05, 0, when=(1.0, None)), None),
    "candidate 5 % at random": (lose(0, 0.05), None),
}


def _lossy() -> list[World]:
    out = list[World]()
    for words, (loss, least) in _LOSSES.items():
        for name, p in (("coin", COIN), ("mix", MIXED)):
            null = World(
                name=f"{name} null, lost: {words}",
                truth=0,
                rates=fixed(p),
                luck=independent,
                loss=loss,
            )
            out.append(_must(null, "at most", ALPHA))
        better = World(
            name=f"coin +10, lost: {words}",
            truth=0.1,
            rates=fixed(COIN, shift(COIN, 0.1)),
            luck=independent,
            loss=loss,
        )
        out.append(_must(better, "at least", least) if least else better)
    return out


def _graded() -> list[World]:
    def world(name: str, truth: float, luck: Luck, holds: Holds, bound: float) -> World:
        return World(
            name=name,
            truth=truth,
            rates=fixed(COIN),
            luck=luck,
            scores="graded",
            holds=holds,
            bound=bound,
        )

    return [
        world("Beta(2,2) null", 0, beta_scores(2, 2, 0), "at most", ALPHA),
        world("Beta(2,2) +3", 0.03, beta_scores(2, 2, 0.03), "", 0),
        world("Beta(2,2) +5", 0.05, beta_scores(2, 2, 0.05), "at least", 0.74),
        world("Beta(2,2) +10", 0.10, beta_scores(2, 2, 0.10), "at least", 0.99),
        world("Beta(.5,.5) null", 0, beta_scores(0.5, 0.5, 0), "at most", ALPHA),
        world("Beta(.5,.5) +5", 0.05, beta_scores(0.5, 0.5, 0.05), "", 0),
        world("Beta(.5,.5) +10", 0.10, beta_scores(0.5, 0.5, 0.10), "at least", 0.88),
        *(
            world(f"mean 0: +{g} nearly always, -1 rarely", 0, collapse(g), "at most", TRAP)
            for g in (0.01, 0.02, 0.05, 0.1, 0.2)
        ),
        world("mean 0: judge +.03, 3 % collapses", 0, lenient_judge, "at most", TRAP),
    ]


WORLDS: tuple[World, ...] = (*_binary(), *_drifting(), *_lossy(), *_graded())


def pairs_of(world: World, rng: np.random.Generator) -> list[PairResult]:
    """Return the pairs of one run in planned order, as many as the gate may ask for."""
    p, q = world.rates(rng)
    ids = [f"{i:04}" for i in range(len(p))]
    plan = plan_pairs(ids, CAP, seed=int(rng.integers(2**31)))
    place = np.array([int(pair.task_id) for pair in plan])
    _TASK_OF[0] = place
    old, new = world.luck(rng, p[place], q[place])
    lost = world.loss(rng, old, new) if world.loss else (np.zeros(CAP), np.zeros(CAP))
    return [
        PairResult(
            task_id=pair.task_id,
            incumbent=None if gone_old else a,
            candidate=None if gone_new else b,
        )
        for pair, a, b, gone_old, gone_new in zip(
            plan, old.tolist(), new.tolist(), lost[0].tolist(), lost[1].tolist(), strict=True
        )
    ]
