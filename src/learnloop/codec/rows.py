"""Datasets: JSONL in, tasks and demonstrations out; a bad row is named with its line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn, TypeVar, cast

from learnloop.codec.chat import canonical_json, message_from_chat, schema, schema_from_chat
from learnloop.codec.limits import suggestion
from learnloop.config import Config
from learnloop.errors import ConfigError
from learnloop.message import Message, ToolSchema
from learnloop.splits import assign_splits
from learnloop.task import SPLITS, Split, Task, field_of


@dataclass(frozen=True, kw_only=True)
class Demo:
    """One demonstration for the warm-up: a whole conversation that ends with the assistant.

    `task_id` names the task it solves; empty when the row does not say.
    """

    id: str
    task_id: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()


Entry = TypeVar("Entry", Task, Demo)

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class _Rules:
    """What rows are held against: the configuration and what follows from it."""

    config: Config
    system_prompt: str
    schemas: tuple[ToolSchema, ...]
    tool_names: tuple[str, ...]


class _Fault(NamedTuple):
    """One bad row: its line, what is wrong, how to mend it."""

    line: int
    what: str
    fix: str = ""


class RowError(ValueError):
    """A fault of one row in words for the user, with its remedy."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix


def load_tasks(
    path: Path, config: Config, *, system_prompt: str = "", schemas: Sequence[ToolSchema] = ()
) -> list[Task]:
    """Return the tasks of a dataset, in file order.

    `schemas` are those of tools whose own words tell the model of them: functions, MCP, corpus.

    Rows without `id` get one from their content; rows without `group` are a group of their own.
    Splits come from the rows or, for a dataset that brings none, from `splits.py`. A row that
    starts with its own system message keeps it; the others start with `system_prompt`.

    Raises:
        ConfigError: naming the first bad row by file and line, and how many more there are.
    """
    label, rules = config.data.path, _rules(config, system_prompt, schemas)
    drafts = _read(path, label, lambda row: _task(row, rules))
    if not drafts:
        raise ConfigError("holds no tasks", where=label)
    missing = [line for line, task in drafts if "split" not in task.item]
    tasks = [task for _, task in drafts]
    if len(missing) == len(drafts):
        chosen = assign_splits([t.group for t in tasks], config.splits)
        return [replace(task, split=chosen[task.group]) for task in tasks]
    if missing:
        faults = [_Fault(line, "has no `split` though other rows do") for line in missing]
        _fail(label, faults)
    return tasks


def load_demos(
    path: Path, config: Config, *, system_prompt: str = "", schemas: Sequence[ToolSchema] = ()
) -> list[Demo]:
    """Return the first `warmup.limit` demonstrations of a file.

    A row is `{"messages": [...], "tools"?: [...], "id"?: ..., "task_id"?: ...}`; its last message
    is the assistant's.

    Raises:
        ConfigError: naming the first bad row by file and line, and how many more there are.
    """
    rules = _rules(config, system_prompt, schemas)
    found = _read(path, config.warmup.path, lambda row: _demo(row, rules))
    if not found:
        raise ConfigError("holds no demonstrations", where=config.warmup.path)
    return [demo for _, demo in found][: config.warmup.limit]


def load_rows(
    path: Path, check: Callable[[dict[str, Any]], None], *, max_bytes: int
) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of any JSONL file as they are, each with its line.

    Args:
        path: the file; its name as given stands in errors.
        check: raises RowError or another ValueError for a row that cannot be used.
        max_bytes: longest row; a longer one is a fault and is never held in memory.

    Raises:
        ConfigError: naming the first bad row by file and line, and how many more there are.
    """
    rows: list[tuple[int, dict[str, Any]]] = []
    faults: list[_Fault] = []
    for line, raw in _lines(path, str(path), max_bytes):
        try:
            if len(raw) > max_bytes:
                what = f"is longer than {max_bytes} bytes, the most that one request may hold"
                raise RowError(what, "A whole row goes along with every tool call: shorten it.")
            row = _row(raw)
            check(row)
            rows.append((line, row))
        except ValueError as error:
            faults.append(_Fault(line, str(error), getattr(error, "fix", "")))
    if faults:
        _fail(str(path), faults)
    if not rows:
        raise ConfigError("holds no rows", where=str(path))
    return rows


def config_schemas(config: Config) -> tuple[ToolSchema, ...]:
    """Return the tool schemas that the configuration itself brings, for rows without `tools`."""
    return tuple(
        schema(t.name, t.description, t.parameters)
        for t in config.tools
        if not t.function and (t.description or t.parameters)
    )


def _rules(config: Config, system_prompt: str, schemas: Sequence[ToolSchema]) -> _Rules:
    names = (*(t.name for t in config.tools), *(s.name for s in schemas))
    return _Rules(
        config=config,
        system_prompt=system_prompt,
        schemas=(*config_schemas(config), *schemas),
        tool_names=tuple(dict.fromkeys(names)),
    )


def _read(
    path: Path, label: str, build: Callable[[dict[str, Any]], Entry]
) -> list[tuple[int, Entry]]:
    """Build an entry from every row; all rows are read before the first fault is raised."""
    entries: list[tuple[int, Entry]] = []
    faults: list[_Fault] = []
    first_line: dict[str, int] = {}
    for line, raw in _lines(path, label):
        try:
            entry = build(_row(raw))
        except ValueError as error:
            faults.append(_Fault(line, str(error), getattr(error, "fix", "")))
            continue
        if (earlier := first_line.setdefault(entry.id, line)) != line:
            faults.append(_Fault(line, f"id `{entry.id}` is already used on line {earlier}"))
        entries.append((line, entry))
    if faults:
        _fail(label, faults)
    return entries


def _fail(label: str, faults: list[_Fault]) -> NoReturn:
    first, more = faults[0], len(faults) - 1
    tail = f" ({more} more bad {'row' if more == 1 else 'rows'})" if more else ""
    raise ConfigError(first.what + tail, where=f"{label}:{first.line}", fix=first.fix)


def _lines(path: Path, label: str, max_bytes: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that hold something, counted from 1; of a too long one only its beginning."""
    try:
        with path.open("rb") as file:
            for number in count(1):
                if not (raw := file.readline(max_bytes + 1 if max_bytes >= 0 else -1)):
                    return
                if len(raw) > max_bytes >= 0:
                    _skip_line(file, raw)
                raw = raw.removeprefix(_BOM) if number == 1 else raw
                if raw.strip():
                    yield number, raw
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", where=label) from None


