"""Length-prefixed JSON messages between the engine and the policy process.

A message is a 4-byte big-endian length and that many bytes of JSON. Requests are
`{"id", "op", ...}`, replies `{"id", "ok"}` with the result or `{"id", "error", "kind"}`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

LIMIT = 256 * 1024 * 1024
"""Longest message, in bytes."""


async def read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Read one message; None at the end of the stream, even in the middle of a message.

    Raises:
        ValueError: the message is over the limit, or no JSON object.
    """
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        if size > LIMIT:
            raise ValueError(f"message of {size} bytes is over the limit")
        message: Any = json.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    if not isinstance(message, dict):
        raise ValueError("the message is no JSON object")
    return cast("dict[str, Any]", message)


def pack(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes. Raises ValueError when it is over the limit."""
    # ASCII escapes carry half surrogate pairs, which tool results may hold and UTF-8 cannot.
    body = json.dumps(message).encode("ascii")
    if len(body) > LIMIT:
        raise ValueError(f"message of {len(body)} bytes is over the limit")
    return len(body).to_bytes(4, "big") + body
