"""A grader in Python: the user's `grade(sample, item)`, run in the sandbox."""

from __future__ import annotations

import json
import math
import secrets
from typing import Protocol

from learnloop.errors import GraderError
from learnloop.graders.endpoint import sample_of
from learnloop.graders.version import version_of
from learnloop.sandbox import Limits, Ran
from learnloop.task import Task
from learnloop.trace import Score, Trace

MOST_BYTES = 256 * 1024
LIMITS = Limits(wall_s=120.0, cpu_s=120, memory_mb=2048, output_kb=1024)

_CODE_VERSION = 1
# What the source prints is its own; the result stands behind a word that it is not told.
_PROGRAM = """
import json, sys
given = json.loads(sys.stdin.buffer.read())
word, space = given.pop("word"), {"__name__": "grader"}
exec(compile(given["source"], "grader.py", "exec"), space)
found = space["grade"](given["sample"], given["item"])
print()
print(word, json.dumps(found), flush=True)
"""


class Runner(Protocol):
    """Runs Python programs where they can do no harm."""

    async def run(self, source: str, stdin: bytes = b"", **files: str) -> Ran:
        """Run a program to its end."""
        ...


class PythonGrader:
    """Calls `grade(sample, item)` of the user's source; its number from 0 to 1 is the score.

    What goes wrong in it is a fault of the grader, never a zero for the agent.
    """

    def __init__(self, source: str, runner: Runner | None, *, pass_threshold: float = 0.0) -> None:
        self._source, self._runner, self._threshold = source, runner, pass_threshold

    @property
    def version(self) -> str:
        """Return the version of code, source and settings."""
        return version_of("python", _CODE_VERSION, source=self._source, threshold=self._threshold)

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Run the source on one rollout.

        Raises:
            GraderError: it failed, took too much, or returned no number from 0 to 1.
            SandboxError: it could not be run.
        """
        assert self._runner is not None, "a project that grades has opened a sandbox"
        word = secrets.token_hex(16)
        given = {
            "word": word,
            "source": self._source,
            "sample": sample_of(trace),
            "item": dict(task.item),
        }
        ran = await self._runner.run(_PROGRAM, json.dumps(given).encode())
        return self._score(ran, word)

    def _score(self, ran: Ran, word: str) -> Score:
        if not ran.is_well:
            last = ran.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            why = f"killed ({ran.end})" if ran.end != "exited" else "".join(last)[:300]
            raise GraderError(f"grade() failed: {why}", kind="python", retryable=False)
        lines = ran.stdout.decode("utf-8", "replace").splitlines()
        said = [line.removeprefix(word) for line in lines if line.startswith(word)]
        value: object = json.loads(said[-1]) if said else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            shown = str(value)[:80]
            raise GraderError(
                f"grade() returned {shown}, no number", kind="bad_score", retryable=False
            )
        if not math.isfinite(value) or not 0 <= value <= 1:
            words = f"grade() returned {value}, not a number from 0 to 1"
            raise GraderError(words, kind="bad_score", retryable=False)
        correct = float(value >= self._threshold) if self._threshold else float(value)
        return Score(value=float(value), correct=correct)
