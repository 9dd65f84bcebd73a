"""A server of tools and a grader that breaks its contract in every way, by a seed, and keeps count.

What it does to a request depends on the seed, the rollout and how often the request was sent, and
never on time; so a test can compare what was injected with what was recorded.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

GOOD = "good"
TOOL_KINDS: Mapping[str, str] = {
    "5xx": "5xx",
    "reset": "connect",
    "drip": "timeout",
    "redirect": "redirect",
    "429": "429",
    "call_id": "call_id",
    "json": "bad_reply",
    "html": "bad_reply",
    "413": "4xx",
    "huge": "too_large",
}
"""What is injected, and the kind of fault by which learnloop should know it."""
GRADER_KINDS: Mapping[str, str] = {k: v for k, v in TOOL_KINDS.items() if k != "call_id"}
SHOWN = frozenset({"413", "huge"})
"""What the model is told of when a tool does it: the rollout goes on."""


@dataclass(kw_only=True)
class FaultServer:
    """What the server does and did.

    `rate` is the share of requests that go wrong; `script` gives the next answers of a path by
    hand and goes first. `injected` counts by path and kind; `log` has the kinds by trace and path.
    """

    seed: int = 0
    rate: float = 0.3
    latency_s: float = 0.0
    drip_s: float = 30.0
    port: int = 0
    script: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    injected: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    log: dict[tuple[str, str], list[str]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], list[str]](list)
    )
    times: list[float] = field(default_factory=list[float])
    bodies: list[tuple[str, Mapping[str, str], bytes]] = field(
        default_factory=list[tuple[str, Mapping[str, str], bytes]]
    )
    keep_bodies: bool = False
    hung_up: int = 0
    _tries: Counter[str] = field(default_factory=Counter[str])

    def url(self, path: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.port}/{path}"

    def until(self, met: Callable[[], object], limit_s: float = 30.0) -> None:
        """Wait, in a thread of the test, until the server has seen something."""
        end_s = time.monotonic() + limit_s
        while not met():
            assert time.monotonic() < end_s, "the server did not see it in time"
            time.sleep(0.01)

    # --- deciding ---

    def decide(self, path: str, data: Mapping[str, Any]) -> str:
        """Return what happens to a request, and note it."""
        trace, call = str(data["trace_id"]), str(data.get("call_id", ""))
        key = f"{path}/{trace}/{call}"
        kind = self._drawn(path, f"{key}/{self._tries[key]}")
        self._tries[key] += 1
        self.injected[path, kind] += 1
        self.log[trace, path].append(kind)
        return kind

    def _drawn(self, path: str, key: str) -> str:
        if (planned := self.script.get(path)) is not None:
            return planned.pop(0) if len(planned) > 1 else planned[0]
        chance = random.Random(f"{self.seed}/{key}")
        if chance.random() >= self.rate:
            return GOOD
        return chance.choice(sorted(GRADER_KINDS if path == "grade" else TOOL_KINDS))

    # --- answering ---

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it is closed."""
        try:
            # Cancelled when the server stops: asyncio would log that as an error of its callback.
            with suppress(ConnectionError, EOFError, asyncio.CancelledError):
                first = await reader.readexactly(1)
                if first == b"\x16":
                    # A TLS handshake; nobody here can answer it.
                    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    await writer.drain()
                    return
                while await self._one(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        path = head[0].split(" ")[1].strip("/")
        lines = [line.partition(": ") for line in head[1:] if line]
        headers = {name.lower(): value for name, _, value in lines}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        if self.keep_bodies:
            self.bodies.append((path, headers, body))
        self.times.append(asyncio.get_running_loop().time())
        data: Mapping[str, Any] = json.loads(body)
        if data.get("type") == "episode_end":
            self.log[str(data["trace_id"]), "episode_end"].append(GOOD)
            return await _send(writer, 200, b"{}")
        kind = self.decide(path, data)
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        return await self._answer(kind, data, reader, writer)

    async def _answer(
        self,
        kind: str,
        data: Mapping[str, Any],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        if kind == "reset":
            writer.transport.abort()
            return False
        if kind == "drip":
            return await self._drip(reader, writer)
        status, body, extra = _reply(kind, data)
        return await _send(writer, status, body, extra)

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send a byte now and then until the client has had enough; note that it hung up."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        gone = asyncio.ensure_future(reader.read(1))
        for _ in range(int(self.drip_s / 0.05)):
            if gone.done():
                break
            writer.write(b" ")
            await asyncio.sleep(0.05)
        self.hung_up += gone.done()
        gone.cancel()
        return False


def _reply(kind: str, data: Mapping[str, Any]) -> tuple[int, bytes, str]:
    """Return status, body and further headers of an answer."""
    good = _good(data)
    answers: dict[str, tuple[int, object, str]] = {
        GOOD: (200, good, ""),
        "5xx": (503, {"error": "busy"}, ""),
        "redirect": (302, {}, "Location: http://127.0.0.1/\r\n"),
        "429": (429, {}, "Retry-After: 0\r\n"),
        "call_id": (200, {**good, "call_id": "call_of_somebody_else"}, ""),
        "json": (200, b'{"score": 1, "output": ', ""),
        "html": (200, b"<html><body>score: 1</body></html>", "Content-Type: text/html\r\n"),
        "413": (413, {"error": "payload too large"}, ""),
        "huge": (200, {**good, "more": "x" * 1_000_001}, ""),
        "4xx": (404, {"error": "no such thing"}, ""),
        "score": (200, {"score": 7}, ""),
    }
    status, body, extra = answers[kind]
    return status, body if isinstance(body, bytes) else json.dumps(body).encode(), extra


def _good(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the right answer: what the row holds, or whether the rollout said it."""
    answer = str(data["item"]["answer"])
    if "sample" in data:
        return {"score": float(answer in str(data["sample"]["output_text"]).split())}
    return {"call_id": data["call_id"], "id": data["id"], "output": answer}


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, extra: str = "") -> bool:
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return True


@contextmanager
def fault_server(
    *, script: Mapping[str, Sequence[str]] | None = None, **settings: Any
) -> Generator[FaultServer]:
    """Run a fault server in a thread while the block runs."""
    planned = {path: list(kinds) for path, kinds in (script or {}).items()}
    server = FaultServer(script=planned, **settings)
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def main() -> None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024)
        server.port = int(listening.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        listening.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # Transports that were just closed get a moment to say so.
        await asyncio.sleep(0.05)

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
