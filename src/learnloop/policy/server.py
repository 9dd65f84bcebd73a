"""Serves one Engine on a Unix socket: requests in, replies out, one thread that calls the Engine."""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from learnloop.codec import wire
from learnloop.errors import ConfigError
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.policy.engine import Engine
from learnloop.policy.trainer import TrainerSettings
from learnloop.trace import Turn

LINGER_S = 0.004
"""How long an engine in the middle of nothing waits for one more request before it starts a batch."""
GATHER_S = 0.02
"""The same while most of the open conversations wait for their tools."""
CLIENT_WAIT_S = 60.0
"""How long a process that nobody has connected to stays."""

Reply = Callable[[dict[str, Any]], None]
Operation = Callable[[Engine, dict[str, Any]], Any]


def read_messages(raw: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Build messages from their JSON form."""
    return tuple(_read_message(**m) for m in raw)


def _read_message(*, tool_calls: list[dict[str, str]], **fields: Any) -> Message:
    return Message(**fields, tool_calls=tuple(ToolCall(**c) for c in tool_calls))


def read_turns(raw: list[dict[str, Any]]) -> tuple[Turn, ...]:
    """Build turns from the fields that training needs."""
    return tuple(
        Turn(text="", token_ids=tuple(t["token_ids"]), logprobs=tuple(t["logprobs"])) for t in raw
    )


def read_tools(raw: list[dict[str, Any]]) -> tuple[ToolSchema, ...]:
    """Build tool schemas from their JSON form."""
    return tuple(ToolSchema(**t) for t in raw)


def _open(engine: Engine, r: dict[str, Any]) -> None:
    tools = read_tools(r["tools"])
    engine.open(r["trace_id"], read_messages(r["messages"]), tools, r["options"])


def _train(engine: Engine, r: dict[str, Any]) -> dict[str, float]:
    rows = [
        engine.transcript(
            read_messages(row["messages"]),
            read_turns(row["turns"]),
            read_tools(row["tools"]),
            advantage=row["advantage"],
            temperature=row["temperature"],
        )
        for row in r["rows"]
    ]
    return engine.train(rows, r["algorithm"], r["learning_rate"])


OPERATIONS: dict[str, Operation] = {
    "open": _open,
    "append": lambda e, r: e.append(r["trace_id"], read_messages(r["messages"])),
    "start_training": lambda e, r: e.start_training(TrainerSettings(**r["settings"])),
    "train": _train,
    "snapshot": lambda e, r: e.snapshot(r["name"], Path(r["folder"]) if r["folder"] else None),
    "load": lambda e, r: e.load(r["name"], Path(r["folder"])),
    "forget": lambda e, r: e.forget(r["name"]),
    "save_state": lambda e, r: e.save_state(Path(r["path"]), r["extra"]),
    "load_state": lambda e, r: e.load_state(Path(r["path"])),
    "reset_optimizer": lambda e, _: e.reset_optimizer(),
    "stats": lambda e, _: e.stats(),
}
"""What a client may ask beside `start`, `turn` and `close`."""


class Worker:
    """Runs requests one after another on its own thread and lets the samplers work in between."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[dict[str, Any], Reply] | None] = queue.Queue()
        self.engine: Engine | None = None
        self.waiting: dict[str, Reply] = {}
        self.thread = threading.Thread(target=self._run, name="policy-engine", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                patience_s = self._patience_s()
                item = self.inbox.get(block=patience_s != 0.0, timeout=patience_s)
            except queue.Empty:
                self._advance()
                continue
            if item is None:
                return
            self._answer(*item)

    def _patience_s(self) -> float | None:
        """Return how long to wait for another request before computing; None waits for ever."""
        engine = self.engine
        if engine is None or not engine.busy:
            return None
        if engine.gathering:
            return GATHER_S
        return LINGER_S if engine.undecided else 0.0

    def _advance(self) -> None:
        assert self.engine
        try:
            self.engine.step()
        except Exception as fault:  # noqa: BLE001  boundary: fails its conversations, not the process
            failed, self.waiting = self.waiting, {}
            for trace_id, reply in failed.items():
                self.engine.close(trace_id)
                reply(_error(fault))

    def _answer(self, request: dict[str, Any], reply: Reply) -> None:
        try:
            result = self._dispatch(request, reply)
        except Exception as fault:  # noqa: BLE001  boundary: reported to the caller, who decides
            reply(_error(fault))
            return
        if result is not None:
            reply({"ok": result})

    def _dispatch(self, request: dict[str, Any], reply: Reply) -> Any:
        op = request["op"]
        if op == "start":
            self.engine = Engine(Path(request["folder"]), **request["options"])
            return {}
        if self.engine is None:
            raise RuntimeError("no model was started")
        if op == "turn":
            return self._turn(self.engine, request, reply)
        if op == "close":
            return self._close(self.engine, request["trace_id"])
        return OPERATIONS[op](self.engine, request) or {}

    def _turn(self, engine: Engine, request: dict[str, Any], reply: Reply) -> None:
        """Start a turn; the reply follows when it is finished."""
        trace_id = request["trace_id"]

        def done(turn: Turn) -> None:
            self.waiting.pop(trace_id, None)
            reply({"ok": asdict(turn)})

        before = self.waiting.get(trace_id)
        self.waiting[trace_id] = reply
        try:
            engine.turn(trace_id, done)
        except Exception:
            self.waiting.pop(trace_id, None)
            if before:
                self.waiting[trace_id] = before
            raise

    def _close(self, engine: Engine, trace_id: str) -> dict[str, Any]:
        waiting = self.waiting.pop(trace_id, None)
        engine.close(trace_id)
        if waiting:
            waiting({"error": "the conversation was closed", "kind": "Closed"})
        return {}


def _error(fault: Exception) -> dict[str, Any]:
    """Return an error reply; mistakes that the user can mend keep their three parts."""
    if isinstance(fault, ConfigError):
        parts = {"what": fault.what, "where": fault.where, "fix": fault.fix}
        return {"error": str(fault), "kind": "ConfigError", "config": parts}
    place = traceback.extract_tb(fault.__traceback__)[-1]
    words = f"{fault} ({Path(place.filename).name}:{place.lineno})"
    return {"error": words, "kind": type(fault).__name__}


async def serve(path: Path) -> None:
    """Serve one client on the socket `path` until it disconnects or does not come."""
    worker = Worker()
    worker.thread.start()
    came, ended = asyncio.Event(), asyncio.Event()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        came.set()

        def reply_to(number: int) -> Reply:
            def send(body: dict[str, Any]) -> None:
                with suppress(RuntimeError):  # the loop is closed: nobody waits for this reply
                    loop.call_soon_threadsafe(writer.write, wire.pack({"id": number, **body}))

            return send

        try:
            while (request := await wire.read(reader)) is not None:
                worker.inbox.put((request, reply_to(request["id"])))
        finally:
            worker.inbox.put(None)
            ended.set()

    async with await asyncio.start_unix_server(client, path=str(path)):
        await asyncio.wait_for(came.wait(), CLIENT_WAIT_S)
        await ended.wait()
