"""`learnloop.toml` in, one frozen `Config` out; every mistake is named with its line."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from learnloop.codec.limits import Problem, disagreements, range_problem, suggestion
from learnloop.codec.tomllines import KeyPath, key_lines, line_of
from learnloop.config import MASK, Config, public_url
from learnloop.errors import ConfigError, UsageError

ENV_PREFIX = "LEARNLOOP_"

_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "is too large",
    "float_type": "must be a number",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
    "missing": "is missing",
}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A configuration and, by dotted key, where each value that is no default came from."""

    config: Config
    origins: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class _Source:
    """The merged settings before validation, with the place of each."""

    tree: dict[str, Any]
    file: str
    lines: Mapping[KeyPath, int]
    places: dict[str, str] = field(default_factory=dict[str, str])

    def where(self, path: KeyPath) -> str:
        """Return `learnloop.toml:12`, or the variable or flag that set the key."""
        for end in range(len(path), 0, -1):
            if (place := self.places.get(dotted(path[:end]))) is not None:
                return place
        line = line_of(path, self.lines)
        return f"{self.file}:{line}" if line else self.file


def load_config(
    path: Path,
    *,
    environ: Mapping[str, str] = MappingProxyType({}),
    flags: Mapping[str, object] = MappingProxyType({}),
) -> Config:
    """Return the configuration of a project; `read_config` tells where each value came from."""
    return read_config(path, environ=environ, flags=flags).config


def read_config(
    path: Path,
    *,
    environ: Mapping[str, str] = MappingProxyType({}),
    flags: Mapping[str, object] = MappingProxyType({}),
) -> Loaded:
    """Read a TOML file, lay environment and flags over it, and check every value.

    Args:
        path: the TOML file.
        environ: the process environment; `LEARNLOOP_TRAIN__STEPS` sets `train.steps`.
        flags: values from the command line by dotted key, such as `{"train.steps": 2}`.

    Raises:
        ConfigError: with the line of the key, what is wrong, and the fix.
    """
    source = _read(path)
    for name, text in sorted(environ.items()):
        if name.startswith(ENV_PREFIX) and "__" in name:
            _overlay(source, name.removeprefix(ENV_PREFIX).lower().split("__"), text, place=name)
    for key, value in flags.items():
        place = f"--{key.rpartition('.')[2].replace('_', '-')}"
        _set(source, tuple(key.split(".")), value, place=place)
    problems = [*_unknown(source.tree, Config, ())]
    if not problems:
        config, problems = _validated(source.tree)
        if config is not None:
            problems = [*_numbers(source.tree, ()), *disagreements(config)]
            if not problems:
                return Loaded(config=config, origins=_origins(source))
    raise _error(source, problems)


