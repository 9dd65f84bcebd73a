"""How long a comparison of two big arms takes: 10,000 tasks in 3,000 groups, five attempts in each arm.

    python bench/comparison.py --run       measures, writes results/comparison/times.json
    python bench/comparison.py --check     recomputes the figures from the raw rows

Timed is `learnloop.summary.compare` on traces in memory: two summaries, paired tests, costs, medians,
and the same for six kinds of task. The floor, in the same loop, reads each trace's score and costs once
and adds them up. `--check` exits with 1 when a figure does not follow from the rows, and with 3 when the
target is missed. Label of every figure: mechanism.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from learnloop.message import Message, ToolCall
from learnloop.summary import compare
from learnloop.task import Task
from learnloop.trace import CallRecord, Score, Trace, Turn

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "comparison"
RAW = RESULTS / "times.json"
SUMMARY = RESULTS / "summary.json"
TASKS, GROUPS, ATTEMPTS, KINDS, LOOKS = 10_000, 3_000, 5, 6, 7
CONFIG = {"tasks": TASKS, "groups": GROUPS, "attempts": ATTEMPTS, "kinds": KINDS, "looks": LOOKS}
TARGET_S = 2.0


def world() -> tuple[dict[str, Task], list[Trace], list[Trace]]:
    """Return tasks and the traces of two arms, the second a little better and cheaper."""
    rng = random.Random(0)
    opening = (Message(role="user", content="?"),)
    tasks = {
        f"task-{n}": Task(
            id=f"task-{n}",
            split="test",
            group=f"group-{n % GROUPS}",
            kind=f"kind-{n % KINDS}",
            messages=opening,
            tools=(),
        )
        for n in range(TASKS)
    }
    before = [trace(t, n, rng, 0.4, 5) for t in tasks for n in range(ATTEMPTS)]
    after = [trace(t, n, rng, 0.45, 4) for t in tasks for n in range(ATTEMPTS)]
    return tasks, before, after


def trace(task: str, attempt: int, rng: random.Random, right: float, most: int) -> Trace:
    """Return a rollout with one to `most` calls."""
    calls = tuple(
        CallRecord(call=ToolCall(id=str(n), name="search", arguments="{}"), round=n, output="")
        for n in range(rng.randint(1, most))
    )
    correct = float(rng.random() < right)
    return Trace(
        id=f"{task}/{attempt}",
        task_id=task,
        candidate_id="c",
        attempt=attempt,
        seed=attempt,
        turns=(Turn(text="", tokens_in=rng.randint(200, 900), tokens_out=rng.randint(5, 40)),),
        calls=calls,
        score=Score(value=correct, correct=correct, parts={"valid": 1.0}),
        latency_s=rng.random(),
    )


def floor(arms: Sequence[Sequence[Trace]]) -> float:
    """Read what a comparison reads of each trace, once, and add it up."""
    rows = [
        (t.score.correct if t.score else 0.0, len(t.calls), t.tokens_total, t.latency_s)
        for arm in arms
        for t in arm
    ]
    return float(np.asarray(rows).sum())


def seconds(work: Callable[[], object]) -> dict[str, float]:
    """Return wall and processor time of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {
        "wall_s": round(time.perf_counter() - wall, 4),
        "cpu_s": round(time.process_time() - cpu, 4),
    }


def run() -> None:
    """Measure, and write raw rows and figures."""
    began_at = commit()
    tasks, before, after = world()
    rows: list[dict[str, Any]] = []
    for look in range(LOOKS):
        ours = seconds(lambda: compare(before, after, tasks))
        least = seconds(lambda: floor((before, after)))
        rows.append({"look": look, **ours, **{f"floor_{k}": v for k, v in least.items()}})
    found = {
        "label": "mechanism",
        "commit": began_at,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "config": CONFIG,
        "config_hash": config_hash(CONFIG),
        "load_average": round(os.getloadavg()[0], 2),
        "rows": rows,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    RAW.write_text(json.dumps(found, indent=1) + "\n")
    SUMMARY.write_text(json.dumps(figures(found), indent=1) + "\n")


def commit() -> str:
    """Return the commit of this tree, marked where the tree is not that commit's."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    status = [*git, "status", "--porcelain", "--", ".", ":!bench/results"]
    return head + (" with changes" if subprocess.check_output(status, text=True) else "")


def config_hash(config: Mapping[str, int]) -> str:
    """Return the hash of what was measured."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def figures(data: Mapping[str, Any]) -> dict[str, float]:
    """Return medians over the looks, and the ratio to the floor by processor time."""
    rows = data["rows"]
    return {
        "n": len(rows),
        "wall_s": round(median(row["wall_s"] for row in rows), 3),
        "cpu_s": round(median(row["cpu_s"] for row in rows), 3),
        "floor_cpu_s": round(median(row["floor_cpu_s"] for row in rows), 3),
        "ratio": round(median(row["cpu_s"] / row["floor_cpu_s"] for row in rows), 1),
    }


def check() -> int:
    """Recompute the figures; return the exit code."""
    data = json.loads(RAW.read_text())
    found = figures(data)
    if data["config_hash"] != config_hash(data["config"]):
        print(f"{RAW.name}: the hash is not that of its configuration", file=sys.stderr)
        return 1
    if json.loads(SUMMARY.read_text()) != found:
        print(f"{SUMMARY.name} does not follow from {RAW.name}", file=sys.stderr)
        return 1
    met = found["wall_s"] <= TARGET_S
    print(f"compare: {found}, target at most {TARGET_S:g} s: {'met' if met else 'MISSED'}")
    print(f"load average {data['load_average']}, {data['machine']}")
    return 0 if met else 3


def main() -> int:
    """Run or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="measure")
    parser.add_argument("--check", action="store_true", help="recompute the figures")
    asked = parser.parse_args()
    if asked.run:
        run()
    return check() if asked.check or asked.run else 2


if __name__ == "__main__":
    sys.exit(main())
