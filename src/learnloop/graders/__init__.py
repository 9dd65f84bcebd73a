"""Implementations of the Grader contract, and the project's choice among them.

numeric string_check texts endpoint judge python_code citation budget   one kind each
combined       multi and cascade, graders made of graders
cost           shaping around the project's grader
spec           graders from their JSON; rewriting changes values of it
final_answer number similarity template formula version                 what they are made with
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from learnloop.config import GraderConfig
from learnloop.errors import ConfigError
from learnloop.grader import Grader
from learnloop.graders.cost import CostGrader, CostShape
from learnloop.graders.python_code import LIMITS, Runner
from learnloop.graders.rewriting import rewritten_urls, without_secrets
from learnloop.graders.spec import Spec, Surroundings, grader_from, needs_python
from learnloop.outbound import Outbound

__all__ = [
    "LIMITS",
    "Runner",
    "grader_of",
    "needs_python",
    "rewritten_urls",
    "spec_of",
    "without_secrets",
]

_NET = ("url", "headers", "timeout_s", "rate_limit", "secret")
_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "numeric": ("reference", "abs_tol", "rel_tol"),
    "string_check": ("reference", "operation"),
    "endpoint": (*_NET, "pass_threshold"),
    "multi": ("graders", "calculate_output", "correct", "pass_threshold"),
    "cascade": ("graders",),
}


def spec_of(config: GraderConfig, root: Path) -> Spec:
    """Return the project's grader as one object.

    Raises:
        ConfigError: an unknown type, or the file of a grader cannot be read.
    """
    if config.type == "file":
        return _from_file(root / config.file, config.file)
    if config.type not in _SETTINGS:
        raise ConfigError(
            f"unknown grader type {config.type!r}",
            where="[grader] type",
            fix=f"Use {', '.join(_SETTINGS)} or file.",
        )
    return {"type": config.type, **{key: getattr(config, key) for key in _SETTINGS[config.type]}}


def grader_of(
    config: GraderConfig,
    outbound: Outbound,
    *,
    root: Path | None = None,
    runner: Runner | None = None,
    spec: Spec | None = None,
) -> Grader:
    """Return the configured grader, with cost shaping around it when that has a weight.

    Args:
        config: its settings.
        outbound: the HTTP client.
        root: the project's folder.
        runner: runs Python graders; None where nothing will be graded.
        spec: the grader as one object, where it is not to be read from the settings.

    Raises:
        ConfigError: unknown type, missing or forbidden address, or settings out of range.
    """
    place = root or Path()
    around = Surroundings(outbound=outbound, environ=os.environ, root=place, runner=runner)
    inner = grader_from(spec or spec_of(config, place), around, where="[grader]")
    if config.cost_weight == 0:
        return inner
    shape = CostShape(
        weight=config.cost_weight,
        unit=config.cost_unit,
        free=config.cost_free,
        full=config.cost_full,
    )
    return CostGrader(inner, shape)


def _from_file(path: Path, name: str) -> Spec:
    try:
        found: object = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read ({error})", where=name) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {error}", where=name) from None
    if not isinstance(found, dict):
        raise ConfigError("holds no JSON object", where=name)
    return cast("dict[str, Any]", found)
