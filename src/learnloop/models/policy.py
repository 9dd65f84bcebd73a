"""A Model served by our own policy process, which it starts and talks to over a Unix socket."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from learnloop.codec import wire
from learnloop.errors import ModelError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.trace import Trace, Turn

START_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class TrainRow:
    """One rollout or demonstration to learn from."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    tools: tuple[ToolSchema, ...]
    advantage: float
    temperature: float

    @classmethod
    def of(cls, trace: Trace, tools: Sequence[ToolSchema], advantage: float, temperature: float) -> Self:
        """Make a row from a trace."""
        return cls(
            messages=trace.messages, turns=trace.turns, tools=tuple(tools), advantage=advantage, temperature=temperature
        )


class PolicyProcess:
    """The running policy process: weights that can be sampled from, trained, saved and loaded."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._numbers = itertools.count()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._stderr: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None

    @classmethod
    async def start(
        cls, model: Path, *, dtype: str, device: str, threads: int, max_context: int
    ) -> PolicyProcess:
        """Start the process and load the model; raises ModelError with its stderr when that fails."""
        folder = Path(tempfile.mkdtemp(prefix="learnloop-"))
        socket = folder / "policy.sock"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "learnloop.policy", str(socket), "--threads", str(threads),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")},
        )
        self = cls(process, folder)
        self._tasks.append(asyncio.create_task(self._drain_stderr()))
        try:
            await self._connect(socket)
            options = {"dtype": dtype, "device": device, "max_context": max_context}
            await self.call("start", folder=str(model), options=options)
        except BaseException:
            await self.stop()
            raise
        return self

    async def _connect(self, socket: Path) -> None:
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while asyncio.get_running_loop().time() < deadline:
            if self._process.returncode is not None:
                await asyncio.sleep(0.05)
                raise ModelError(f"the policy process ended: {self._tail()}", kind="died")
            try:
                reader, self._writer = await asyncio.open_unix_connection(str(socket))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)
                continue
            self._tasks.append(asyncio.create_task(self._read_replies(reader)))
            return
        raise ModelError("the policy process did not answer in time", kind="timeout")

    async def _drain_stderr(self) -> None:
        assert self._process.stderr
        async for line in self._process.stderr:
            self._stderr = [*self._stderr[-40:], line.decode(errors="replace").rstrip()]

    def _tail(self) -> str:
        return " / ".join(x for x in self._stderr[-3:] if x) or f"exit status {self._process.returncode}"

    async def _read_replies(self, reader: asyncio.StreamReader) -> None:
        while (reply := await wire.read(reader)) is not None:
            future = self._replies.pop(reply["id"], None)
            if future is None or future.done():
                continue
            if "error" in reply:
                future.set_exception(ModelError(reply["error"], kind=reply["kind"]))
            else:
                future.set_result(reply["ok"])
        await asyncio.sleep(0.1)
        for future in self._replies.values():
            if not future.done():
                future.set_exception(ModelError(f"the policy process died: {self._tail()}", kind="died", retryable=False))

    async def call(self, op: str, **values: Any) -> Any:
        """Send one request and wait for its reply; raises ModelError."""
        if self._writer is None or self._process.returncode is not None:
            raise ModelError(f"the policy process is gone: {self._tail()}", kind="died", retryable=False)
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            self._writer.write(wire.pack({"id": number, "op": op, **values}))
            await self._writer.drain()
            return await future
        except ConnectionError as fault:
            raise ModelError(f"the policy process is gone: {self._tail()}", kind="died", retryable=False) from fault
        finally:
            self._replies.pop(number, None)

    async def stop(self) -> None:
        """End the process and remove its socket."""
        if self._writer:
            self._writer.close()
        if self._process.returncode is None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def model(self, weights: str = "") -> PolicyModel:
        """Return the Model that samples from the named weights (`current` follows training)."""
        return PolicyModel(self, weights)

    async def start_training(self, settings: Mapping[str, Any]) -> None:
        """Prepare master weights and optimizer; settings as in `policy.trainer.TrainerSettings`."""
        await self.call("start_training", settings=dict(settings))

    async def train(self, rows: Sequence[TrainRow], *, algorithm: str, learning_rate: float) -> dict[str, float]:
        """Make one update on the rows and return its metrics."""
        body = [
            {
                "messages": [asdict(m) for m in r.messages],
                "turns": [{"token_ids": t.token_ids, "logprobs": t.logprobs} for t in r.turns],
                "tools": [asdict(t) for t in r.tools],
                "advantage": r.advantage,
                "temperature": r.temperature,
            }
            for r in rows
        ]
        return await self.call("train", rows=body, algorithm=algorithm, learning_rate=learning_rate)

    async def snapshot(self, name: str, folder: Path | None = None) -> None:
        """Keep the current weights under a name; write a model folder when one is given."""
        await self.call("snapshot", name=name, folder=str(folder) if folder else "")

    async def load(self, name: str, folder: Path) -> None:
        """Load a model folder under a name."""
        await self.call("load", name=name, folder=str(folder))

    async def forget(self, name: str) -> None:
        """Drop named weights."""
        await self.call("forget", name=name)

    async def save_state(self, path: Path, extra: Mapping[str, Any]) -> None:
        """Write the training state to one file, whole or not at all."""
        await self.call("save_state", path=str(path), extra=dict(extra))

    async def load_state(self, path: Path) -> dict[str, Any]:
        """Read a training state and return the values saved beside it."""
        return await self.call("load_state", path=str(path))

    async def reset_optimizer(self) -> None:
        """Forget the optimizer's moments, as a new stage starts."""
        await self.call("reset_optimizer")

    async def stats(self) -> dict[str, float]:
        """Return token counts and seconds since the last call, and peak memory."""
        return await self.call("stats")


class PolicyModel:
    """The Model contract on one named set of weights of a policy process."""

    def __init__(self, process: PolicyProcess, weights: str) -> None:
        self.process, self.weights = process, weights

    async def open(
        self,
        trace_id: str,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        sampling: Sampling,
        seed: int,
    ) -> PolicySession:
        """Start a conversation."""
        options = {
            "weights": self.weights, "seed": seed, "temperature": sampling.temperature, "max_tokens": sampling.max_tokens,
        }
        await self.process.call(
            "open", trace_id=trace_id, messages=[asdict(m) for m in messages], tools=[asdict(t) for t in tools], options=options
        )
        return PolicySession(self.process, trace_id)


class PolicySession:
    """One conversation in the policy process."""

    def __init__(self, process: PolicyProcess, trace_id: str) -> None:
        self._process, self._id, self._closed = process, trace_id, False

    async def turn(self, *, tools_allowed: bool = True) -> Turn:
        """Sample the next turn."""
        raw = await self._process.call("turn", trace_id=self._id, tools_allowed=tools_allowed)
        calls = tuple(ToolCall(**c) for c in raw.pop("tool_calls"))
        ids, logprobs = tuple(raw.pop("token_ids")), tuple(raw.pop("logprobs"))
        return Turn(**raw, tool_calls=calls, token_ids=ids, logprobs=logprobs)

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages before the next turn."""
        await self._process.call("append", trace_id=self._id, messages=[asdict(m) for m in messages])

    async def close(self) -> None:
        """Free the conversation."""
        if not self._closed:
            self._closed = True
            try:
                await self._process.call("close", trace_id=self._id)
            except ModelError:
                return  # a dead process holds nothing any more
