"""Checks the JSON that `learnloop train --json` printed: the promised keys, and plausible numbers."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

KEYS = {
    "run", "optimizer", "split", "untrained", "baseline", "final", "gain", "gain_ci", "gate", "steps",
    "rollouts", "minutes", "report",
}  # fmt: skip


def main() -> int:
    """Return 0 when the file keeps the promise, else say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rollouts", type=int, required=True)
    wanted = parser.parse_args()
    found = json.loads(wanted.file.read_text(encoding="utf-8"))
    problems = [f"no key {key}" for key in sorted(KEYS - found.keys())]
    problems += _wrong_numbers(found, wanted) if not problems else []
    for problem in problems:
        sys.stderr.write(f"{wanted.file.name}: {problem}\n")
    return 1 if problems else 0


def _wrong_numbers(found: dict[str, Any], wanted: argparse.Namespace) -> list[str]:
    rollouts, baseline = found["rollouts"], found["baseline"]
    checks = {
        f"steps is {found['steps']}, not {wanted.steps}": found["steps"] == wanted.steps,
        f"rollouts are {rollouts}": rollouts["planned"] >= wanted.rollouts
        and rollouts["graded"] > 0,
        f"baseline score is {baseline['score']}": 0 <= baseline["score"] <= 1,
        f"report {found['report']} is not there": Path(str(found["report"])).exists(),
    }
    return [problem for problem, holds in checks.items() if not holds]


if __name__ == "__main__":
    sys.exit(main())
