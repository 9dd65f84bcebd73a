"""A task: one row of a dataset, with a stable id and a split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from learnloop.message import Message, ToolSchema

Split = Literal["train", "screen", "confirm", "test"]
SPLITS: tuple[Split, ...] = ("train", "screen", "confirm", "test")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One row: messages to start from, tool schemas, and the row as the grader needs it.

    Attributes:
        id: stable name, unique in the dataset.
        split: which of the four splits it belongs to.
        group: tasks of one group (document, template, company) stay in one split.
        kind: a label for slices in reports; empty when the row has none.
        item: the whole row, gold answer included; never shown to the agent's code.
    """

    id: str
    split: Split
    group: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...]
    kind: str = ""
    item: Mapping[str, Any] = field(default_factory=dict[str, Any])


def field_of(item: Mapping[str, Any], path: str) -> Any:
    """Return a field of a row: of that name, or by the path `outer.inner`; None where there is none."""
    if path in item:
        return item[path]
    outer, dot, inner = path.partition(".")
    value = item.get(outer) if dot else None
    return field_of(cast("Mapping[str, Any]", value), inner) if isinstance(value, Mapping) else None
