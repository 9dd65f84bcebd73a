"""What MCP servers offered when they were last connected, kept in the state folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from learnloop.codec import canonical_json, schema_from_chat, schema_to_chat
from learnloop.config import McpConfig
from learnloop.message import ToolSchema


def save_schemas(folder: Path, name: str, schemas: Sequence[ToolSchema]) -> None:
    """Keep the schemas of a server's tools, as the model is told of them."""
    path = _path(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text(json.dumps([schema_to_chat(schema) for schema in schemas], indent=1))
    written.replace(path)  # whole or not at all, whoever else is reading or writing it


def saved_schemas(folder: Path, servers: Sequence[McpConfig]) -> tuple[ToolSchema, ...]:
    """Return what the servers offered when they were last connected; none before that."""
    found: list[ToolSchema] = []
    for server in servers:
        path = _path(folder, server.name)
        if path.is_file():
            data = cast("list[object]", json.loads(path.read_text()))
            found += [schema_from_chat(entry) for entry in data]
    return tuple(found)


def fingerprint(schemas: Sequence[ToolSchema]) -> str:
    """Return each tool's name with a hash of its schema, in words that a run's record keeps."""
    return ", ".join(f"{schema.name} {_digest(schema)}" for schema in schemas)


def changes(before: str, after: str) -> str:
    """Return how two fingerprints differ: `read is new, write is gone, list is another`."""
    old, new = _pairs(before), _pairs(after)
    words = [f"{name} is new" for name in new if name not in old]
    words += [f"{name} is gone" for name in old if name not in new]
    words += [f"{name} is another" for name in new if old.get(name, new[name]) != new[name]]
    return ", ".join(words)


def _pairs(text: str) -> dict[str, str]:
    return {name: digest for name, _, digest in (part.partition(" ") for part in text.split(", "))}


def _digest(schema: ToolSchema) -> str:
    return hashlib.sha256(canonical_json(schema_to_chat(schema)).encode()).hexdigest()[:12]


def _path(folder: Path, name: str) -> Path:
    return folder / "mcp" / f"{name}.json"
