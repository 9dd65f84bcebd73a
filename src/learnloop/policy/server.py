"""Serves one Engine on a Unix socket: requests in, replies out, one thread that computes."""

from __future__ import annotations

import asyncio
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.codec import wire
from learnloop.policy.engine import Engine
from learnloop.policy.trainer import TrainerSettings
from learnloop.trace import Turn

LINGER_S = 0.004
"""How long an idle engine waits for more conversations before it starts a small batch."""

Reply = Callable[[dict[str, Any]], None]


def read_messages(raw: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Build messages from their JSON form."""
    return tuple(Message(**{**m, "tool_calls": tuple(ToolCall(**c) for c in m.get("tool_calls", ()))}) for m in raw)


def read_turns(raw: list[dict[str, Any]]) -> tuple[Turn, ...]:
    """Build turns from the fields that training needs."""
    return tuple(
        Turn(text="", token_ids=tuple(t["token_ids"]), logprobs=tuple(t["logprobs"])) for t in raw
    )


def read_tools(raw: list[dict[str, Any]]) -> tuple[ToolSchema, ...]:
    """Build tool schemas from their JSON form."""
    return tuple(ToolSchema(**t) for t in raw)


class Worker:
    """Runs requests one after another on its own thread and lets the samplers work in between."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[tuple[dict[str, Any], Reply] | None] = queue.Queue()
        self.engine: Engine | None = None
        self.waiting: dict[str, Reply] = {}
        self.thread = threading.Thread(target=self._run, name="policy-engine", daemon=True)

    def _run(self) -> None:
        while True:
            idle = not (self.engine and self.engine.busy)
            try:
                item = self.inbox.get(timeout=None) if idle else self.inbox.get_nowait()
            except queue.Empty:
                self._advance()
                continue
            if item is None:
                return
            self._answer(*item)
            while self._drain(LINGER_S if idle else 0.0):
                pass

    def _drain(self, patience_s: float) -> bool:
        try:
            item = self.inbox.get(timeout=patience_s) if patience_s else self.inbox.get_nowait()
        except queue.Empty:
            return False
        if item is None:
            self.inbox.put(None)
            return False
        self._answer(*item)
        return True

    def _advance(self) -> None:
        assert self.engine
        try:
            self.engine.step()
        except Exception as fault:  # noqa: BLE001  boundary: a failed batch fails its conversations, not the process
            failed, self.waiting = self.waiting, {}
            for trace_id, reply in failed.items():
                self.engine.close(trace_id)
                reply({"error": f"sampling failed: {fault}", "kind": type(fault).__name__})

    def _answer(self, request: dict[str, Any], reply: Reply) -> None:
        try:
            result = self._dispatch(request, reply)
        except Exception as fault:  # noqa: BLE001  boundary: reported to the caller, who decides
            where = traceback.extract_tb(fault.__traceback__)[-1]
            reply({"error": f"{fault} ({Path(where.filename).name}:{where.lineno})", "kind": type(fault).__name__})
            return
        if result is not None:
            reply({"ok": result})

    def _dispatch(self, request: dict[str, Any], reply: Reply) -> Any:
        op = request["op"]
        if op == "start":
            options = request["options"]
            self.engine = Engine(Path(request["folder"]), **options)
            return {"end_id": self.engine.renderer.end_id}
        if self.engine is None:
            raise RuntimeError("no model was started")
        if op == "turn":
            self._turn(self.engine, request, reply)
            return None
        return getattr(self, f"_op_{op}")(self.engine, request) or {}

    def _turn(self, engine: Engine, request: dict[str, Any], reply: Reply) -> None:
        trace_id = request["trace_id"]

        def done(turn: Turn) -> None:
            self.waiting.pop(trace_id, None)
            reply({"ok": asdict(turn)})

        self.waiting[trace_id] = reply
        try:
            engine.turn(trace_id, bool(request["tools_allowed"]), done)
        except Exception:
            self.waiting.pop(trace_id, None)
            raise

    def _op_open(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.open(r["trace_id"], read_messages(r["messages"]), read_tools(r["tools"]), r["options"])

    def _op_append(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.append(r["trace_id"], read_messages(r["messages"]))

    def _op_close(self, engine: Engine, r: dict[str, Any]) -> None:
        waiting = self.waiting.pop(r["trace_id"], None)
        engine.close(r["trace_id"])
        if waiting:
            waiting({"error": "the conversation was closed", "kind": "Closed"})

    def _op_start_training(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.start_training(TrainerSettings(**r["settings"]))

    def _op_train(self, engine: Engine, r: dict[str, Any]) -> dict[str, float]:
        rows = [
            engine.transcript(
                read_messages(row["messages"]), read_turns(row["turns"]), read_tools(row["tools"]),
                advantage=row["advantage"], temperature=row["temperature"],
            )
            for row in r["rows"]
        ]
        return engine.train(rows, r["algorithm"], r["learning_rate"])

    def _op_snapshot(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.snapshot(r["name"], Path(r["folder"]) if r["folder"] else None)

    def _op_load(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.load(r["name"], Path(r["folder"]))

    def _op_forget(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.forget(r["name"])

    def _op_save_state(self, engine: Engine, r: dict[str, Any]) -> None:
        engine.save_state(Path(r["path"]), r["extra"])

    def _op_load_state(self, engine: Engine, r: dict[str, Any]) -> dict[str, Any]:
        return engine.load_state(Path(r["path"]))

    def _op_reset_optimizer(self, engine: Engine, r: dict[str, Any]) -> None:
        del r
        engine.reset_optimizer()

    def _op_stats(self, engine: Engine, r: dict[str, Any]) -> dict[str, float]:
        del r
        return engine.stats()


async def serve(path: Path) -> None:
    """Serve one client on the socket `path` until it disconnects."""
    worker = Worker()
    worker.thread.start()
    ended = asyncio.Event()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()

        def reply_to(number: int) -> Reply:
            def send(body: dict[str, Any]) -> None:
                loop.call_soon_threadsafe(writer.write, wire.pack({"id": number, **body}))

            return send

        while (request := await wire.read(reader)) is not None:
            worker.inbox.put((request, reply_to(request["id"])))
        worker.inbox.put(None)
        ended.set()

    server = await asyncio.start_unix_server(client, path=str(path))
    async with server:
        await ended.wait()