def _skip_line(file: BinaryIO, raw: bytes) -> None:
    """Read on to the end of a line, a piece at a time."""
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(1 << 20)


def _row(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError:
        raise RowError("is not UTF-8 text", "Save the file as UTF-8.") from None
    except json.JSONDecodeError as error:
        raise RowError(f"is not valid JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise RowError("is nested too deeply") from None
    if not isinstance(data, dict):
        raise RowError("must be a JSON object")
    return cast("dict[str, Any]", data)


def _no_constant(name: str) -> NoReturn:
    raise RowError(f"is not valid JSON: {name} is no JSON number")


def _task(row: dict[str, Any], rules: _Rules) -> Task:
    messages = _messages(row, rules)
    if messages[-1].role != "user":
        raise RowError(
            f"the last message is from `{messages[-1].role}`, not `user`",
            "End `messages` with what the user asks.",
        )
    _check_reference(row, rules.config)
    row_id = row_label(row, "id") or content_id("task", row)
    return Task(
        id=row_id,
        split=_split(row),
        group=row_label(row, "group") or row_id,
        messages=messages,
        tools=_tools(row, rules),
        kind=row_label(row, "kind"),
        item=row,
    )


def _demo(row: dict[str, Any], rules: _Rules) -> Demo:
    messages = _messages(row, rules)
    if messages[-1].role != "assistant":
        raise RowError(
            f"the last message is from `{messages[-1].role}`, not `assistant`",
            "End `messages` with the answer to learn.",
        )
    row_id = row_label(row, "id") or content_id("demo", row)
    return Demo(
        id=row_id,
        task_id=row_label(row, "task_id"),
        messages=messages,
        tools=_tools(row, rules),
    )


def _messages(row: dict[str, Any], rules: _Rules) -> tuple[Message, ...]:
    data = row.get("messages")
    if not isinstance(data, list) or not data:
        raise RowError("has no `messages`", 'Add `"messages": [{"role": "user", ...}]`.')
    messages = tuple(message_from_chat(m) for m in cast("list[object]", data))
    if messages[0].role == "system" or not rules.system_prompt:
        return messages
    return (Message(role="system", content=rules.system_prompt), *messages)


def _tools(row: dict[str, Any], rules: _Rules) -> tuple[ToolSchema, ...]:
    data = row.get("tools")
    if data is None:
        return rules.schemas
    if not isinstance(data, list):
        raise RowError("`tools` must be a list")
    tools = tuple(schema_from_chat(t) for t in cast("list[object]", data))
    for tool in tools:
        if tool.name not in rules.tool_names:
            raise RowError(
                f"names a tool `{tool.name}` that the project does not have",
                suggestion(tool.name, rules.tool_names)
                if rules.tool_names
                else "Add a [[tools]] section for it.",
            )
    if len({t.name for t in tools}) < len(tools):
        raise RowError("names a tool twice")
    return tools


def row_label(row: Mapping[str, Any], key: str) -> str:
    """Return a label of the row as text; empty when the row has none."""
    value = row.get(key)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise RowError(f"`{key}` must be text")
    if not str(value).strip():
        raise RowError(f"`{key}` is empty", "Fill it in or leave it out.")
    return str(value)


def _split(row: dict[str, Any]) -> Split:
    if "split" not in row:
        return "train"
    if row["split"] not in SPLITS:
        name = str(row["split"])
        raise RowError(f"split `{name}` is unknown", suggestion(name, SPLITS))
    return row["split"]


def _check_reference(row: dict[str, Any], config: Config) -> None:
    """Refuse a row that the project's grader could never grade."""
    key = config.grader.reference
    if config.grader.type not in ("numeric", "string_check"):
        return
    fix = "Add it, or name the right field in `grader.reference`."
    gold: object = field_of(row, key)
    if gold is None:
        raise RowError(f"has no `{key}`, which the {config.grader.type} grader needs", fix)
    if config.grader.type == "numeric" and not _is_number(gold):
        raise RowError(f"`{key}` is not a number", fix)
    if config.grader.type == "string_check" and not isinstance(gold, str):
        raise RowError(f"`{key}` is not text", fix)


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        return any(character.isdigit() for character in value)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def content_id(prefix: str, row: Mapping[str, Any]) -> str:
    """Return an id that rows of equal content share."""
    digest = hashlib.sha256(canonical_json(row).encode("utf-8", "surrogatepass"))
    return f"{prefix}_{digest.hexdigest()[:16]}"
