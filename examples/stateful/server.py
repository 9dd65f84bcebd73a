"""The bank: serves `transfer` and `balance`, with a copy of the database for each rollout.

python server.py --port 8400 [--latency-ms 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import time
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tasks import OPENING

FORGOTTEN_S = 3600.0
"""A copy that nobody used for so long is freed, whether its end was told or not."""
LATE_S = 60.0
"""For so long after the end, calls of that rollout are refused."""


class AgentMistake(Exception):
    """A call that cannot be done; the text says why."""


@dataclass
class Episode:
    """One rollout's own database, a lock around it, and what was answered."""

    db: sqlite3.Connection
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answered: dict[str, tuple[int, str]] = field(default_factory=dict)
    used_s: float = field(default_factory=time.monotonic)


class Bank:
    """Every rollout's copy of one small database."""

    def __init__(self, latency_s: float = 0.0) -> None:
        self.latency_s = latency_s
        self.original = sqlite3.connect(":memory:")
        self.original.execute("create table accounts (name text primary key, holds integer)")
        self.original.executemany("insert into accounts values (?, ?)", OPENING.items())
        self.original.commit()
        self.episodes: dict[str, Episode] = {}
        self.ended: dict[str, float] = {}

    def episode(self, trace_id: str) -> Episode:
        """Return a rollout's copy, made when it is first heard of.

        There is no await in here: two first calls of a rollout cannot both make one.
        """
        self.sweep()
        if trace_id in self.ended:
            raise AgentMistake("this episode is over")
        if trace_id not in self.episodes:
            copy = sqlite3.connect(":memory:")
            self.original.backup(copy)
            self.episodes[trace_id] = Episode(copy)
        found = self.episodes[trace_id]
        found.used_s = time.monotonic()
        return found

    async def call(self, trace_id: str, data: dict[str, Any]) -> tuple[int, str]:
        """Do a call, one after the other within a rollout, and each `call_id` once."""
        try:
            episode = self.episode(trace_id)
        except AgentMistake as mistake:
            return 409, str(mistake)
        async with episode.lock:
            if data["call_id"] not in episode.answered:
                answer = await self._do(episode.db, data)
                episode.answered[data["call_id"]] = answer
            return episode.answered[data["call_id"]]

    async def _do(self, db: sqlite3.Connection, data: dict[str, Any]) -> tuple[int, str]:
        try:
            arguments = json.loads(data["arguments"])
            if data["name"] == "balance":
                await asyncio.sleep(self.latency_s)
                return 200, str(holds(db, arguments.get("account")))
            if data["name"] == "transfer":
                return 200, await self._transfer(db, arguments)
        except (AgentMistake, ValueError, AttributeError) as mistake:
            return 400, str(mistake)
        return 404, f"unknown tool {data['name']}"

    async def _transfer(self, db: sqlite3.Connection, arguments: dict[str, Any]) -> str:
        source, target = arguments.get("source"), arguments.get("target")
        amount = arguments.get("amount")
        if not isinstance(amount, int) or amount < 1:
            raise AgentMistake("`amount` must be a whole number above 0")
        has, had = holds(db, source), holds(db, target)
        # Slow on purpose between reading and writing: without the lock, parallel calls would lose
        # each other's transfers.
        await asyncio.sleep(self.latency_s)
        if source == target or has < amount:
            raise AgentMistake(f"{source} holds {has}: that cannot be moved")
        with db:
            db.execute("update accounts set holds = ? where name = ?", (has - amount, source))
            db.execute("update accounts set holds = ? where name = ?", (had + amount, target))
        return f"{target} now holds {had + amount}"

    async def end(self, trace_id: str) -> None:
        """Free a rollout's copy, after the call that may still be under way."""
        self.ended[trace_id] = time.monotonic()
        episode = self.episodes.pop(trace_id, None)
        if episode is not None:
            async with episode.lock:
                episode.db.close()

    def close(self) -> None:
        """Free everything."""
        for db in (self.original, *(e.db for e in self.episodes.values())):
            db.close()

    def sweep(self) -> None:
        """Free what was forgotten."""
        now_s = time.monotonic()
        for trace_id, ended_s in list(self.ended.items()):
            if ended_s > now_s - LATE_S:
                break
            del self.ended[trace_id]
        for trace_id, episode in list(self.episodes.items()):
            if episode.used_s < now_s - FORGOTTEN_S and not episode.lock.locked():
                self.episodes.pop(trace_id).db.close()


def holds(db: sqlite3.Connection, account: object) -> int:
    """Return what an account holds."""
    row = db.execute("select holds from accounts where name = ?", (str(account),)).fetchone()
    if row is None:
        raise AgentMistake(f"no account {account!r}; accounts: {', '.join(OPENING)}")
    return int(row[0])


def app(bank: Bank) -> Starlette:
    """Return the bank as a web application."""

    async def call(request: Request) -> Response:
        data = await request.json()
        status, text = await bank.call(data["trace_id"], data)
        reply = {"call_id": data["call_id"], "id": data["id"], "output": text}
        return JSONResponse(reply, status_code=status)

    async def end(request: Request) -> Response:
        await bank.end((await request.json())["trace_id"])
        return JSONResponse({})

    async def state(_: Request) -> Response:
        return JSONResponse({"episodes": len(bank.episodes)})

    return Starlette(
        routes=[
            Route("/call", call, methods=["POST"]),
            Route("/end", end, methods=["POST"]),
            Route("/health", state),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    options = parser.parse_args()
    bank = Bank(options.latency_ms / 1000)
    uvicorn.run(app(bank), host="127.0.0.1", port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
