"""Runs the real command line in a process of its own, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_project import make_project

PROGRAM = "import sys; from learnloop.cli import main; sys.exit(main())"


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the one JSON object of stdout."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """Return the one line of stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


Learnloop = Callable[..., Done]


@pytest.fixture
def learnloop(tmp_path: Path) -> Learnloop:
    """Return a function that runs `learnloop WORDS...` in a folder."""

    def run(*words: str | Path, cwd: Path = tmp_path, **environ: str) -> Done:
        env = {**os.environ, "LEARNLOOP_CACHE": str(tmp_path / "cache"), **environ}
        command = [sys.executable, "-c", PROGRAM, *map(str, words)]
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
        return Done(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project that passes the check."""
    return make_project(tmp_path / "tiny")
