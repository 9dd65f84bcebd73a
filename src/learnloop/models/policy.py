"""A Model served by our own policy process, which it starts and talks to over a Unix socket."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from learnloop.codec import wire
from learnloop.errors import ConfigError, LearnloopError, ModelError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.model import Sampling
from learnloop.trace import Trace, Turn

START_TIMEOUT_S = 120.0
LAST_WORDS_S = 1.0
"""How long a process that closed its socket is given to end."""


@dataclass(frozen=True, kw_only=True)
class TrainRow:
    """One rollout or demonstration to learn from."""

    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    tools: tuple[ToolSchema, ...]
    advantage: float
    temperature: float

    @classmethod
    def of(
        cls, trace: Trace, tools: Sequence[ToolSchema], advantage: float, temperature: float
    ) -> Self:
        """Make a row from a trace."""
        return cls(
            messages=trace.messages,
            turns=trace.turns,
            tools=tuple(tools),
            advantage=advantage,
            temperature=temperature,
        )

    def to_wire(self) -> dict[str, Any]:
        """Return the row as the policy process reads it."""
        return {
            "messages": [asdict(m) for m in self.messages],
            "turns": [{"token_ids": t.token_ids, "logprobs": t.logprobs} for t in self.turns],
            "tools": [asdict(t) for t in self.tools],
            "advantage": self.advantage,
            "temperature": self.temperature,
        }


class PolicyProcess:
    """The running policy process: weights that can be sampled from, trained, saved and loaded."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._numbers = itertools.count()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._stderr = ""
        self._tasks: list[asyncio.Task[None]] = []
        self._writer: asyncio.StreamWriter | None = None
        self._gone = ""

    @classmethod
    async def start(
        cls, model: Path, *, dtype: str, device: str, threads: int, max_context: int
    ) -> PolicyProcess:
        """Start the process and load the model.

        Raises:
            ConfigError: the model cannot be used, or the `local` extra is not installed.
            ModelError: the process ended or did not answer; carries its last words.
        """
        folder = Path(tempfile.mkdtemp(prefix="learnloop-"))
        socket = folder / "policy.sock"
        self = cls(await _launch(socket, threads), folder)
        self._tasks.append(asyncio.create_task(self._drain_stderr()))
        try:
            await self._connect(socket)
            # A connected socket needs no name: without one nothing is left behind by a kill.
            shutil.rmtree(folder, ignore_errors=True)
            options = {"dtype": dtype, "device": device, "max_context": max_context}
            await self.call("start", folder=str(model), options=options)
        except BaseException:
            await self.stop()
            raise
        return self

    async def _connect(self, socket: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.returncode is not None:
                await self._tasks[0]  # its last words
                raise self._early_end()
            try:
                reader, self._writer = await asyncio.open_unix_connection(str(socket))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.02)
                continue
            self._tasks.append(asyncio.create_task(self._read_replies(reader)))
            return
        raise ModelError("the policy process did not answer in time", kind="timeout")

    def _early_end(self) -> LearnloopError:
        if "ModuleNotFoundError" in self._stderr:
            return ConfigError(
                f"local models need packages that are not installed: {self._tail()}",
                fix="pip install 'learnloop[local]'",
            )
        return self._died()

    async def _drain_stderr(self) -> None:
        assert self._process.stderr
        # By pieces, not by lines: a line without an end must not stop the process.
        while piece := await self._process.stderr.read(4096):
            self._stderr = (self._stderr + piece.decode(errors="replace"))[-4000:]

    def _tail(self) -> str:
        lines = [x.strip() for x in self._stderr.splitlines() if x.strip()]
        return " / ".join(lines[-3:]) or f"exit status {self._process.returncode}"

    def _died(self) -> ModelError:
        words = self._gone or f"the policy process died: {self._tail()}"
        return ModelError(words, kind="died", retryable=False)

    async def _read_replies(self, reader: asyncio.StreamReader) -> None:
        try:
            while (reply := await wire.read(reader)) is not None:
                future = self._replies.pop(reply["id"], None)
                if future and not future.done():
                    _settle(future, reply)
        except ValueError as fault:
            self._gone = f"the policy process talks nonsense: {fault}"
        with suppress(TimeoutError):  # let it say why, and get its exit status
            await asyncio.wait_for(self._process.wait(), LAST_WORDS_S)
        self._fail_all(self._died())

    def _fail_all(self, error: ModelError) -> None:
        """Let every waiting call fail, and later ones at once."""
        self._gone = self._gone or str(error)
        for future in self._replies.values():
            if not future.done():
                future.set_exception(error)
        self._replies.clear()

    async def call(self, op: str, **values: Any) -> Any:
        """Send one request and wait for its reply; raises ModelError, or ConfigError from `start`."""
        if self._gone or self._writer is None or self._writer.is_closing():
            raise self._died()
        number = self.post(op, **values)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._replies[number] = future
        try:
            await self._writer.drain()
            return await future
        except ConnectionError as fault:
            raise self._died() from fault
        finally:
            self._replies.pop(number, None)

    def post(self, op: str, **values: Any) -> int:
        """Send one request without waiting for its reply; return its number."""
        number = next(self._numbers)
        if self._writer and not self._writer.is_closing():
            self._writer.write(wire.pack({"id": number, "op": op, **values}))
        return number

    async def stop(self) -> None:
        """End the process, fail calls that still wait, and leave no file."""
        self._fail_all(ModelError("the policy process was stopped", kind="died", retryable=False))
        if self._writer:
            self._writer.close()
        if self._process.returncode is None:
            await self._end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def model(self, weights: str = "") -> PolicyModel:
        """Return the Model that samples from the named weights (`current` follows training)."""
        return PolicyModel(self, weights)

    async def start_training(self, settings: Mapping[str, Any]) -> None:
        """Prepare master weights and optimizer; settings as in `policy.trainer.TrainerSettings`."""
        await self.call("start_training", settings=dict(settings))

    async def train(
        self, rows: Sequence[TrainRow], *, algorithm: str, learning_rate: float
    ) -> dict[str, float]:
        """Make one update on the rows and return its metrics."""
        body = [r.to_wire() for r in rows]
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
            "weights": self.weights,
            "seed": seed,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
        }
        body = {
            "trace_id": trace_id,
            "messages": [asdict(m) for m in messages],
            "tools": [asdict(t) for t in tools],
            "options": options,
        }
        try:
            await self.process.call("open", **body)
        except asyncio.CancelledError:
            self.process.post("close", trace_id=trace_id)  # nobody else knows of it
            raise
        return PolicySession(self.process, trace_id)


