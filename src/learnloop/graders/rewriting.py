"""A grader's spec with some of its values changed, however deep they are nested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

_SECRETS = ("headers", "secret", "api_key")


def rewritten_urls(spec: Mapping[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """Return a spec with every address changed."""
    return {key: _rewritten(key, value, change) for key, value in spec.items()}


def _rewritten(key: str, value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return rewritten_urls(cast("Mapping[str, Any]", value), change)
    return change(value) if key in ("url", "base_url") and isinstance(value, str) else value


def without_secrets(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec without what only opens doors: it is no part of what the grader says."""
    kept = {key: value for key, value in spec.items() if key not in _SECRETS}
    if isinstance(inner := kept.get("graders"), Mapping):
        named = cast("Mapping[str, Any]", inner)
        kept["graders"] = {
            name: without_secrets(cast("Mapping[str, Any]", one))
            if isinstance(one, Mapping)
            else one
            for name, one in named.items()
        }
    # A judge without a key named takes one of the environment, which need not be there for a version.
    return {**kept, "api_key": ""} if "model" in spec else kept
