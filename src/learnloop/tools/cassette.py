"""Cassettes: what tools answered, in a file, and tools that answer from it without any server."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from learnloop.codec import canonical_json, schema_from_chat, schema_to_chat
from learnloop.errors import ConfigError, ToolError, writing
from learnloop.message import ToolCall, ToolSchema
from learnloop.tool import Tool, ToolContext, ToolOutput

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """One recorded answer, and a hash of the dataset row that it was given for."""

    item: str
    output: ToolOutput


class RecordingTool:
    """Passes calls on, and writes down each answer. Faults are no answers: they are not kept."""

    def __init__(self, tool: Tool, file: Path) -> None:
        self._tool, self._file = tool, file

    @property
    def schema(self) -> ToolSchema:
        """Return what the model is told."""
        return self._tool.schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Run the call, and record what came of it."""
        start_s = time.monotonic()
        output = await self._tool.call(call, context)
        entry = {
            "name": self._tool.schema.name,
            "arguments": _canonical(call.arguments),
            "item": _item(context),
            "output": output.text,
            "is_error": output.is_error,
            "status": output.status,
            "latency_s": round(time.monotonic() - start_s, 6),
        }
        with writing(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        return output


class ReplayedTool:
    """Answers from a recording; a call that is not on it is a fault, never an invented answer."""

    def __init__(self, schema: ToolSchema, answers: Mapping[str, list[_Answer]], name: str) -> None:
        self._schema, self._answers, self._cassette = schema, answers, name

    @property
    def schema(self) -> ToolSchema:
        """Return what the model was told when the recording was made."""
        return self._schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        """Return the recorded answer."""
        arguments = _canonical(call.arguments)
        found = self._answers.get(arguments, [])
        own = [answer for answer in found if answer.item == _item(context)]
        # Recorded without a row, an answer is for all of them; that of another row is not ours.
        own = own or [answer for answer in found if answer.item == _NO_ITEM]
        outputs = {answer.output for answer in own}
        if len(outputs) == 1:
            return outputs.pop()
        what = "has several answers to" if outputs else "does not have"
        text = f"the cassette {self._cassette} {what} the call {self._schema.name}({arguments})"
        raise ToolError(text[:500], kind="cassette", retryable=False)


def recording(tools: Mapping[str, Tool], file: Path) -> dict[str, Tool]:
    """Return tools that record every answer to a file; a file that is there is added to.

    Raises:
        UserError: the file cannot be written.
    """
    schemas = [schema_to_chat(tool.schema) for tool in tools.values()]
    with writing(file), file.open("a", encoding="utf-8") as out:
        out.write(json.dumps({"cassette": VERSION, "tools": schemas}) + "\n")
    return {name: RecordingTool(tool, file) for name, tool in tools.items()}


def replayed(file: Path) -> dict[str, Tool]:
    """Return tools that answer from a recording.

    Raises:
        ConfigError: the file cannot be read, or is no cassette; tells the line.
    """
    schemas: dict[str, ToolSchema] = {}
    answers: dict[str, dict[str, list[_Answer]]] = {}
    for number, entry in _entries(file):
        try:
            if "cassette" in entry:
                found = (schema_from_chat(tool) for tool in entry["tools"])
                schemas |= {schema.name: schema for schema in found}
            else:
                calls = answers.setdefault(entry["name"], {})
                calls.setdefault(entry["arguments"], []).append(_answer(entry))
        except (KeyError, TypeError, ValueError) as error:
            raise _no_cassette(file, number, f"{type(error).__name__} {error}") from None
    if not schemas:
        raise _no_cassette(file, 1, "it names no tools")
    return {
        name: ReplayedTool(schema, answers.get(name, {}), file.name)
        for name, schema in schemas.items()
    }


def _entries(file: Path) -> list[tuple[int, dict[str, Any]]]:
    found: list[tuple[int, dict[str, Any]]] = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        what = f"the cassette cannot be read ({error})"
        raise ConfigError(what, where=str(file)) from None
    for number, line in enumerate(lines, start=1):
        try:
            entry: object = json.loads(line)
        except ValueError as error:
            raise _no_cassette(file, number, str(error)) from None
        if not isinstance(entry, dict):
            raise _no_cassette(file, number, "no JSON object")
        found.append((number, cast("dict[str, Any]", entry)))
    return found


def _no_cassette(file: Path, line: int, why: str) -> ConfigError:
    what = f"is no line of a cassette: {why}"
    return ConfigError(what, where=f"{file.name}:{line}", fix="Record it anew.")


def _answer(entry: Mapping[str, Any]) -> _Answer:
    output = ToolOutput(
        text=str(entry["output"]),
        is_error=bool(entry["is_error"]),
        status=int(entry.get("status", 0)),
    )
    return _Answer(item=str(entry.get("item", "")), output=output)


def _canonical(arguments: str) -> str:
    """Return arguments as text that is equal for equal values; what is no JSON stays as it is."""
    try:
        value: object = json.loads(arguments or "{}")
        return canonical_json(cast("dict[str, Any]", value))
    except (ValueError, RecursionError):
        return arguments


def _item(context: ToolContext) -> str:
    text = json.dumps(dict(context.item), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


_NO_ITEM = _item(ToolContext(trace_id=""))
