"""The tuner on a real policy process: what it trains, what it leaves out, how it resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.tiny_model import make_tiny_model

from learnloop.codec.rows import Demo
from learnloop.config import Config, ModelConfig, RftConfig, TrainConfig, WarmupConfig
from learnloop.message import Message
from learnloop.model import Sampling
from learnloop.models.policy import PolicyModel, PolicyProcess, TrainRow
from learnloop.optimizers.rft.tuner import Progress, Tuner, dealt, demo_rows, in_all, rise_and_fall
from learnloop.task import Task
from learnloop.trace import Failure, Score, Trace

CONFIG = Config(
    model=ModelConfig(max_context=200),
    train=TrainConfig(temperature=1.0, rft=RftConfig(learning_rate=1e-3)),
    warmup=WarmupConfig(epochs=4, batch_size=2, learning_rate=5e-3),
)
OPENING = (
    Message(role="system", content="Answer with a number."),
    Message(role="user", content="What was the revenue of Acme in 2021?"),
)
TASK = Task(id="task", split="train", group="g", messages=OPENING, tools=())


async def roll_out(model: PolicyModel, number: int) -> Trace:
    sampling = Sampling(temperature=1.0, max_tokens=6)
    session = await model.open(f"t{number}", OPENING, (), sampling=sampling, seed=number)
    turn = await session.turn()
    await session.close()
    return Trace(
        id=f"t{number}",
        task_id="task",
        candidate_id="c",
        attempt=number,
        seed=number,
        messages=(*OPENING, Message(role="assistant", content=turn.text)),
        turns=(turn,),
    )


def scored(traces: Sequence[Trace], values: Sequence[float]) -> list[Trace]:
    pairs = zip(traces, values, strict=True)
    return [replace(t, score=Score(value=v, correct=float(v > 0.5))) for t, v in pairs]


def lost(trace: Trace) -> Trace:
    failure = Failure(boundary="tool", kind="timeout", message="no answer")
    return replace(trace, outcome="infra_fault", failure=failure)


async def groups_of(policy: PolicyProcess) -> list[list[Trace]]:
    model = policy.model("current")
    traces = [await roll_out(model, i) for i in range(12)]
    return [
        scored(traces[:4], [1.0, 0.0, 0.2, 0.0]),
        scored(traces[4:8], [1.0] * 4),  # alike
        [*map(lost, traces[8:11]), *scored(traces[11:], [1.0])],  # one is left
    ]


async def life(model: Path, folder: Path) -> tuple[list[dict[str, object]], bytes, bytes]:
    """Warm up, update twice with a restart in between; return metrics and the weights of both."""
    seen: list[dict[str, object]] = []
    answer = Message(role="assistant", content="Answer: 7")
    demos = [Demo(id=str(i), task_id="", messages=(*OPENING, answer)) for i in range(5)]

    async def start() -> PolicyProcess:
        return await PolicyProcess.start(
            model, dtype="fp32", device="cpu", threads=1, max_context=200
        )

    policy = await start()
    try:
        tuner = Tuner(policy, CONFIG, folder)
        assert (await tuner.start()).step == -1
        seen.append(dict(await tuner.warm_up(demo_rows(demos, 4, 0))))
        seen.append(await tuner.update(1, await groups_of(policy), {"task": TASK}))
        await tuner.save(Progress(step=1))
        seen.append(await tuner.update(2, (await groups_of(policy))[1:], {"task": TASK}))
        seen.append(await tuner.update(2, await groups_of(policy), {"task": TASK}))
        await policy.snapshot("whole", folder / "whole")
    finally:
        await policy.stop()
    policy = await start()
    try:
        tuner = Tuner(policy, CONFIG, folder)
        assert await tuner.start() == Progress(step=1)
        await tuner.update(2, await groups_of(policy), {"task": TASK})
        await policy.snapshot("resumed", folder / "resumed")
    finally:
        await policy.stop()
    files = [folder / n / "model.safetensors" for n in ("whole", "resumed")]
    return seen, files[0].read_bytes(), files[1].read_bytes()


def test_the_tuner_warms_up_trains_what_teaches_and_resumes_to_the_bit(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    (warm, first, idle, second), whole, resumed = asyncio.run(life(model, tmp_path / "run"))
    assert warm["updates"] == 8
    assert float(str(warm["last_loss"])) < float(str(warm["first_loss"])) / 2
    assert (first["groups_kept"], first["groups_dropped"]) == (1, 2)
    assert first["version"] == 9
    assert float(str(first["abs_logprob_gap"])) < 1e-4
    assert (idle["groups_kept"], idle["groups_dropped"]) == (0, 2)
    assert "version" not in idle
    assert second["version"] == 10
    assert whole == resumed
    # Ten steps, five of them rising; the step that made no update does not count.
    full = CONFIG.train.rft.learning_rate
    assert [x.get("learning_rate") for x in (first, idle, second)] == [full / 5, None, full * 2 / 5]


def test_the_first_demonstrations_are_taken_and_shuffled_by_seed() -> None:
    answer = Message(role="assistant", content="7")
    demos = [
        Demo(id=str(i), task_id=str(i), messages=(Message(role="user", content=str(i)), answer))
        for i in range(9)
    ]
    drawn = demo_rows(demos, 4, 1)
    assert drawn == demo_rows(demos, 4, 1) != demo_rows(demos, 4, 2)
    assert sorted(r.messages[0].content for r in drawn) == ["0", "1", "2", "3"]
    assert all(len(r.turns) == 1 and r.advantage == 1.0 for r in drawn)
    assert len(demo_rows(demos, 100, 1)) == 9


@pytest.mark.parametrize(("count", "rising"), [(1, 1), (2, 5), (10, 4), (10, 9), (25, 0)])
def test_the_rate_rises_to_its_whole_value_and_falls_but_not_to_nothing(
    count: int, rising: int
) -> None:
    rates = [rise_and_fall(number, count, rising=rising) for number in range(1, count + 1)]
    peak = max(1, min(rising, count // 2)) - 1
    assert rates[peak] == 1
    assert rates[0] == pytest.approx(1 / (peak + 1))
    assert rates[: peak + 1] == sorted(set(rates[: peak + 1]))
    assert rates[peak:] == sorted(set(rates[peak:]), reverse=True)
    assert rates[-1] == pytest.approx(1 / (count - peak))


def test_the_first_update_is_small_also_when_the_first_steps_made_none() -> None:
    assert rise_and_fall(7, 10, rising=4, made=0) == 1 / 4


async def once(
    folder: Path, config: Config, earlier: Callable[[list[list[Trace]]], list[Trace]]
) -> dict[str, object]:
    """Make one step on three groups; return its metrics."""
    model = make_tiny_model(folder / "model")
    policy = await PolicyProcess.start(
        model, dtype="fp32", device="cpu", threads=1, max_context=200
    )
    try:
        tuner = Tuner(policy, config, folder / "run")
        await tuner.start()
        groups = await groups_of(policy)
        return await tuner.update(1, groups[:2], {"task": TASK}, earlier(groups))
    finally:
        await policy.stop()


def test_raft_trains_on_right_rollouts_only_also_of_groups_that_are_all_right(
    tmp_path: Path,
) -> None:
    rft = RftConfig(advantage="raft", learning_rate=1e-3, updates_per_step=2)
    config = replace(CONFIG, train=replace(CONFIG.train, rft=rft))
    metrics = asyncio.run(once(tmp_path, config, lambda _: []))
    assert (metrics["groups_kept"], metrics["groups_dropped"]) == (2, 0)
    assert metrics["version"] == 2  # two updates, of three and of two rollouts
    assert float(str(metrics["loss"])) < 0  # the ratio is about one: minus the advantage
    tokens = float(str(metrics["tokens_trained"]))

    most = replace(config, train=replace(config.train, rft=replace(rft, trained_per_group=1)))
    fewer = asyncio.run(once(tmp_path, most, lambda _: []))
    assert float(str(fewer["tokens_trained"])) < tokens

    replay = replace(config, train=replace(config.train, rft=replace(rft, replay=6)))
    more = asyncio.run(once(tmp_path, replay, lambda groups: groups[2]))
    assert float(str(more["tokens_trained"])) > tokens  # the one of the third group too


def test_every_group_has_a_share_in_each_update_of_a_step() -> None:
    def rows(name: str) -> list[TrainRow]:
        return [
            TrainRow(
                messages=(Message(role="user", content=name),),
                turns=(),
                tools=(),
                advantage=1.0,
                temperature=1.0,
            )
            for _ in range(4)
        ]

    parts = dealt([rows("a"), rows("b")], 2)
    assert [[r.messages[0].content for r in part] for part in parts] == [["a", "a", "b", "b"]] * 2
    assert len(dealt([rows("a")], 9)) == 4


def test_metrics_of_the_updates_of_a_step_are_added_or_averaged() -> None:
    updates = [
        {"loss": 1.0, "tokens_packed": 10.0, "seconds": 2.0, "version": 7.0, "skipped": 0.0},
        {"loss": 3.0, "tokens_packed": 30.0, "seconds": 4.0, "version": 8.0, "skipped": 1.0},
    ]
    assert in_all(updates) == {
        "loss": 2.0,
        "tokens_packed": 40.0,
        "seconds": 6.0,
        "version": 8.0,
        "skipped": 1.0,
    }
