"""What orchestration costs, what it leaves behind, and whether faults ever become scores.

    python bench/runner.py --run                measures; writes results/runner/*.json
    python bench/runner.py --run --only speed   one part of it: speed, memory, leaks or faults
    python bench/runner.py --check              recomputes all figures from the raw rows

It runs from the root of the repository, as a module (`runner.py` sees to that): the server that breaks
its contract, and the comparison with what it did, are those of the tests.

speed   A model of 50 ms a turn and one HTTP tool of 50 ms (a process of its own), two turns, 64 and
        256 rollouts in flight, every trace stored. The floor, in the same process and just before:
        a bare asyncio loop with the same waits and requests, without traces, retries and limits.
memory  Rollouts of 30 messages that all stand still before their last turn, and afterwards.
leaks   Sessions, tasks and file descriptors after 10,000 rollouts.
faults  10,000 rollouts against a server that breaks its contract in every way, by a seed.

`--check` exits with 1 when a figure does not follow from the rows, with 3 when a target is missed.
Label of every figure: orchestration (scripted model).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from bench.held_rollouts import bytes_held
from bench.slow_tool import LATENCY_S, ROOT, ask_once, bench_config, planned, served, setup_of
from tests.fault_rollouts import expected_end, judge, make
from tests.fault_server import fault_server

from learnloop.codec import config_hash
from learnloop.models.scripted import ScriptedModel
from learnloop.outbound import Outbound
from learnloop.rollout import Planned, roll_out
from learnloop.runner import run_many
from learnloop.store import Store
from learnloop.trace import Trace

RESULTS = ROOT / "bench" / "results" / "runner"
PARTS = ("speed", "memory", "leaks", "faults")
IN_FLIGHT = (64, 256)
TRIALS = 3
PER_TRIAL = 1000
MANY = 10_000
SEED = 20

TARGETS: dict[str, tuple[str, float]] = {
    "rollouts_per_s": ("least", 150.0),
    "cpu_ms_per_round": ("most", 5.0),
    "kb_in_flight": ("most", 100.0),
    "kb_afterwards": ("most", 1.0),
    "left_behind": ("most", 0.0),
    "lost": ("most", 0.0),
    "wrongly_scored": ("most", 0.0),
    "miscounted": ("most", 0.0),
}


# --- speed ---------------------------------------------------------------------------------------


async def bare(url: str, count: int, in_flight: int) -> None:
    """Do what the rollouts wait for, and nothing else."""
    numbers = iter(range(count))
    async with httpx2.AsyncClient(limits=httpx2.Limits(), timeout=None, trust_env=False) as client:

        async def work() -> None:
            for number in numbers:
                await asyncio.sleep(LATENCY_S)
                item = {"answer": number}
                call = {"call_id": f"c{number}", "id": "fc", "trace_id": "t", "item": item}
                (await client.post(url, json=call)).json()
                await asyncio.sleep(LATENCY_S)

        await asyncio.gather(*(work() for _ in range(in_flight)))


async def orchestrated(url: str, count: int, in_flight: int, folder: Path) -> list[Trace]:
    """Make the rollouts and store their traces, as a run does."""
    config = bench_config(url)
    with Store.open(folder / "bench.db") as store:
        run = store.create_run(config, command="bench", seed=0)
        async with Outbound(allow_private=True) as outbound:
            setup = setup_of(ScriptedModel(ask_once, latency_s=LATENCY_S), config, outbound)

            async def roll(plan: Planned, retry: int) -> Trace:
                trace = await roll_out(plan, setup, retry)
                store.save_trace(run.id, "bench", 0, trace)
                return trace

            traces = await run_many(
                [planned(n) for n in range(count)],
                roll,
                max_concurrency=in_flight,
                on_trace=lambda _: None,
            )
        assert len(store.rows(run.id)) == count
    return traces


def timed(work: Callable[[], Awaitable[Any]]) -> tuple[float, float, Any]:
    """Return wall seconds, CPU seconds of this process, and the result."""
    start_s, cpu_s = time.perf_counter(), time.process_time()
    result = asyncio.run(_awaited(work))
    return time.perf_counter() - start_s, time.process_time() - cpu_s, result


async def _awaited(work: Callable[[], Awaitable[Any]]) -> Any:
    return await work()


def speed() -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with served() as url:
        asyncio.run(bare(url, 64, 64))
        for in_flight in IN_FLIGHT:
            for trial in range(TRIALS):
                row = one_trial(url, in_flight, trial)
                print(json.dumps(row), flush=True)
                rows.append(row)
    return {"rows": rows, "config_hash": config_hash(bench_config("http://tool/"))}


def one_trial(url: str, in_flight: int, trial: int) -> dict[str, Any]:
    floor_s, floor_cpu_s, _ = timed(lambda: bare(url, PER_TRIAL, in_flight))
    with tempfile.TemporaryDirectory() as folder:
        took_s, cpu_s, traces = timed(lambda: orchestrated(url, PER_TRIAL, in_flight, Path(folder)))
    assert all(t.score and t.score.value == 1.0 for t in traces)
    return {
        "in_flight": in_flight,
        "trial": trial,
        "rollouts": PER_TRIAL,
        "tool_rounds": sum(t.rounds for t in traces),
        "seconds": round(took_s, 4),
        "cpu_s": round(cpu_s, 4),
        "floor_seconds": round(floor_s, 4),
        "floor_cpu_s": round(floor_cpu_s, 4),
        "load": round(os.getloadavg()[0], 2),
    }


# --- memory --------------------------------------------------------------------------------------


def memory(count: int = 200) -> dict[str, Any]:
    """Hold rollouts of 30 messages before their last turn, and count bytes then and afterwards.

    Connections are made beforehand: they belong to the client and are used again.
    """
    with served() as url:
        row = asyncio.run(bytes_held(url, count))
    return {"rows": [row], "config_hash": config_hash(bench_config("http://tool/"))}


# --- leaks ---------------------------------------------------------------------------------------


def leaks() -> dict[str, Any]:
    """Count what 10,000 rollouts leave, while the client is open and after it is closed."""
    with served() as url:
        row = asyncio.run(_after_many(url, MANY))
    return {"rows": [row], "config_hash": config_hash(bench_config("http://tool/"))}


async def _after_many(url: str, count: int) -> dict[str, Any]:
    config, model = bench_config(url), ScriptedModel(ask_once)
    tasks, files = len(asyncio.all_tasks()), open_files()
    async with Outbound(allow_private=True) as outbound:
        setup = setup_of(model, config, outbound)
        made = await run_many(
            [planned(n) for n in range(count)],
            lambda plan, retry: roll_out(plan, setup, retry),
            max_concurrency=128,
            on_trace=lambda _: None,
        )
    await asyncio.sleep(0.2)
    return {
        "rollouts": len(made),
        "graded": sum(t.outcome == "graded" for t in made),
        "sessions_left": model.open_sessions,
        "tasks_left": len(asyncio.all_tasks()) - tasks,
        "files_left": open_files() - files,
    }


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# --- faults --------------------------------------------------------------------------------------


def faults(count: int = MANY) -> dict[str, Any]:
    """Compare what a fault server did with what was recorded."""
    with fault_server(seed=SEED, rate=0.3) as server:
        made = make(server, count, timeout_s=4.0, at_once=128)
        judge(server, made, count)
        ends = Counter(" ".join(filter(None, expected_end(server, t))) for t in made.all)
    got = Counter(
        f"infra_fault {t.failure.boundary} {t.failure.kind}" if t.failure else t.outcome
        for t in made.all
    )
    row = {
        "planned": count,
        "returned": len(made.last),
        "tries": len(made.all),
        "scores": Counter(str(t.score.value) for t in made.last if t.score),
        "wrong": sum(bool(t.score) and t.score.value != float(t.seed % 5 != 0) for t in made.all),
        "ends_injected": dict(sorted(ends.items())),
        "ends_recorded": dict(sorted(got.items())),
        "injected": {f"{p}/{k}": n for (p, k), n in sorted(server.injected.items())},
        "faults_recorded": dict(sorted(made.faults.items())),
    }
    return {"rows": [row], "config_hash": config_hash(bench_config("http://tool/"))}


# --- figures -------------------------------------------------------------------------------------


def figures(part: str, rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the figures of a part, from its rows alone."""
    if part == "speed":
        return speed_figures(rows)
    [row] = rows
    if part == "memory":
        return {
            "kb_in_flight": round(row["bytes_in_flight"] / row["rollouts"] / 1000, 2),
            "kb_afterwards": round(max(0, row["bytes_afterwards"]) / row["rollouts"] / 1000, 2),
        }
    if part == "leaks":
        left = row["sessions_left"] + row["tasks_left"] + row["files_left"]
        return {"left_behind": float(left), "not_graded": float(row["rollouts"] - row["graded"])}
    names = row["ends_injected"].keys() | row["ends_recorded"].keys()
    return {
        "lost": float(row["planned"] - row["returned"]),
        "wrongly_scored": float(row["wrong"]),
        "miscounted": float(
            sum(row["ends_injected"].get(n, 0) != row["ends_recorded"].get(n, 0) for n in names)
        ),
    }


