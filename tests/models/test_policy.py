"""The policy process as its client sees it: conversations, training, state, and sudden death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from tests.tiny_model import make_tiny_model

from learnloop.errors import ConfigError, ModelError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.models.policy import PolicyModel, PolicyProcess, TrainRow
from learnloop.trace import Turn

T = TypeVar("T")
PARAMETERS = (
    '{"type": "object", "required": ["query"], "properties": {"query": {"type": "string"}}}'
)
TOOLS = (ToolSchema(name="search", description="Finds.", parameters_json=PARAMETERS),)
SYSTEM = Message(role="system", content="Answer with a number. @search WORDS finds.")
SETTINGS = {"method": "full", "learning_rate": 1e-3, "max_context": 400}
UPDATE_RATE = 2e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def start(model: Path, *, max_context: int = 400) -> PolicyProcess:
    return await PolicyProcess.start(
        model, dtype="fp32", device="cpu", threads=1, max_context=max_context
    )


@pytest.fixture(scope="module")
def policy(model: Path, loop: asyncio.Runner) -> Iterator[PolicyProcess]:
    """Yield a process that several tests use one after another; each starts its own training."""
    process = loop.run(start(model))
    yield process
    loop.run(process.stop())


def question(number: int) -> tuple[Message, ...]:
    return (SYSTEM, Message(role="user", content=f"What was the revenue of Acme in {number}?"))


async def converse(
    model: PolicyModel, number: int, *, turns: int = 1, heat: float = 1.0, max_tokens: int = 8
) -> tuple[tuple[Message, ...], list[Turn]]:
    """Hold one conversation of some turns with a tool result in between."""
    messages, told = list(question(number % 4)), list[Turn]()
    sampling = Sampling(temperature=heat, max_tokens=max_tokens)
    session = await model.open(f"t{number}", messages, TOOLS, sampling=sampling, seed=number)
    for _ in range(turns):
        if told:
            result = Message(
                role="tool", content=f"{number} million", tool_call_id="c", name="search"
            )
            messages.append(result)
            await session.append([result])
        turn = await session.turn()
        told.append(turn)
        messages.append(Message(role="assistant", content=turn.text, tool_calls=turn.tool_calls))
    await session.close()
    return tuple(messages), told


async def many(
    model: PolicyModel, count: int, *, turns: int = 1, heat: float = 1.0, max_tokens: int = 8
) -> list[tuple[tuple[Message, ...], list[Turn]]]:
    talks = [
        converse(model, i, turns=turns, heat=heat, max_tokens=max_tokens) for i in range(count)
    ]
    return list(await asyncio.gather(*talks))


def row_of(messages: Sequence[Message], turns: Sequence[Turn], advantage: float) -> TrainRow:
    return TrainRow(
        messages=tuple(messages),
        turns=tuple(turns),
        tools=TOOLS,
        advantage=advantage,
        temperature=1.0,
    )


def test_many_sessions_at_once_say_what_each_would_say_alone(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    async def main() -> None:
        model = policy.model()
        await policy.stats()
        together = await many(model, 32, turns=3)
        stats = await policy.stats()
        alone = [await converse(model, i, turns=3) for i in range(0, 32, 5)]
        for messages, turns in together:
            assert len(turns) == 3
            assert [m.role for m in messages[2:]] == ["assistant", "tool"] * 2 + ["assistant"]
            for turn in turns:
                assert len(turn.token_ids) == len(turn.logprobs) == turn.tokens_out > 0
                assert turn.tokens_reused <= turn.tokens_in
        assert [[t.token_ids for t in turns] for _, turns in alone] == [
            [t.token_ids for t in turns] for _, turns in together[::5]
        ]
        assert stats["sampled"] == sum(t.tokens_out for _, turns in together for t in turns)
        # Four prompts are computed, not thirty-two.
        prompt = together[0][1][0].tokens_in
        assert stats["prefilled"] < 4 * prompt + sum(
            turns[-1].tokens_in - turns[0].tokens_in for _, turns in together
        )

    loop.run(main())


def test_calls_are_read_from_turns_even_where_tools_are_not_allowed(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    call = ToolCall(id="call_demo_0_0", name="search", arguments='{"query": "Acme 2021"}')
    demo = (*question(1), Message(role="assistant", content="", tool_calls=(call,)))

    async def main() -> None:
        await policy.start_training(SETTINGS)
        rows = [row_of(demo, [Turn(text="")], 1.0)]
        losses = [
            (await policy.train(rows, algorithm="supervised", learning_rate=1e-2))["loss"]
            for _ in range(25)
        ]
        assert losses[-1] < 0.1 < losses[0]
        sampling = Sampling(temperature=0.0, max_tokens=40)
        model = policy.model("current")
        session = await model.open("demo", question(1), TOOLS, sampling=sampling, seed=0)
        turn = await session.turn()
        assert (turn.text, turn.tool_calls, turn.finish_reason) == (
            "@search Acme 2021",
            (call,),
            "tool_calls",
        )
        assert turn.version == 25
        await session.close()
        session = await model.open("other", question(1), TOOLS, sampling=sampling, seed=0)
        wanted = await session.turn(tools_allowed=False)
        # Tool servers take the id as the idempotency key; the tokens do not know of it.
        assert wanted.tool_calls == (replace(call, id="call_other_0_0"),)
        assert (wanted.text, wanted.finish_reason) == ("@search Acme 2021", "tool_calls")
        assert wanted.token_ids == turn.token_ids
        await session.close()
        await session.close()

    loop.run(main())


def test_training_makes_rewarded_tokens_likelier_and_punished_ones_rarer(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    def rewarded(turns: Sequence[Turn]) -> bool:
        return turns[0].token_ids[0] % 2 == 0

    async def main() -> tuple[float, float]:
        await policy.start_training(SETTINGS)
        shares: list[float] = []
        for _ in range(9):
            talks = await many(policy.model("current"), 64, max_tokens=1)
            share = sum(rewarded(turns) for _, turns in talks) / 64
            rows = [row_of(m, turns, float(rewarded(turns)) - share) for m, turns in talks]
            metrics = await policy.train(rows, algorithm="dr_grpo", learning_rate=5e-3)
            assert metrics["abs_logprob_gap"] < 1e-4
            shares.append(share)
        return shares[0], shares[-1]

    first, last = loop.run(main())
    assert first < 0.7
    assert last > 0.9


def test_snapshots_are_kept_written_loaded_and_forgotten(
    policy: PolicyProcess, loop: asyncio.Runner, tmp_path: Path
) -> None:
    async def main() -> None:
        await policy.start_training(SETTINGS)
        rows = [
            row_of(m, t, 1.0 - i) for i, (m, t) in enumerate(await many(policy.model("current"), 4))
        ]
        await policy.train(rows, algorithm="dr_grpo", learning_rate=UPDATE_RATE)
        await policy.snapshot("kept", tmp_path / "kept")
        said = await many(policy.model("current"), 8)
        assert [t for _, t in said] != [t for _, t in await many(policy.model(), 8)]
        await policy.train(rows, algorithm="dr_grpo", learning_rate=UPDATE_RATE)
        await policy.load("again", tmp_path / "kept")
        for name in ("kept", "again"):
            repeated = await many(policy.model(name), 8)
            assert [[t.token_ids for t in ts] for _, ts in repeated] == [
                [t.token_ids for t in ts] for _, ts in said
            ]
        await policy.forget("again")
        with pytest.raises(ModelError, match="no weights named `again`"):
            await converse(policy.model("again"), 0)
        assert sorted(f.name for f in (tmp_path / "kept").iterdir()) == [
            "chat_template.jinja",
            "config.json",
            "generation_config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
        ]

    loop.run(main())


def test_weights_are_not_changed_under_an_open_conversation(
    policy: PolicyProcess, loop: asyncio.Runner, tmp_path: Path
) -> None:
    async def main() -> None:
        await policy.start_training(SETTINGS)
        await policy.snapshot("used", tmp_path / "used")
        rows = [row_of(m, t, 1.0) for m, t in await many(policy.model("current"), 1)]
        sampling = Sampling(temperature=0.0, max_tokens=4)
        for name in ("current", "used"):
            session = await policy.model(name).open(
                "x", question(0), TOOLS, sampling=sampling, seed=0
            )
            change = (
                policy.load(name, tmp_path / name)
                if name == "used"
                else policy.train(rows, algorithm="dr_grpo", learning_rate=1e-3)
            )
            with pytest.raises(ModelError, match="still open"):
                await change
            with pytest.raises(ModelError, match="open already"):
                await policy.model().open("x", question(0), TOOLS, sampling=sampling, seed=0)
            await session.close()
        await policy.train(rows, algorithm="dr_grpo", learning_rate=1e-3)

    loop.run(main())


def test_a_prompt_that_does_not_fit_fails_alone(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    long = (SYSTEM, Message(role="user", content="Acme " * 500))

    async def main() -> None:
        sampling = Sampling(temperature=0.0, max_tokens=4)
        with pytest.raises(ModelError, match=r"the prompt has \d+ tokens, max_context is 400"):
            await policy.model().open("long", long, TOOLS, sampling=sampling, seed=0)
        messages, turns = await converse(policy.model(), 1)
        assert len(messages) == 3
        assert turns

    loop.run(main())


def test_a_tool_result_that_does_not_fit_ends_the_conversation_with_reason_context(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    async def main() -> None:
        sampling = Sampling(temperature=0.0, max_tokens=4)
        session = await policy.model().open("r", question(1), TOOLS, sampling=sampling, seed=0)
        await session.turn()
        long = Message(role="tool", content="x " * 2000, tool_call_id="c", name="search")
        await session.append([long])
        turn = await session.turn()
        assert (turn.finish_reason, turn.token_ids, turn.text) == ("context", (), "")
        await session.close()

    loop.run(main())


def test_closing_in_the_middle_of_a_turn_ends_the_turn_and_disturbs_no_other(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    async def main() -> None:
        sampling = Sampling(temperature=1.0, max_tokens=300)
        sessions = [
            await policy.model().open(f"c{i}", question(i), TOOLS, sampling=sampling, seed=i)
            for i in range(4)
        ]
        turns = [asyncio.create_task(s.turn()) for s in sessions]
        await asyncio.sleep(0)  # all are sent
        with pytest.raises(ModelError, match="middle of a turn"):
            await sessions[0].turn()
        await sessions[0].close()
        with pytest.raises(ModelError, match="closed"):
            await turns[0]
        others = await asyncio.gather(*turns[1:])
        assert all(t.tokens_out for t in others)
        for session in sessions:
            await session.close()

    loop.run(main())


def test_a_conversation_whose_opening_is_cancelled_does_not_stay_open(
    policy: PolicyProcess, loop: asyncio.Runner
) -> None:
    async def main() -> None:
        await policy.start_training(SETTINGS)
        model, sampling = policy.model("current"), Sampling(temperature=0.0, max_tokens=4)
        opening = asyncio.create_task(
            model.open("late", question(0), TOOLS, sampling=sampling, seed=0)
        )
        await asyncio.sleep(0)  # sent, not answered
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        rows = [row_of(m, t, 1.0) for m, t in await many(model, 2)]
        await policy.train(rows, algorithm="dr_grpo", learning_rate=1e-3)

    loop.run(main())


async def train_thrice(policy: PolicyProcess, steps: range) -> None:
    for step in steps:
        talks = await many(policy.model("current"), 6, turns=2)
        rows = [row_of(m, t, 1.0 - i - 0.1 * step) for i, (m, t) in enumerate(talks)]
        await policy.train(rows, algorithm="dr_grpo", learning_rate=UPDATE_RATE)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_three_updates_equal_one_a_restart_and_two_more_to_the_bit(
    method: str, policy: PolicyProcess, loop: asyncio.Runner, model: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "method": method}

    async def main() -> None:
        await policy.start_training(settings)
        await train_thrice(policy, range(1))
        await policy.save_state(tmp_path / "state.pt", {"step": 1})
        await train_thrice(policy, range(1, 3))
        await policy.snapshot("whole", tmp_path / "whole")
        second = await start(model)
        try:
            await second.start_training(settings)
            assert await second.load_state(tmp_path / "state.pt") == {"step": 1}
            await train_thrice(second, range(1, 3))
            await second.snapshot("resumed", tmp_path / "resumed")
        finally:
            await second.stop()

    loop.run(main())
    whole, resumed = (tmp_path / n / "model.safetensors" for n in ("whole", "resumed"))
    assert whole.read_bytes() == resumed.read_bytes()
    assert whole.read_bytes() != (model / "model.safetensors").read_bytes()


def with_own_process(
    loop: asyncio.Runner, model: Path, use: Callable[[PolicyProcess], Awaitable[T]], **options: int
) -> T:
    async def main() -> T:
        process = await start(model, **options)
        try:
            return await use(process)
        finally:
            await process.stop()

    return loop.run(main())


def test_a_killed_process_fails_every_waiting_call_at_once_and_later_ones_too(
    loop: asyncio.Runner, model: Path
) -> None:
    async def use(process: PolicyProcess) -> None:
        talks = [
            asyncio.create_task(converse(process.model(), i, max_tokens=1500)) for i in range(16)
        ]
        await asyncio.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        began = time.monotonic()
        results = await asyncio.gather(*talks, return_exceptions=True)
        assert time.monotonic() - began < 3
        faults = [r for r in results if isinstance(r, BaseException)]
        assert faults
        assert {(type(f), getattr(f, "kind", "")) for f in faults} == {(ModelError, "died")}
        with pytest.raises(ModelError, match="died") as later:
            await process.stats()
        assert later.value.kind == "died"
        assert not later.value.retryable

    with_own_process(loop, model, use, max_context=2000)


def test_stopping_fails_calls_that_still_wait_and_leaves_no_file_and_no_process(
    loop: asyncio.Runner, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def main() -> int:
        process = await start(model, max_context=2000)
        assert not files_in(tmp_path)
        talk = asyncio.create_task(converse(process.model(), 1, max_tokens=1900))
        await asyncio.sleep(0.05)
        await process.stop()
        with pytest.raises(ModelError, match="stopped"):
            await talk
        await process.stop()
        return process.pid

    pid = loop.run(main())
    assert not files_in(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_missing_model_folder_is_a_mistake_of_the_user(
    loop: asyncio.Runner, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="not a model folder") as error:
        loop.run(start(tmp_path / "nowhere"))
    assert error.value.where == str(tmp_path / "nowhere")
    assert error.value.fix


def test_a_missing_torch_names_the_extra(
    loop: asyncio.Runner, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(ConfigError, match="No module named 'torch'") as error:
        loop.run(start(model))
    assert "learnloop[local]" in error.value.fix


PARENT = """
import asyncio, sys
from pathlib import Path
from learnloop.models.policy import PolicyProcess

async def main():
    options = dict(dtype="fp32", device="cpu", threads=1, max_context=100)
    process = await PolicyProcess.start(Path(sys.argv[1]), **options)
    print(process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_a_killed_parent_leaves_no_process_and_no_file(model: Path, tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(model)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 10
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not is_running(pid)
    assert not files_in(tmp_path)


def is_running(pid: int) -> bool:
    """Return whether a process lives; an orphan that nobody has buried yet does not."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def files_in(folder: Path) -> list[str]:
    return [f.name for f in folder.iterdir()]
