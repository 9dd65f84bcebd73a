"""The files of a small hosted job: rows, tools list, grader, arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learnloop.formats.openai_rft import Sources

SECRET = "sk-never-to-be-seen"
SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Finds.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    },
}
ENDPOINT: dict[str, Any] = {"type": "endpoint", "url": "https://grader.example/grade"}
STRING_CHECK: dict[str, Any] = {
    "type": "string_check",
    "name": "exact",
    "input": "{{ sample.output_text }}",
    "reference": "{{item.answer}}",
    "operation": "ilike",
}


def a_tool(**changes: Any) -> dict[str, Any]:
    return {"name": "search", "server_url": "https://tools.example/search", **changes}


def a_row(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Which is number {number}?"}],
        "tools": [SEARCH],
        "answer": f"the {number}th",
        **changes,
    }


def lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_job(
    folder: Path,
    *,
    train: str | bytes | None = None,
    validation: str | bytes | None = None,
    grader: Any = ENDPOINT,
    tools: Any = None,
    job: Any = None,
) -> Sources:
    """Write the files of a job and return where they are."""
    texts: dict[str, str | bytes] = {
        "train.jsonl": lines([a_row(n) for n in range(6)]) if train is None else train,
        "validation.jsonl": lines([a_row(n) for n in range(100, 112)])
        if validation is None
        else validation,
        "grader.json": json.dumps(grader),
        "tools.json": json.dumps([a_tool()] if tools is None else tools),
    }
    if job is not None:
        texts["job.json"] = json.dumps(job)
    for name, text in texts.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Sources(
        train=folder / "train.jsonl",
        validation=folder / "validation.jsonl",
        grader=folder / "grader.json",
        tools=folder / "tools.json",
        job=folder / "job.json" if job is not None else None,
    )
