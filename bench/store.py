"""How fast a big store answers: pages of rollouts and calls by tool and step over 300,000 spans.

    python bench/store.py --run       builds a store, measures, writes results/store/spans.json
    python bench/store.py --check     recomputes the figures from the raw rows

The store is built by `Store.save_trace` alone, so what is measured is what a run would have written.
Each look is timed beside a floor in the same loop: the same rows fetched by a bare `sqlite3` cursor
that turns nothing into values. `--check` needs the results only; it exits with 1 when a figure does not
follow from the rows, and with 3 when a target is missed. Label of every figure: mechanism.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from learnloop.config import Config
from learnloop.event import Event
from learnloop.message import Message, ToolCall
from learnloop.store import Store
from learnloop.trace import CallRecord, Score, Trace, Turn, trace_id

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "store"
RAW = RESULTS / "spans.json"
SUMMARY = RESULTS / "summary.json"
SPANS = 300_000
CALLS = 10
STEPS = 100
TOOLS = ("search", "list", "cat", "calc")
LOOKS = 60
TARGETS_MS = {"page": 10.0, "tool_distribution": 20.0}
LIGHT = (
    "trace_id, run_id, stage, step, candidate_id, task_id, attempt, outcome, finish_reason, value, "
    "correct, calls, rounds, tokens, latency_s, failure_kind, tools_json"
)
PLACE = "stage, step, task_id, attempt, candidate_id, trace_id"


# --- running -------------------------------------------------------------------------------------


def rollout(number: int, rng: random.Random, texts: Sequence[str]) -> Trace:
    """Return a rollout of ten calls; a call is a span."""
    step = number * CALLS * STEPS // SPANS
    calls: list[CallRecord] = []
    turns: list[Turn] = []
    messages = [
        Message(role="system", content=texts[0]),
        Message(role="user", content=f"Q {number}"),
    ]
    for index in range(CALLS):
        asked = ToolCall(
            id=f"c{index}", name=rng.choice(TOOLS), arguments=f'{{"n": {rng.random()}}}'
        )
        output = rng.choice(texts)
        calls.append(CallRecord(call=asked, round=index, output=output, latency_s=rng.random()))
        turns.append(Turn(text="", tool_calls=(asked,), tokens_in=40 * index, tokens_out=9))
        messages.append(Message(role="assistant", content="", tool_calls=(asked,)))
        messages.append(
            Message(role="tool", content=output, tool_call_id=asked.id, name=asked.name)
        )
    value = rng.random()
    return Trace(
        id=trace_id("bench", f"cand_{step}", f"task-{number % 977}", number),
        task_id=f"task-{number % 977}",
        candidate_id=f"cand_{step}",
        attempt=number,
        seed=number,
        messages=tuple(messages),
        turns=tuple(turns),
        calls=tuple(calls),
        score=Score(value=value, correct=float(value > 0.5)),
        latency_s=value,
    )


def build(path: Path) -> tuple[str, float]:
    """Fill a store with one run; return its id and the seconds that took."""
    rng = random.Random(0)
    texts = [
        f"Document {n}. " + "Figures of the year, by segment and region. " * 12 for n in range(200)
    ]
    began_s = time.perf_counter()
    with Store.open(path) as store:
        run_id = store.create_run(Config(), command="train", seed=0).id
        last = 0
        for number in range(SPANS // CALLS):
            step = number * CALLS * STEPS // SPANS
            if step != last:
                store.append_event(Event(kind="step", run_id=run_id, data={"step": last}))
                print(f"step {step} of {STEPS}", file=sys.stderr, end="\r")
                last = step
            store.save_trace(run_id, "train", step, rollout(number, rng, texts))
    return run_id, time.perf_counter() - began_s


def timed_ms(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1000


def measure(path: Path, run_id: str) -> list[dict[str, Any]]:
    """Time pages at random places, and the distribution, each beside its floor."""
    rng = random.Random(1)
    rows: list[dict[str, Any]] = []
    page_sql = (
        f"SELECT {LIGHT} FROM rollouts WHERE run_id = ? AND ({PLACE}) > (?, ?, ?, ?, ?, ?) "  # noqa: S608  (constants)
        f"ORDER BY {PLACE} LIMIT 51"
    )
    counts_sql = "SELECT stage, step, tool, calls FROM tool_counts WHERE run_id = ?"
    with Store.open(path) as store, closing(sqlite3.connect(path)) as raw:
        places = raw.execute(f"SELECT {PLACE} FROM rollouts").fetchall()  # noqa: S608  (constants)
        store.page(run_id)
        for look in range(LOOKS):
            key = rng.choice(places)

            def page(after: str = key[-1]) -> object:
                return store.page(run_id, after=after)

            def bare_page(key: Sequence[object] = key) -> object:
                return raw.execute(page_sql, (run_id, *key)).fetchall()

            pairs = {
                "page": (page, bare_page),
                "tool_distribution": (
                    lambda: store.tool_distribution(run_id),
                    lambda: raw.execute(counts_sql, (run_id,)).fetchall(),
                ),
            }
            for name, (ours, floor) in pairs.items():
                order = [("ms", ours), ("floor_ms", floor)]
                times = {
                    key: round(timed_ms(work), 4) for key, work in order[:: 1 - 2 * (look % 2)]
                }
                rows.append({"look": look, "what": name, **times})
    return rows


def run() -> Path:
    """Build, measure, and write the raw rows."""
    began_at = commit()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learnloop.db"
        run_id, seconds = build(path)
        found = {
            "label": "mechanism",
            "commit": began_at,
            "machine": f"{os.cpu_count()} cores, {platform.machine()}",
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "spans": SPANS,
            "rollouts": SPANS // CALLS,
            "steps": STEPS,
            "file_mb": round(path.stat().st_size / 1e6, 1),
            "build_s": round(seconds, 1),
            "load_average": round(os.getloadavg()[0], 2),
            "rows": measure(path, run_id),
        }
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines = ",\n  ".join(json.dumps(row) for row in found["rows"])
    head = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1)
    RAW.write_text(f'{head[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n')
    return RAW


def commit() -> str:
    """Return the commit of this tree, marked where the tree is not that commit's."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    status = [*git, "status", "--porcelain", "--", ".", ":!bench/results"]
    return head + (" with changes" if subprocess.check_output(status, text=True) else "")


