"""Real runs in processes of their own: tiny model, real policy process, real HTTP service."""

from __future__ import annotations

import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import Done
from tests.e2e.small_project import make_small_project

from learnloop.cli import main
from learnloop.project import Project
from learnloop.store import EventRecord, RunRecord

Moment = Callable[["Small"], bool]


@dataclass(frozen=True)
class Small:
    """A small project in a folder, and the command line on it."""

    root: Path

    def start(self, *words: str, deaf: bool = False, **environ: str) -> subprocess.Popen[str]:
        """Start a command; all but `init` are told the project's folder.

        A `deaf` one ignores SIGINT, as a shell starts its background jobs. The others never do,
        however the tests themselves were started.
        """
        env = {k: v for k, v in os.environ.items() if "__" not in k}
        where = () if words[0] == "init" else ("--project", str(self.root))
        command = [sys.executable, "-m", "learnloop", *words, *where]
        return subprocess.Popen(
            command,
            env={**env, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=partial(
                signal.signal, signal.SIGINT, signal.SIG_IGN if deaf else signal.SIG_DFL
            ),
        )

    def run(self, *words: str, **environ: str) -> Done:
        with self.start(*words, deaf=False, **environ) as process:
            out, err = process.communicate()
        return Done(code=process.returncode, out=out, err=err)

    def read(self, *words: str) -> Done:
        """Run a command that only reads, in this process: that is a second faster."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, "--project", str(self.root)])
        return Done(code=code, out=out.getvalue(), err=err.getvalue())

    def wait(self, when: Moment, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 120
        while not when(self):
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                pytest.fail(f"the moment did not come: {process.communicate()}")
            time.sleep(0.002)

    # --- what the store holds, read beside the running process ----------------------------------

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        database = self.root / ".learnloop" / "learnloop.db"
        if not database.exists():
            return []
        with sqlite3.connect(database) as connection:
            try:
                return connection.execute(query).fetchall()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error) and "locked" not in str(error):
                    raise
                return []  # its tables are being made

    def record(self) -> RunRecord:
        """Return the newest training run."""
        with Project.open(self.root).open_store() as store:
            return next(run for run in store.runs() if run.command == "train")

    def events(self) -> list[EventRecord]:
        run = self.record()
        with Project.open(self.root).open_store() as store:
            return store.events(run.id)

    def rollouts(self) -> list[tuple[object, ...]]:
        """Return every rollout of the newest training run: its place and what was sampled."""
        run = self.record()
        with Project.open(self.root).open_store() as store:
            places = {r.trace_id: (r.stage, r.step) for r in store.rows(run.id)}
            return sorted(
                (*places[t.id], t.task_id, t.attempt, tuple(x.token_ids for x in t.turns))
                for t in store.traces(run.id)
            )


def event(kind: str, step: int | None = None) -> Moment:
    """Return the moment at which an event is stored."""
    at = "" if step is None else f" and json_extract(data_json, '$.step') = {step}"
    query = f"select 1 from events where kind = '{kind}'{at}"
    return lambda small: bool(small.rows(query))


def rollouts(stage: str, count: int, step: int = 0) -> Moment:
    """Return the moment at which so many rollouts of a stage are stored."""
    query = f"select 1 from rollouts where stage = '{stage}' and step = {step}"
    return lambda small: len(small.rows(query)) >= count


def children_of(process_id: int) -> list[int]:
    """Return the processes that a process has started."""
    found = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    return [int(child) for child in found]


def is_policy(process_id: int) -> bool:
    return b"learnloop.policy" in Path(f"/proc/{process_id}/cmdline").read_bytes()


def kinds(events: list[EventRecord]) -> Counter[tuple[str, object]]:
    """Count the events that end a stage."""
    ends = {"warmup", "probe", "probe_after", "evaluation", "step", "checkpoint", "gate"}
    return Counter((e.kind, e.data.get("step")) for e in events if e.kind in ends)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Small, Done]:
    """Return a project with one finished training run, and how the command ended.

    Every test of the session sees the same one: those that add to it work on `copied`.
    """
    small = Small(make_small_project(tmp_path_factory.mktemp("undisturbed") / "small"))
    return small, small.run("train", "--json")


@pytest.fixture
def copied(undisturbed: tuple[Small, Done], tmp_path: Path) -> tuple[Small, Done]:
    """Return a copy of `undisturbed` that a test may change."""
    small, done = undisturbed
    root = tmp_path / "copied" / "small"
    shutil.copytree(small.root, root)
    return Small(root), done