class PolicySession:
    """One conversation in the policy process."""

    def __init__(self, process: PolicyProcess, trace_id: str) -> None:
        self._process, self._id, self._closed = process, trace_id, False

    async def turn(self, *, tools_allowed: bool = True) -> Turn:
        """Sample the next turn; the policy is not told whether tools are allowed."""
        raw = await self._process.call("turn", trace_id=self._id)
        calls = tuple(ToolCall(**c) for c in raw.pop("tool_calls"))
        ids, logprobs = tuple(raw.pop("token_ids")), tuple(raw.pop("logprobs"))
        return Turn(**raw, tool_calls=calls, token_ids=ids, logprobs=logprobs)

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages before the next turn."""
        body = [asdict(m) for m in messages]
        await self._process.call("append", trace_id=self._id, messages=body)

    async def close(self) -> None:
        """Free the conversation."""
        if not self._closed:
            self._closed = True
            with suppress(ModelError):  # a dead process holds nothing any more
                await self._process.call("close", trace_id=self._id)


async def _launch(socket: Path, threads: int) -> asyncio.subprocess.Process:
    """Start the policy process; it listens on the socket once it has loaded torch."""
    arguments = [str(socket), "--threads", str(threads), "--parent", str(os.getpid())]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "learnloop.policy",
        *arguments,
        # glibc: each thread's own heap would keep what it has freed, gigabytes after an update.
        env={"MALLOC_ARENA_MAX": "2", **os.environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )


def _settle(future: asyncio.Future[Any], reply: Mapping[str, Any]) -> None:
    """Give a waiting call its result or its error."""
    if "ok" in reply:
        future.set_result(reply["ok"])
    elif "config" in reply:
        parts = reply["config"]
        future.set_exception(ConfigError(parts["what"], where=parts["where"], fix=parts["fix"]))
    else:
        future.set_exception(ModelError(reply["error"], kind=reply["kind"]))
