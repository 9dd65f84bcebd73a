"""The two JSONL files of a hosted job as one dataset: rows unchanged, with id, group and split."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from learnloop.codec import (
    RowError,
    content_id,
    load_rows,
    message_from_chat,
    row_label,
    schema_from_chat,
)
from learnloop.codec.limits import suggestion
from learnloop.errors import ConfigError, UsageError
from learnloop.outbound import MAX_BYTES
from learnloop.splits import asked_text, divide_held_out
from learnloop.task import SPLITS, Split, field_of

_OURS = ("id", "group", "split")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What rows are held against: the names of served tools, and what the grader compares with.

    `group_by` names the field that rows of one group share; empty takes `group`, or the question.
    """

    tools: tuple[str, ...] = ()
    reference: str = ""
    group_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Both files as rows of one dataset, training rows first."""

    rows: tuple[Mapping[str, Any], ...]
    sizes: Mapping[Split, int] = field(default_factory=dict[Split, int])
    held_out_groups: int = 0
    shared_groups: int = 0
    without_tools: int = 0
    without_system: int = 0
    renamed: tuple[str, ...] = ()

    def jsonl(self) -> str:
        """Return the rows as JSONL; plain ASCII, so that half a surrogate pair can be written."""
        return "".join(json.dumps(row) + "\n" for row in self.rows)


def read_dataset(train: Path, validation: Path, rules: Rules) -> Dataset:
    """Read both files; the validation file is divided by group into screen, confirm and test.

    Raises:
        ConfigError: a bad row, named by file and line, or an id that two rows share.
        UsageError: both are the same file.
    """
    if train.resolve() == validation.resolve():
        fix = "Held-out rows must be others than those for training."
        raise UsageError("is the file of --train too", where=f"--validation {validation}", fix=fix)
    files = [
        load_rows(path, lambda row: _check(row, rules), max_bytes=MAX_BYTES)
        for path in (train, validation)
    ]
    ids = _ids([(train, files[0]), (validation, files[1])])
    rows = [row for file in files for _, row in file]
    groups = [_group(row, row_id, rules) for row, row_id in zip(rows, ids, strict=True)]
    held_out = groups[len(files[0]) :]
    split_of = divide_held_out(held_out)
    splits: list[Split] = []
    splits.extend("train" for _ in files[0])
    splits.extend(split_of[group] for group in held_out)
    placed = tuple(map(_placed, rows, ids, groups, splits))
    return Dataset(
        rows=placed,
        sizes={split: Counter(splits)[split] for split in SPLITS},
        held_out_groups=len(split_of),
        shared_groups=len({*groups[: len(files[0])]} & {*held_out}),
        without_tools=sum(not row.get("tools") for row in rows),
        without_system=sum(_first_role(row) not in {"system", "developer"} for row in rows),
        renamed=tuple(k for k in _OURS if any(f"imported_{k}" in row for row in placed)),
    )


def _check(row: Mapping[str, Any], rules: Rules) -> None:
    """Raise ValueError for a row that could not be used."""
    messages: object = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RowError("has no `messages`", 'Add `"messages": [{"role": "user", ...}]`.')
    roles = [message_from_chat(m).role for m in cast("list[object]", messages)]
    if roles[-1] != "user":
        fix = "End `messages` with what the user asks."
        raise RowError(f"the last message is from `{roles[-1]}`, not `user`", fix)
    _check_tools(row.get("tools"), rules.tools)
    for label in ("id", "group", "kind"):
        row_label(row, label)
    if rules.group_by and not isinstance(row.get(rules.group_by), str | int):
        what = "is neither text nor a whole number" if rules.group_by in row else "is missing"
        fix = "Name a field that says what belongs together, such as a document's name."
        raise RowError(f"`{rules.group_by}`, which --group names, {what}", fix)
    if rules.reference and not isinstance(field_of(row, rules.reference), str):
        raise RowError(f"has no text `{rules.reference}`, which the grader compares with")
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        raise RowError("holds a number that is too large for JSON") from None


def _check_tools(data: object, known: tuple[str, ...]) -> None:
    if data is None:
        return
    if not isinstance(data, list):
        raise RowError("`tools` must be a list")
    names = [schema_from_chat(tool).name for tool in cast("list[object]", data)]
    for name in names:
        if name not in known:
            fix = suggestion(name, known) if known else "Name the tools list with --tools."
            raise RowError(f"names a tool `{name}` that the tools list does not have", fix)
    if len({*names}) < len(names):
        raise RowError("names a tool twice")


def _ids(files: Sequence[tuple[Path, Sequence[tuple[int, dict[str, Any]]]]]) -> list[str]:
    """Return an id for every row: its own, or one of its content, numbered where rows are equal."""
    first: dict[str, str] = {}
    repeats = Counter[str]()
    ids: list[str] = []
    for path, rows in files:
        for line, row in rows:
            own = row_label(row, "id")
            if own and own in first:
                what = f"id `{own}` is already used on {first[own]}"
                raise ConfigError(what, where=f"{path}:{line}", fix="Ids must be unique.")
            name = own or content_id("task", row)
            repeats[name] += 1
            ids.append(name if own or repeats[name] == 1 else f"{name}-{repeats[name]}")
            first[ids[-1]] = f"{path}:{line}"
    return ids


def _group(row: Mapping[str, Any], row_id: str, rules: Rules) -> str:
    if rules.group_by:
        return str(row[rules.group_by])
    if own := row_label(row, "group"):
        return own
    asked = asked_text(message_from_chat(m) for m in row["messages"])
    digest = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
    return f"question_{digest[:16]}" if asked else row_id


def _placed(row: Mapping[str, Any], row_id: str, group: str, split: Split) -> dict[str, Any]:
    """Return a row with our three fields; a different value of its own is kept beside ours."""
    ours = {"id": row_id, "group": group, "split": split}
    kept = {f"imported_{key}": row[key] for key in _OURS if _differs(row, key, ours[key])}
    return {**row, **ours, **kept}


def _differs(row: Mapping[str, Any], key: str, ours: str) -> bool:
    return key in row and str(row[key]) != ours


def _first_role(row: Mapping[str, Any]) -> str:
    return str(row["messages"][0].get("role"))


def label_lines(dataset: Dataset) -> Iterator[str]:
    """Yield what a reader must know about the rows."""
    sizes = ", ".join(f"{split} {dataset.sizes[split]}" for split in SPLITS)
    yield f"{len(dataset.rows)} rows: {sizes}"
    if not dataset.sizes["test"]:
        yield (
            f"no sealed test: the validation file has {dataset.held_out_groups} groups, and a test "
            "needs 100"
        )
    if dataset.shared_groups:
        yield (
            f"{dataset.shared_groups} groups are in both files, which `check` calls a leak: rows of one "
            "group belong on one side; --group names another field to group by"
        )
    for name in dataset.renamed:
        yield f"rows had a `{name}` of their own; it is kept as `imported_{name}`"
