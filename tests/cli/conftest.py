"""Runs the real command line in a process of its own, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import Done
from tests.tiny_project import make_project

PROGRAM = "import sys; from learnloop.cli import main; sys.exit(main())"


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