# --- checking ------------------------------------------------------------------------------------


def figures(data: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return, for each kind of look, median and 95th percentile and the ratio to the floor."""
    out: dict[str, dict[str, float]] = {}
    for name in TARGETS_MS:
        rows = [row for row in data["rows"] if row["what"] == name]
        times = sorted(row["ms"] for row in rows)
        out[name] = {
            "n": len(rows),
            "median_ms": round(median(times), 3),
            "p95_ms": round(times[int(0.95 * (len(times) - 1))], 3),
            "floor_median_ms": round(median(row["floor_ms"] for row in rows), 3),
            "ratio": round(median(row["ms"] / row["floor_ms"] for row in rows), 2),
        }
    return out


def check() -> int:
    """Recompute the figures; return the exit code."""
    data = json.loads(RAW.read_text())
    found = figures(data)
    if json.loads(SUMMARY.read_text()) != found:
        print(f"{SUMMARY.name} does not follow from {RAW.name}", file=sys.stderr)
        return 1
    missed = [name for name, most in TARGETS_MS.items() if found[name]["median_ms"] >= most]
    for name, values in found.items():
        print(f"{name}: {values}, target under {TARGETS_MS[name]:g} ms")
    print(f"over {data['spans']} spans, {data['file_mb']} MB")
    return 3 if missed else 0


def main() -> int:
    """Run or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="build and measure")
    parser.add_argument("--check", action="store_true", help="recompute the figures")
    asked = parser.parse_args()
    if asked.run:
        found = figures(json.loads(run().read_text()))
        SUMMARY.write_text(json.dumps(found, indent=1) + "\n")
    return check() if asked.check or asked.run else 2


if __name__ == "__main__":
    sys.exit(main())
