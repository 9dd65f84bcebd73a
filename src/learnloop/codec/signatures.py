"""What a Python function takes, as a JSON schema, and JSON arguments as values for it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from docstring_parser import parse
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

_KEPT = frozenset({"default", "const", "enum", "examples"})
"""Keys of a JSON schema whose values are the user's own data."""


class SignatureError(ValueError):
    """A function cannot be offered as a tool; the text says why."""


class ArgumentsError(ValueError):
    """Arguments do not fit a function; the text may be shown to the model."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """How a function is called: what the model is told, and which parameters it must not see."""

    description: str
    parameters: Mapping[str, Any]
    hidden: tuple[str, ...]
    adapter: TypeAdapter[Any]

    def values(self, arguments: str) -> dict[str, Any]:
        """Return the function's keyword arguments from a call's JSON text.

        Raises:
            ArgumentsError: they do not fit; the first problem in words.
        """
        try:
            return cast("dict[str, Any]", self.adapter.validate_json(arguments or "{}"))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ArgumentsError(f"{place}: {first['msg']}" if place else first["msg"]) from None


def read_signature(function: Callable[..., Any], *, hidden: type) -> Signature:
    """Return what a function takes, by its annotations and its docstring.

    Args:
        function: the function.
        hidden: parameters of this type are left out of the schema.

    Raises:
        SignatureError: it takes what JSON arguments by name cannot give.
    """
    hints = _hints(function)
    shown: list[inspect.Parameter] = []
    left_out: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if hints.get(parameter.name) is hidden:
            left_out.append(parameter.name)
        else:
            shown.append(_by_name(parameter, hints.get(parameter.name, parameter.annotation)))
    adapter, schema = _adapter(shown)
    docstring = parse(inspect.getdoc(function) or "")
    texts = (docstring.short_description, docstring.long_description)
    described = {p.arg_name: " ".join((p.description or "").split()) for p in docstring.params}
    return Signature(
        description="\n\n".join(text for text in texts if text),
        parameters=_described(schema, described),
        hidden=tuple(left_out),
        adapter=adapter,
    )


def json_text(value: object) -> str:
    """Return any value that a function may return as JSON text: models, dates, dataclasses too.

    Raises:
        ValueError: it has no JSON form.
    """
    data: object = TypeAdapter(Any).dump_python(value, mode="json")
    return json.dumps(data, ensure_ascii=False)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations as types, those that are written as text too."""
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise SignatureError(f"its annotations cannot be read ({error})") from None


def _by_name(parameter: inspect.Parameter, annotation: object) -> inspect.Parameter:
    """Return a parameter that is given by name. Refuses those that cannot be."""
    kind = parameter.kind
    if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        mark = "*" if kind is inspect.Parameter.VAR_POSITIONAL else "**"
        raise SignatureError(f"it takes `{mark}{parameter.name}`; give every parameter a name")
    if kind is inspect.Parameter.POSITIONAL_ONLY:
        raise SignatureError(f"its parameter `{parameter.name}` is positional-only")
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _adapter(shown: list[inspect.Parameter]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return what checks arguments for these parameters, and its JSON schema."""

    def collect(**values: Any) -> dict[str, Any]:
        return values

    # Pydantic reads the stand-in as it would the function, and hands the values back.
    stand_in: Any = collect
    stand_in.__signature__ = inspect.Signature(shown)
    stand_in.__annotations__ = {p.name: p.annotation for p in shown}
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(stand_in)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        first = str(error).splitlines()[0]
        raise SignatureError(f"an annotation has no JSON schema ({first})") from None


def _described(schema: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema without titles, which only repeat names, and with the docstring's words."""
    plain = cast("dict[str, Any]", _untitled(schema))
    properties = cast("dict[str, dict[str, Any]]", plain.setdefault("properties", {}))
    for name, value in properties.items():
        if texts.get(name):
            value.setdefault("description", texts[name])
    return plain


def _untitled(node: object) -> object:
    if isinstance(node, list):
        return [_untitled(child) for child in cast("list[object]", node)]
    if not isinstance(node, dict):
        return node
    items = cast("dict[str, object]", node).items()
    return {
        key: value if key in _KEPT else _untitled(value)
        for key, value in items
        if not (key == "title" and isinstance(value, str))
    }
