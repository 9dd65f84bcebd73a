"""Checks the arguments of a call against the tool's JSON schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NoReturn, cast

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError
from referencing import Registry

from learnloop.errors import ConfigError
from learnloop.message import ToolSchema

Checker = Callable[[object], Iterator[ValidationError]]

_LONGEST = 300


def argument_error(schema: ToolSchema, arguments: str) -> str:
    """Return what is wrong with a call's arguments in words the model can act on, or nothing.

    Raises:
        ConfigError: the schema itself is not a valid JSON schema.
    """
    try:
        value: object = json.loads(arguments, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        return f"error: arguments are not valid JSON: {error}"[:_LONGEST]
    if not isinstance(value, dict):
        return "error: arguments must be a JSON object"
    error = next(_checker(schema)(cast("object", value)), None)
    if error is None:
        return ""
    place = ".".join(str(p) for p in error.absolute_path)
    return f"error: invalid arguments{f' at {place}' if place else ''}: {error.message}"[:_LONGEST]


def _refused(constant: str) -> NoReturn:
    """Refuse NaN and the infinities, which are not JSON."""
    raise ValueError(f"{constant} is not JSON")


@lru_cache(maxsize=256)
def _checker(schema: ToolSchema) -> Checker:
    """Return the check that a schema stands for; it never fetches what a `$ref` points to."""
    try:
        parameters = cast("dict[str, Any]", json.loads(schema.parameters_json or "{}"))
        Draft202012Validator.check_schema(parameters)
    except (ValueError, SchemaError) as error:
        what = f"the parameters of tool {schema.name} are not a JSON schema: {error}"
        raise ConfigError(what.splitlines()[0], where=f"tool {schema.name}") from None
    validator: Any = Draft202012Validator(parameters, registry=Registry())
    return validator.iter_errors
