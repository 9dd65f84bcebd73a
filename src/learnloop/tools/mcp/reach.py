"""How an MCP server is reached: a program over its pipes, or an address over HTTP."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, TextIO

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from learnloop.outbound.transport import GuardedTransport

if TYPE_CHECKING:
    # The library names these types in private only; nothing at run time depends on that.
    from mcp.client._transport import ReadStream, TransportStreams

_CONNECT_S = 30.0
_JOIN_S = 0.5
_MOST_LOG = 1_000_000
"""Characters of a server's log; one that grows longer begins anew."""

_MOST_LINE = 20_000
"""Bytes of a line that is kept."""

Message = SessionMessage | Exception


class Stderr:
    """Keeps what a server writes to stderr in a file, without secrets; `last` is the last line."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        self._path, self._redact = path, redact
        self.last = ""

    @contextmanager
    def writer(self) -> Generator[TextIO]:
        """Return a file for one process to write to."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        thread = Thread(target=self._drain, args=(reading,), daemon=True, name="mcp-stderr")
        thread.start()
        try:
            with os.fdopen(writing, "w") as file:
                yield file
        finally:
            thread.join(_JOIN_S)  # lets it read what was written last

    def _drain(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines, self._path.open("a", encoding="utf-8") as file:
            for raw in _kept_lines(lines):
                if line := self._redact(raw.decode("utf-8", "replace").rstrip()):
                    self.last = line.strip()
                    if file.tell() > _MOST_LOG:
                        file.truncate(0)
                    file.write(line + "\n")
                    file.flush()


def _kept_lines(lines: BinaryIO) -> Iterator[bytes]:
    """Yield lines; one that does not end is not held in memory, and only its being there is told.

    A part of it would be no answer: where it is cut, half a secret would not be known for one.
    """
    while raw := lines.readline(_MOST_LINE):
        if raw.endswith(b"\n") or len(raw) < _MOST_LINE:
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = lines.readline(_MOST_LINE)
        yield b"(a line of more than %d bytes is left out)" % _MOST_LINE


class _Watched:
    """A stream of messages that tells when it has ended: then the server is gone."""

    def __init__(self, inner: ReadStream[Message], ended: Callable[[], None]) -> None:
        self._inner, self._ended = inner, ended

    async def receive(self) -> Message:
        return await self._inner.receive()

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> ReadStream[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self._inner.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(exc_type, exc_val, exc_tb)


@asynccontextmanager
async def over_stdio(
    command: tuple[str, ...],
    env: dict[str, str],
    root: Path,
    stderr: Stderr,
    ended: Callable[[], None],
) -> AsyncGenerator[TransportStreams]:
    """Start a server's program and talk over its pipes; `ended` is called when it dies."""
    program, *words = (part.replace("{python}", sys.executable) for part in command)
    server = StdioServerParameters(command=program, args=words, env=env, cwd=root)
    with stderr.writer() as errlog:
        async with stdio_client(server, errlog=errlog) as (read, write):
            yield _Watched(read, ended), write


@asynccontextmanager
async def over_http(
    url: str,
    headers: dict[str, str],
    timeout_s: float,
    ended: Callable[[], None],
    *,
    allow_private: bool,
) -> AsyncGenerator[TransportStreams]:
    """Talk to a server over streamable HTTP, within the network policy."""
    async with (
        httpx2.AsyncClient(
            transport=GuardedTransport(allow_private=allow_private),
            headers=headers,
            timeout=httpx2.Timeout(_CONNECT_S, read=timeout_s),
            trust_env=False,
        ) as client,
        streamable_http_client(url, http_client=client) as (read, write),
    ):
        yield _Watched(read, ended), write
