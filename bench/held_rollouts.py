"""Long rollouts that all stand still before their last turn, and the bytes that they hold."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.slow_tool import bench_config, planned, setup_of

from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import (
    Played,
    Script,
    ScriptedCall,
    ScriptedModel,
    ScriptedSession,
)
from learnloop.outbound import Outbound
from learnloop.rollout import Setup, roll_out
from learnloop.runner import run_many
from learnloop.trace import Turn

LONG_ROUNDS = 14


@dataclass
class Gate:
    """Where rollouts stand still until all are there, unless it is open."""

    expected: int
    is_open: bool = True
    waiting: int = 0
    all_here: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def pass_through(self) -> None:
        if self.is_open:
            return
        self.waiting += 1
        if self.waiting == self.expected:
            self.all_here.set()
        await self.go_on.wait()


class HeldModel(ScriptedModel):
    """A scripted model whose conversations stop at a gate before their last turn."""

    def __init__(self, script: Script, gate: Gate) -> None:
        super().__init__(script)
        self.gate = gate

    async def open(
        self,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        sampling: Sampling,
        seed: int,
    ) -> ScriptedSession:
        self.open_sessions += 1
        return HeldSession(self, trace_id, messages, tools, seed)


class HeldSession(ScriptedSession):
    """One conversation of it."""

    rounds = 0

    async def turn(self, *, tools_allowed: bool = True) -> Turn:
        if self.rounds == LONG_ROUNDS and isinstance(self._model, HeldModel):
            await self._model.gate.pass_through()
        self.rounds += 1
        return await super().turn(tools_allowed=tools_allowed)


def ask_for_long(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    turns = sum(m.role == "assistant" for m in messages)
    return "Answer: 1" if turns == LONG_ROUNDS else [ScriptedCall(name="cat", arguments={})]


async def bytes_held(url: str, count: int) -> dict[str, Any]:
    """Count bytes while rollouts stand still and after them; connections are made beforehand."""
    config, gate = bench_config(url), Gate(count)
    async with Outbound(allow_private=True) as outbound:
        setup = setup_of(HeldModel(ask_for_long, gate), config, outbound)
        # What connections hold is traced from the beginning, so that it is not counted as left over.
        tracemalloc.start()
        await messages_of_first(setup, count)
        gate.is_open = False
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work = asyncio.ensure_future(messages_of_first(setup, count))
        await gate.all_here.wait()
        gc.collect()
        during = tracemalloc.get_traced_memory()[0]
        gate.go_on.set()
        messages = await work
        del work
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    return {
        "rollouts": count,
        "messages": messages,
        "bytes_in_flight": during - before,
        "bytes_afterwards": after - before,
    }


async def messages_of_first(setup: Setup, count: int) -> int:
    """Make rollouts and keep nothing of them but how many messages the first had."""
    traces = await run_many(
        [planned(n) for n in range(count)],
        lambda plan, retry: roll_out(plan, setup, retry),
        max_concurrency=count,
        on_trace=lambda _: None,
    )
    return len(traces[0].messages)
