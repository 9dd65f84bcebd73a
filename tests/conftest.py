"""What every test may use: leave to skip when a part of the system is missing, and clean settings.

A test marked `@pytest.mark.needs("chromium")` skips on a machine without Chromium, unless
LEARNLOOP_REQUIRE (a comma-separated list, set by `.ci/run`) names it: then the test fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from learnloop.errors import ConfigError
from learnloop.models.registry import resolve
from learnloop.tools.corpus.embedding import embedding_version


def chromium_problem() -> str:
    """Return why Chromium cannot be used; empty when it can."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    return "" if found else "no chromium on PATH"


def bubblewrap_problem() -> str:
    """Return why bubblewrap cannot be used; it may be installed and yet not permitted."""
    program = shutil.which("bwrap")
    if program is None:
        return "no bwrap on PATH"
    trial = subprocess.run([program, "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    return "" if trial.returncode == 0 else f"bwrap does not work here: {trial.stderr.strip()}"


def model_problem() -> str:
    """Return why the embedded model cannot be used; empty when it is in the cache and whole."""
    try:
        resolve("smollm2-135m")
    except ConfigError as error:
        return error.line()
    return ""


@cache
def semantic_problem() -> str:
    """Return why the embedding model of the extra `[semantic]` cannot be used; empty when it can.

    Kept, as it reads the whole model.
    """
    try:
        embedding_version()
    except ConfigError as error:
        return error.line()
    return ""


PARTS: dict[str, Callable[[], str]] = {
    "chromium": chromium_problem,
    "bubblewrap": bubblewrap_problem,
    "model": model_problem,
    "semantic": semantic_problem,
}


def demanded() -> set[str]:
    """Return the parts whose absence is a failure and not a skip."""
    return {name for name in os.environ.get("LEARNLOOP_REQUIRE", "").split(",") if name}


def pytest_configure(config: pytest.Config) -> None:
    unknown = demanded() - PARTS.keys()
    if unknown:
        raise pytest.UsageError(
            f"LEARNLOOP_REQUIRE names {sorted(unknown)}; known: {sorted(PARTS)}"
        )


def need(name: str) -> None:
    """Skip the running test, or fail it when CI demands the part, unless `name` is usable."""
    problem = PARTS[name]()
    if problem:
        _stop(name, problem)


def _stop(name: str, problem: str) -> NoReturn:
    if name in demanded():
        pytest.fail(f"{name} is required: {problem}", pytrace=False)
    pytest.skip(f"needs {name}: {problem}")


@pytest.fixture(autouse=True)
def needed_parts(request: pytest.FixtureRequest) -> None:
    """Honour the `needs` marker before a test's own fixtures start anything."""
    for marker in request.node.iter_markers("needs"):
        for name in marker.args:
            need(str(name))


@pytest.fixture
def require() -> Callable[[str], None]:
    """Return `need`, for a test that learns only while running what it needs."""
    return need


@pytest.fixture
def model_folder() -> Path:
    """Return the embedded model's folder, or skip (see `needs`)."""
    need("model")
    return resolve("smollm2-135m")


@pytest.fixture(autouse=True)
def quiet_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide settings of the developer's shell that would change what a test sees."""
    for name in os.environ:
        if name.startswith("LEARNLOOP_") and "__" in name:
            monkeypatch.delenv(name)
