"""report.json keeps to its published schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from tests.render.write_schema import SCHEMA, schema_text
from tests.sample_run import empty_inputs, partial_inputs, sample_inputs

from learnloop.report import SCHEMA_VERSION, ReportInputs, build, report_to_json


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return loaded


@pytest.mark.parametrize(
    "inputs",
    [empty_inputs(), partial_inputs(4), sample_inputs(), sample_inputs(warm=False, opened=False)],
    ids=["started", "training", "finished", "sealed"],
)
def test_a_report_of_any_moment_fits_the_schema(
    inputs: ReportInputs, schema: dict[str, Any]
) -> None:
    loaded = json.loads(report_to_json(build(inputs)))
    jsonschema.validate(loaded, schema)
    assert loaded["schema_version"] == SCHEMA_VERSION


def test_a_field_that_the_schema_does_not_name_is_refused(schema: dict[str, Any]) -> None:
    loaded = json.loads(report_to_json(build(empty_inputs())))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**loaded, "extra": 1}, schema)


def test_the_schema_file_is_what_the_dataclasses_say() -> None:
    words = (
        "the report changed: python -m tests.render.write_schema (and SCHEMA_VERSION, if it breaks)"
    )
    assert SCHEMA.read_text(encoding="utf-8") == schema_text(), words