def dotted(path: KeyPath) -> str:
    """Return a key's name as people write it: `tools[0].name`."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.removeprefix(".")


def _read(path: Path) -> _Source:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return _Source(tree=tomllib.loads(text), file=path.name, lines=key_lines(text))
    except FileNotFoundError:
        raise ConfigError(
            "no such file", where=str(path), fix="`learnloop init DIR` makes a project."
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", where=str(path)) from None
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8 text", where=path.name, fix="Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        what = re.sub(r"\s*\(at .*\)$", "", str(error))
        where = f"{path.name}:{found[1]}" if found else path.name
        raise ConfigError(f"is not valid TOML: {what}", where=where) from None


def _overlay(source: _Source, keys: list[str], text: str, *, place: str) -> None:
    """Set one key from a variable; text that is no TOML value stays text, as does a text field."""
    kind: object = Config
    for depth, key in enumerate(keys):
        if not is_dataclass(kind) or key not in _kinds(cast("type", kind)):
            known = tuple(_kinds(cast("type", kind))) if is_dataclass(kind) else ()
            hint = suggestion(key, known) if known else ""
            raise ConfigError(f"unknown setting `{'.'.join(keys)}`", where=place, fix=hint)
        kind = _kinds(cast("type", kind))[key]
        if get_origin(kind) is tuple and depth < len(keys) - 1:
            raise ConfigError("lists of tables are set in the file", where=place)
    _set(source, tuple(keys), text if kind is str else _toml_value(text), place=place)


def _toml_value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(source: _Source, keys: tuple[str, ...], value: object, *, place: str) -> None:
    node = source.tree
    for key in keys[:-1]:
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            raise UsageError(f"cannot set `{'.'.join(keys)}`", where=place)
        node = cast("dict[str, Any]", inner)
    node[keys[-1]] = value
    source.places[".".join(keys)] = place


@cache
def _kinds(kind: type) -> dict[str, object]:
    """Return the resolved type of each field of a configuration section."""
    return dict(get_type_hints(kind))


def _unknown(tree: object, kind: object, path: KeyPath) -> Iterator[Problem]:
    """Yield keys that no section knows, all the way down."""
    if get_origin(kind) is tuple and isinstance(tree, list):
        for index, entry in enumerate(cast("list[object]", tree)):
            yield from _unknown(entry, get_args(kind)[0], (*path, index))
    if not is_dataclass(kind) or not isinstance(tree, dict):
        return
    kinds = _kinds(cast("type", kind))
    for key, value in cast("dict[str, Any]", tree).items():
        if key in kinds:
            yield from _unknown(value, kinds[key], (*path, key))
        else:
            noun = "section" if isinstance(value, dict) else "setting"
            place = dotted((*path, key))
            yield Problem((*path, key), f"unknown {noun} `{place}`", suggestion(key, tuple(kinds)))


def _validated(tree: dict[str, Any]) -> tuple[Config | None, list[Problem]]:
    """Return the typed tree. JSON mode is strict on types yet takes lists for tuples."""
    try:
        text = json.dumps(tree, default=str)
        return TypeAdapter(Config).validate_json(text, strict=True), []
    except ValidationError as error:
        return None, [_type_problem(e["loc"], e["type"], e) for e in error.errors()]


def _type_problem(loc: KeyPath, kind: str, error: Mapping[str, Any]) -> Problem:
    is_secret = bool({"headers", "secret", "env"} & set(loc))
    shown = "" if is_secret or kind == "missing" else f", not {_short(error['input'])}"
    if kind == "literal_error":
        choices = tuple(re.findall(r"'([^']*)'", error["ctx"]["expected"]))
        value = str(error["input"])
        return Problem(loc, f"is `{value}`, not a choice", suggestion(value, choices))
    return Problem(loc, _WORDS.get(kind, str(error["msg"]).lower()) + shown)


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def _numbers(tree: object, path: KeyPath) -> Iterator[Problem]:
    """Yield numbers that are out of range, and those that are not finite."""
    if isinstance(tree, Mapping):
        for key, value in cast("Mapping[str, object]", tree).items():
            inner = path if path == ("curriculum", "weights") else (*path, key)
            yield from _numbers(value, inner)
    elif isinstance(tree, list):
        for index, value in enumerate(cast("list[object]", tree)):
            yield from _numbers(value, (*path, index))
    elif isinstance(tree, (int, float)) and not isinstance(tree, bool):
        if not math.isfinite(tree):
            yield Problem(path, "must be a finite number")
        elif (problem := range_problem(path, tree)) is not None:
            yield problem


def _error(source: _Source, problems: list[Problem]) -> ConfigError:
    first, more = problems[0], len(problems) - 1
    name = dotted(first.path)
    what = first.what if first.what.startswith("unknown") else f"`{name}` {first.what}"
    if more:
        what += f" ({more} more {'problem' if more == 1 else 'problems'} in this file)"
    return ConfigError(what, where=source.where(first.path), fix=first.fix)


def _origins(source: _Source) -> dict[str, str]:
    return {dotted(path): source.where(path) for path, _ in _leaves(source.tree, ())}


_HEADER_WORDS = re.compile(r"\$\{\w+\}|\b(?:Bearer|Basic|Token)\b|\s")


def public_config(config: Config) -> Config:
    """Return the configuration as it may be shown and stored.

    Masked are values of headers, `env` and secrets that hold more than references to the environment, and
    the user,
    password and query values of addresses.
    """
    tools = tuple(
        replace(
            t,
            headers=_masked(t.headers),
            secret=_masked({"": t.secret})[""],
            server_url=public_url(t.server_url),
            episode_end_url=public_url(t.episode_end_url),
        )
        for t in config.tools
    )
    mcp = tuple(
        replace(m, headers=_masked(m.headers), env=_masked(m.env), url=public_url(m.url))
        for m in config.mcp
    )
    services = tuple(replace(s, ready_url=public_url(s.ready_url)) for s in config.services)
    graded = config.grader
    grader = replace(
        graded,
        headers=_masked(graded.headers),
        secret=_masked({"": graded.secret})[""],
        url=public_url(graded.url),
        graders=_public_specs(graded.graders),
    )
    return replace(config, tools=tools, mcp=mcp, services=services, grader=grader)


def _public_specs(specs: Mapping[str, Any]) -> dict[str, Any]:
    """Return graders inside a grader as they may be shown, all the way down."""
    return {name: _public_spec(name, value) for name, value in specs.items()}


def _public_spec(key: str, value: Any) -> Any:
    if key == "headers" and isinstance(value, Mapping):
        return _masked({str(k): str(v) for k, v in cast("Mapping[Any, Any]", value).items()})
    if isinstance(value, Mapping):
        return _public_specs(cast("Mapping[str, Any]", value))
    if isinstance(value, list | tuple):
        return [_public_spec(key, one) for one in cast("list[Any]", value)]
    if isinstance(value, str) and key in ("secret", "api_key"):
        return _masked({"": value})[""]
    return public_url(value) if isinstance(value, str) and key in ("url", "base_url") else value


def _masked(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v if not _HEADER_WORDS.sub("", v) else MASK for k, v in headers.items()}


def config_tree(config: Config) -> dict[str, Any]:
    """Return the public configuration as plain JSON values."""
    return TypeAdapter(Config).dump_python(public_config(config), mode="json")


def config_json(config: Config) -> str:
    """Return the canonical JSON of a configuration, without secrets: equal settings, equal text."""
    return json.dumps(config_tree(config), sort_keys=True, separators=(",", ":"))


def config_hash(config: Config) -> str:
    """Return `cfg_` and 16 hex digits that name a configuration."""
    return "cfg_" + hashlib.sha256(config_json(config).encode()).hexdigest()[:16]


def config_from_json(text: str) -> Config:
    """Return the configuration that `config_json` wrote (masked headers stay masked)."""
    return TypeAdapter(Config).validate_json(text, strict=True)


def config_leaves(config: Config) -> dict[str, Any]:
    """Return every setting by dotted name, as `config show` prints them."""
    return _flat(config_tree(config))


def config_changes(before: str, after: str) -> list[str]:
    """Return the dotted names of settings that differ between two `config_json` texts.

    A setting that did not exist when the first one was written counts as its default.
    """
    told = _flat(json.loads(before))
    full = _flat(json.loads(config_json(config_from_json(before))))
    old, new = {**full, **told}, _flat(json.loads(after))
    return sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))


def _flat(tree: object) -> dict[str, Any]:
    return {dotted(path): value for path, value in _leaves(tree, ())}


def _leaves(tree: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    """Yield every value that is no table; a list counts as one value unless it holds tables."""
    children: list[tuple[str | int, object]] = []
    if isinstance(tree, dict):
        children = list(cast("dict[str | int, object]", tree).items())
    elif isinstance(tree, list) and any(isinstance(x, dict) for x in cast("list[object]", tree)):
        children = list(enumerate(cast("list[object]", tree)))
    if not children:
        yield path, tree
    for key, value in children:
        yield from _leaves(value, (*path, key))