def speed_figures(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for in_flight in IN_FLIGHT:
        ours = [r for r in rows if r["in_flight"] == in_flight]
        found |= {
            f"rollouts_per_s/{in_flight}": round(
                median(r["rollouts"] / r["seconds"] for r in ours), 1
            ),
            f"share_of_floor/{in_flight}": round(
                median(r["floor_seconds"] / r["seconds"] for r in ours), 3
            ),
            f"cpu_ms_per_round/{in_flight}": round(
                median(1000 * r["cpu_s"] / r["tool_rounds"] for r in ours), 2
            ),
        }
    return found


def missed(found: dict[str, float]) -> list[str]:
    out: list[str] = []
    for name, value in found.items():
        way, bound = TARGETS.get(name.partition("/")[0], ("", 0.0))
        if (way == "least" and value < bound) or (way == "most" and value > bound):
            out.append(f"{name} is {value:g}, at {way} {bound:g} was wanted")
    return out


def commit() -> str:
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def run(parts: Sequence[str]) -> None:
    measures = {"speed": speed, "memory": memory, "leaks": leaks, "faults": faults}
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in parts:
        about = {
            "commit": commit(),
            "label": "orchestration (scripted model)",
            "cores": os.cpu_count(),
            "niceness": os.nice(0),
            "python": platform.python_version(),
        }
        found = measures[part]()
        result = {**about, **found, "figures": figures(part, found["rows"])}
        (RESULTS / f"{part}.json").write_text(json.dumps(result, indent=1) + "\n")
        print(part, json.dumps(result["figures"]), flush=True)


def check() -> int:
    wrong: list[str] = []
    short: list[str] = []
    for part in PARTS:
        path = RESULTS / f"{part}.json"
        if not path.exists():
            wrong.append(f"{part}: no results")
            continue
        result = json.loads(path.read_text())
        found = figures(part, result["rows"])
        if found != result["figures"]:
            wrong.append(f"{part}: figures do not follow from the rows")
        for name, value in found.items():
            print(f"{part:8} {name:24} {value:>10,.2f}   {result['commit']}")
        short += missed(found)
    for line in (*wrong, *short):
        print(line, file=sys.stderr)
    return 1 if wrong else 3 if short else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    if options.run:
        run([options.only] if options.only else PARTS)
    return check() if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
