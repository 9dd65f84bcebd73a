"""One JSON value from a file; every mistake is one line that names the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

from learnloop.errors import ConfigError


def read_json(path: Path) -> object:
    """Return what a JSON file holds.

    Raises:
        ConfigError: it cannot be read or is no JSON; names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_constant)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", where=str(path), fix="Save it as UTF-8.") from None
    except json.JSONDecodeError as error:
        what = f"is not valid JSON: {error.msg} at column {error.colno}"
        raise ConfigError(what, where=f"{path}:{error.lineno}") from None
    except RecursionError:
        raise ConfigError("is nested too deeply", where=str(path)) from None
    except ValueError as error:
        what = "a number has too many digits" if "digits" in str(error) else str(error)
        raise ConfigError(f"is not valid JSON: {what}", where=str(path)) from None


def table(value: object, where: str) -> Mapping[str, Any]:
    """Return a value as a JSON object.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(value, dict):
        raise ConfigError("must be a JSON object", where=where)
    return cast("dict[str, Any]", value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
