"""A tool of 50 ms in a process of its own, and the rollouts that call it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fault_server import FaultServer

from learnloop.config import AgentConfig, Config, ModelConfig, ToolConfig
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import Outbound
from learnloop.rollout import Planned, Setup
from learnloop.task import Task
from learnloop.tools import http_tools

ROOT = Path(__file__).resolve().parent.parent
LATENCY_S = 0.05


def planned(number: int) -> Planned:
    task = Task(
        id=f"t{number}",
        split="train",
        group=f"g{number}",
        messages=(Message(role="user", content=f"What does row {number} hold?"),),
        tools=(),
        item={"answer": number},
    )
    return Planned(task=task, candidate_id="c", attempt=0, seed=number)


def ask_once(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    if messages[-1].role == "tool":
        return f"Answer: {messages[-1].content}"
    return [ScriptedCall(name="cat", arguments={})]


def bench_config(url: str) -> Config:
    tool = ToolConfig(name="cat", server_url=url, max_concurrency=1024)
    agent = AgentConfig(max_calls=100, max_rounds=100)
    return Config(model=ModelConfig(ref="scripted"), agent=agent, tools=(tool,))


@contextmanager
def served() -> Generator[str]:
    """Serve the tool from a process of its own while the block runs."""
    command = [sys.executable, "-m", "bench.slow_tool"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/cat"
        finally:
            process.terminate()


def serve() -> None:
    """Serve a tool of 50 ms until the process is ended."""

    async def main() -> None:
        world = FaultServer(rate=0.0, latency_s=LATENCY_S)
        server = await asyncio.start_server(world.serve, "127.0.0.1", 0, backlog=2048)
        print(server.sockets[0].getsockname()[1], flush=True)
        async with server:
            await server.serve_forever()

    asyncio.run(main())


def setup_of(model: ScriptedModel, config: Config, outbound: Outbound) -> Setup:
    return Setup(
        label="bench",
        model=model,
        tools=http_tools(config.tools, outbound),
        grader=NumericGrader(),
        limits=config.agent,
        sampling=Sampling(),
    )


if __name__ == "__main__":
    serve()
