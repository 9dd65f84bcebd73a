"""Length-prefixed JSON messages between the engine and the policy process.

A message is a 4-byte big-endian length and that many bytes of UTF-8 JSON. Requests are
`{"id", "op", ...}`, replies `{"id", "ok"}` with the result or `{"id", "error", "kind"}`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

LIMIT = 256 * 1024 * 1024
"""Longest message accepted, in bytes."""


async def read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream. Raises ValueError for an oversized one."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > LIMIT:
            raise ValueError(f"message of {size} bytes is over the limit")
        return json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None


def pack(message: dict[str, Any]) -> bytes:
    """Return a message as bytes."""
    body = json.dumps(message, ensure_ascii=False).encode()
    return len(body).to_bytes(4, "big") + body
