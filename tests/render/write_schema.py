"""Writes report.schema.json from the report's dataclasses: python -m tests.render.write_schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

import learnloop.render
from learnloop.report import Report

SCHEMA = Path(learnloop.render.__file__).parent / "report.schema.json"


def schema_text() -> str:
    """Return the schema of report.json: every field required, none beside them."""
    made = TypeAdapter(Report).json_schema(mode="serialization")
    for part in [made, *made.get("$defs", {}).values()]:
        _close(part)
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["title"] = "learnloop report"
    return json.dumps(made, indent=2, sort_keys=True) + "\n"


def _close(part: dict[str, Any]) -> None:
    if "properties" in part:
        part["additionalProperties"] = False
        part["required"] = sorted(cast(dict[str, Any], part["properties"]))


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
