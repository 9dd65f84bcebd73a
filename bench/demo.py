"""What `make demo` gains: three seeds on the embedded model, and a control with random rewards.

    python bench/demo.py --run --seed 1                      one run; writes results/demo/seed-1.json
    python bench/demo.py --run --seed 1 --control            the same with rewards drawn by a coin
    python bench/demo.py --check                             recomputes all figures from the raw rows

A run copies `examples/reports`, slows its tools to 200 ms, trains, opens the sealed test, and keeps
one row for each rollout on the test, with the hash of the configuration and the commit. `--check`
needs those files only; it exits with 1 when a figure does not follow from the rows, and with 3 when
a target is missed. Label of every figure: lift (SmolLM2-135M-Instruct).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learnloop.history import History
from learnloop.message import ToolCall
from learnloop.project import Project
from learnloop.session import training_run
from learnloop.store import Store
from learnloop.summary import Comparison, compare, tool_mix_shift
from learnloop.task import Task
from learnloop.trace import CallRecord, Score, Trace, Turn

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "demo"
SUMMARY = RESULTS / "summary.json"
TOOL_LATENCY_MS = 200
LEAST_CALLS = 3.0
"""Kinds whose solved tasks cost at least this many calls before training show the saving."""

COIN = '''"""A grader that tosses a coin: what training gains from it is noise.

Only the sample that `learnloop check` makes up is graded as it deserves, or there would be no run.
"""

import random
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

rng = random.Random(int(sys.argv[2]))


async def grade(request):
    body = await request.json()
    if body["trace_id"].strip("trace_0") == "":
        right = str(body["item"]["answer"]) in body["sample"]["output_text"]
        return JSONResponse({"score": float(right)})
    return JSONResponse({"score": float(rng.random() < 0.5)})


async def health(request):
    return JSONResponse({})


app = Starlette(routes=[Route("/grade", grade, methods=["POST"]), Route("/health", health)])
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
'''


# --- running -------------------------------------------------------------------------------------


def copy_project(folder: Path) -> Path:
    """Copy the example, its tools slowed down."""
    target = folder / "reports"
    ignore = shutil.ignore_patterns("data", ".learnloop", "__pycache__")
    shutil.copytree(ROOT / "examples" / "reports", target, ignore=ignore)
    config = target / "learnloop.toml"
    text = config.read_text()
    plain = '"{port}"]'
    if text.count(plain) != 1:
        raise SystemExit("bench: the example's service command has changed; mend copy_project")
    config.write_text(text.replace(plain, f'"{{port}}", "--latency-ms", "{TOOL_LATENCY_MS}"]'))
    return target


def toss_coins(project: Path, seed: int) -> str:
    """Replace the project's grader by a coin; return the configuration as it was."""
    config = project / "learnloop.toml"
    before = config.read_text()
    (project / "coin.py").write_text(COIN)
    coin = f"""[[services]]
name = "coin"
command = ["{{python}}", "coin.py", "{{port}}", "{seed}"]

[grader]
type = "endpoint"
url = "{{service:coin}}/grade"
"""
    after, count = re.subn(r"^\[grader\]\n.*?(?=^\[)", coin + "\n", before, flags=re.M | re.S)
    if count != 1:
        raise SystemExit("bench: the example's grader section has changed; mend toss_coins")
    config.write_text(after)
    return before


def learnloop(*arguments: str) -> float:
    """Run the command line, progress to the terminal; return the peak memory of its processes in GB."""
    command = [sys.executable, "-m", "learnloop", *arguments]
    peak = 0
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        while process.poll() is None:
            peak = max(peak, tree_rss(process.pid))
            time.sleep(0.2)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peak / 1e9


def tree_rss(root: int) -> int:
    """Return the resident bytes of a process and all its descendants; 0 where there is no /proc.

    Pages that several of them share count for each. What comes and goes between two looks is missed.
    """
    parents, sizes = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            sizes[int(folder.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(sizes.get(pid, 0) for pid in family)


def commit() -> str:
    """Return the commit of this tree, marked where the tree is not that commit's."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    changed = subprocess.check_output(
        [*git, "status", "--porcelain", "--", ".", ":!bench/results"], text=True
    )
    return head + (" with changes" if changed else "")


def run(seed: int, *, control: bool, extra: Sequence[str]) -> Path:
    """Make one run, with `extra` options for `train`, and write its rows."""
    began_at = commit()
    with tempfile.TemporaryDirectory() as folder:
        project = copy_project(Path(folder))
        place = ("--project", str(project))
        if control:
            before = toss_coins(project, seed)
            peak = learnloop("train", str(project), "--seed", str(seed), "--quiet", *extra)
            (project / "learnloop.toml").write_text(before)
            opened = Project.open(project)
            with opened.open_store() as store:
                name = training_run(store, "latest").id
                last = max(step.step for step in History(store=store, run_id=name).steps)
            for arm in ("warm", f"step-{last}"):
                learnloop(
                    "eval",
                    str(project),
                    "--candidate",
                    f"{name}/{arm}",
                    "--split",
                    "test",
                    "--quiet",
                )
        else:
            peak = learnloop("train", str(project), "--seed", str(seed), *extra)
            peak = max(peak, learnloop("report", "latest", "--open-test", *place))
        with Project.open(project).open_store() as store:
            found = {
                "commit": began_at,
                "options": list(extra),
                "peak_gb": round(peak, 2),
                **collect(project, store, seed, control=control),
            }
        # What is kept was run as it is described.
        target = (
            Path(tempfile.gettempdir()) if extra else RESULTS
        ) / f"{'control' if control else 'seed'}-{seed}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dump(found))
        if not control:
            page = max(project.glob(".learnloop/runs/*/report.html"), key=os.path.getmtime)
            print(f"report copied to {shutil.copy2(page, tempfile.gettempdir())}", file=sys.stderr)
    return target


def dump(found: Mapping[str, Any]) -> str:
    """Return JSON with one row a line."""
    rows = ",\n  ".join(json.dumps(row) for row in found["rows"])
    rest = json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1)
    return f'{rest[:-2]},\n "rows": [\n  {rows}\n ]\n}}\n'


def collect(project: Path, store: Store, seed: int, *, control: bool) -> dict[str, Any]:
    """Read everything that is kept of a run from its store."""
    record = training_run(store, "latest")
    history = History(store=store, run_id=record.id)
    tasks = {t.id: t for t in Project.open(project).tasks()}
    arms: dict[str, Sequence[Trace]] = dict(history.compared("test"))
    if control:
        newest = [r for r in store.runs() if r.command == "eval"][:2]
        arms = dict(
            zip(("final", "warm"), (store.traces(r.id, "test") for r in newest), strict=True)
        )
    keys = (
        "machine",
        "cores",
        "python",
        "torch",
        "transformers",
        "learnloop",
        "dataset",
        "model_hash",
    )
    return {
        "label": "lift",
        "control": "random rewards" if control else "",
        "seed": seed,
        "config_hash": record.config_hash,
        "meta": {k: v for k, v in record.meta.items() if k in keys or "hash" in k or "sha" in k},
        "tool_latency_ms": TOOL_LATENCY_MS,
        "chosen": history.chosen.rpartition("/")[2],
        "gate": history.gate.outcome if history.gate else None,
        "minutes": minutes(history),
        "probe": probe_counts(history, tasks),
        "steps": [step_row(s) for s in history.steps],
        "rows": [raw(arm, t, tasks[t.task_id]) for arm, traces in arms.items() for t in traces],
    }


def minutes(history: History) -> dict[str, float]:
    """Return minutes of the whole run, of the training steps alone, and of other stages."""
    out: dict[str, float] = {}
    last_s, stage = 0.0, "starting"
    for event in history.store.events(history.run_id):
        spent_s = float(event.data.get("spent_s", last_s))
        group = "training" if stage.startswith("training") else stage
        out[group] = out.get(group, 0.0) + max(0.0, spent_s - last_s) / 60
        last_s = max(last_s, spent_s)
        if event.kind == "stage_started":
            stage = str(event.data["stage"])
    return {k: round(v, 3) for k, v in out.items()} | {"all": round(last_s / 60, 3)}


def probe_counts(history: History, tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Return solved share and bucket sizes of the probes before and after training."""
    out: dict[str, Any] = {}
    for stage in ("probe", "probe_after"):
        traces = history.traces(stage)
        if traces:
            solved = [t.score.correct for t in traces if t.score]
            found = history.probe(stage, tasks, 1 + max(t.attempt for t in traces))
            buckets = found.buckets if found else None
            out[stage] = {
                "solved": sum(solved) / len(solved),
                "n": len(solved),
                "buckets": str(buckets),
            }
    return out


def step_row(step: Any) -> dict[str, Any]:
    """Return the figures of one training step that are kept."""
    names = (
        "step",
        "planned",
        "graded",
        "reward_mean",
        "correct_mean",
        "learnable_share",
        "calls_mean",
        "valid_share",
    )
    return {n: getattr(step, n) for n in names} | {
        "calls_per_tool": dict(step.calls_per_tool),
        "seconds": dict(step.seconds),
        "tokens": dict(step.tokens),
    }


def raw(arm: str, trace: Trace, task: Task) -> dict[str, Any]:
    """Return one rollout as a row."""
    score = trace.score
    return {
        "arm": arm,
        "task": task.id,
        "group": task.group,
        "kind": task.kind,
        "outcome": trace.outcome,
        "finish": trace.finish_reason,
        "failure": trace.failure.kind if trace.failure else "",
        "correct": score.correct if score else None,
        "value": score.value if score else None,
        "valid": score.parts.get("valid", 1.0) if score else None,
        "tools": [[c.call.name, c.round, int(c.is_error), int(c.ran)] for c in trace.calls],
        "tokens": trace.tokens_total,
        "latency_s": round(trace.latency_s, 4),
    }


# --- checking ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Arms:
    """The rows of one run as traces, by arm."""

    tasks: Mapping[str, Task]
    traces: Mapping[str, tuple[Trace, ...]]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Arms:
        """Build traces that hold what the rows hold."""
        tasks = {
            r["task"]: Task(
                id=r["task"], split="test", group=r["group"], kind=r["kind"], messages=(), tools=()
            )
            for r in rows
        }
        arms: dict[str, list[Trace]] = {}
        for row in rows:
            arms.setdefault(row["arm"], []).append(trace_of(row))
        return cls(tasks=tasks, traces={k: tuple(v) for k, v in arms.items()})


def trace_of(row: Mapping[str, Any]) -> Trace:
    """Return the trace that a row was made from, as far as the row goes."""
    score = None
    if row["correct"] is not None:
        score = Score(value=row["value"], correct=row["correct"], parts={"valid": row["valid"]})
    calls = tuple(
        CallRecord(
            call=ToolCall(id=str(i), name=name, arguments="{}"),
            round=number,
            output="",
            is_error=bool(error),
            ran=all(ran),  # absent in rows of traces that did not tell
        )
        for i, (name, number, error, *ran) in enumerate(row["tools"])
    )
    return Trace(
        id=f"{row['arm']}/{row['task']}",
        task_id=row["task"],
        candidate_id=row["arm"],
        attempt=0,
        seed=0,
        calls=calls,
        turns=(Turn(text="", tokens_in=row["tokens"]),),
        outcome=row["outcome"],
        finish_reason=row["finish"],
        score=score,
        latency_s=row["latency_s"],
    )


def interval(estimate: Any) -> list[float | None] | None:
    """Return value, low and high, rounded so that they can be compared as text.

    The bounds are None where there is too little to say how sure the value is.
    """
    if estimate is None:
        return None
    parts = (estimate.value, estimate.low, estimate.high)
    return [None if x is None else round(float(x), 6) for x in parts]


def figures(found: Comparison) -> dict[str, Any]:
    """Return the figures of one comparison."""
    calls = found.before.costs["calls"].correct_mean if found.before.costs else None
    return {
        "tasks": found.tasks,
        "before": interval(found.before.correct),
        "after": interval(found.after.correct),
        "gain": interval(found.correct.difference) if found.correct else None,
        "calls_per_solved_before": interval(calls),
        "calls_per_solved_after": interval(found.after.costs["calls"].correct_mean)
        if found.after.costs
        else None,
        "change": {
            "calls": interval(found.costs["calls"].among_correct),
            "tokens": interval(found.costs["tokens"].among_correct),
            "latency_p50": interval(found.costs["latency_s"].p50_correct),
        },
        "change_all_rollouts": {
            n: interval(found.costs[n].all_rollouts) for n in ("calls", "tokens", "latency_s")
        },
    }


def of_kinds(arms: Arms, kinds: set[str]) -> Comparison:
    """Compare after warm-up with trained on some kinds of task."""
    tasks = {k: t for k, t in arms.tasks.items() if t.kind in kinds}
    pick = {a: tuple(t for t in traces if t.task_id in tasks) for a, traces in arms.traces.items()}
    return compare(pick["warm"], pick["final"], tasks)


def one_run(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures of one run, from its rows."""
    arms = Arms.of(data["rows"])
    whole = compare(arms.traces["warm"], arms.traces["final"], arms.tasks)
    kinds = {kind: figures(part) for kind, part in sorted(whole.kinds.items())}
    costly = {
        k for k, f in kinds.items() if (f["calls_per_solved_before"] or [0])[0] >= LEAST_CALLS
    }
    mix = tool_mix_shift(arms.traces["warm"], arms.traces["final"], arms.tasks)
    out: dict[str, Any] = {
        "all": figures(whole),
        "kinds": kinds,
        "gain_by_format": round(whole.gain_by_format or 0.0, 6),
        "gain_by_answers": round(whole.gain_by_answers or 0.0, 6),
        "valid": [interval(whole.before.valid), interval(whole.after.valid)],
        "costly_kinds": sorted(costly),
        "costly": figures(of_kinds(arms, costly)) if costly else None,
        "tool_mix": [round(mix.distance, 6), round(mix.noise_p95, 6)] if mix else None,
    }
    if "baseline" in arms.traces:
        untrained = compare(arms.traces["baseline"], arms.traces["warm"], arms.tasks)
        out["warm_up"] = figures(untrained)
    return out


def recompute() -> dict[str, Any]:
    """Return the figures of all committed runs."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*-*.json"))}
    return {name: one_run(data) for name, data in runs.items()}


def targets(found: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """Return each target of the demo with whether it is met."""
    seeds = {k: v for k, v in found.items() if k.startswith("seed-")}
    controls = {k: v for k, v in found.items() if k.startswith("control-")}
    runs = {k: json.loads((RESULTS / f"{k}.json").read_text()) for k in seeds}
    out = [
        (len(seeds) >= 3, f"three seeds: {len(seeds)}"),
        (bool(controls), f"a control: {len(controls)}"),
    ]
    gains = [v["all"]["gain"] for v in seeds.values()]
    for name, value in seeds.items():
        gain, low, high = (100 * x for x in value["all"]["gain"])
        out.append(
            (
                low > 0,
                f"{name}: gain {gain:+.1f} points (95 % {low:+.1f} to {high:+.1f}) is above 0",
            )
        )
        minutes_of = runs[name]["minutes"]
        training, steps = minutes_of["training"], runs[name]["steps"]
        out.append(
            (training <= 8, f"{name}: {len(steps)} steps in {training:.1f} minutes, at most 8")
        )
        out.append(
            (
                minutes_of["all"] <= 12,
                f"{name}: the whole run in {minutes_of['all']:.1f} minutes, at most 12",
            )
        )
        peak = runs[name]["peak_gb"]
        out.append((0 < peak < 8, f"{name}: peak memory {peak:.1f} GB, below 8"))
        out += savings(name, value)
    if gains:
        mean = 100 * sum(g[0] for g in gains) / len(gains)
        out.append((mean >= 20, f"mean gain {mean:+.1f} points, at least +20"))
    for name, value in controls.items():
        gain, low, high = (100 * x for x in value["all"]["gain"])
        out.append(
            (
                low <= 0 <= high,
                f"{name}: {gain:+.1f} points (95 % {low:+.1f} to {high:+.1f}) includes 0",
            )
        )
    return out


def savings(name: str, value: Mapping[str, Any]) -> list[tuple[bool, str]]:
    """Return the targets on cost, for kinds that were costly before training."""
    part = value["costly"]
    if part is None:
        return [(False, f"{name}: no kind costs {LEAST_CALLS:g} calls or more a solved task")]
    out: list[tuple[bool, str]] = []
    kinds = ", ".join(value["costly_kinds"])
    for cost, least in (("calls", 0.40), ("tokens", 0.30), ("latency_p50", 0.10)):
        change = part["change"][cost]
        if change is None or None in change:
            out.append((False, f"{name}: {cost} a solved task cannot be said"))
            continue
        mid, low, high = (100 * x for x in change)
        met = mid <= -100 * least and high < 0
        out.append(
            (
                met,
                f"{name}: {cost} a solved task {mid:+.0f} % (95 % {low:+.0f} to {high:+.0f}; {kinds}), at least -{100 * least:.0f} %",
            )
        )
    gain, low, _ = part["gain"] or (0.0, 0.0, 0.0)
    out.append(
        (low > 0, f"{name}: accuracy on those kinds {100 * gain:+.1f} points, interval above 0")
    )
    distance, noise = value["tool_mix"] or (0.0, 1.0)
    out.append(
        (
            distance > noise,
            f"{name}: tool mix moved by {distance:.2f}, beyond the A/A band {noise:.2f}",
        )
    )
    return out


def check() -> int:
    """Recompute figures, hold them against the committed ones and against the targets."""
    found = recompute()
    if not found:
        print("no results yet: python bench/demo.py --run --seed 1", file=sys.stderr)
        return 1
    committed = json.loads(SUMMARY.read_text()) if SUMMARY.exists() else {}
    if committed != json.loads(json.dumps(found)):
        print(
            f"{SUMMARY.name} does not follow from the rows; write it with --summarise",
            file=sys.stderr,
        )
        return 1
    print_tables(found)
    missed = 0
    for met, words in targets(found):
        missed += not met
        print(f"{'met   ' if met else 'MISSED'} {words}")
    print(f"figures recomputed from {len(found)} runs; {missed} targets missed")
    return 3 if missed else 0


def print_tables(found: Mapping[str, Any]) -> None:
    """Print accuracy before and after by kind."""
    for name, value in found.items():
        print(
            f"\n{name}: sealed test, after warm-up -> trained (lift; 95 % intervals, unit: company pair)"
        )
        for kind, part in {"all": value["all"], **value["kinds"]}.items():
            gain = part["gain"]
            calls = [part[f"calls_per_solved_{w}"] for w in ("before", "after")]
            shown = " -> ".join("-" if c is None else f"{c[0]:.2f}" for c in calls)
            print(
                f"  {kind:11} n={part['tasks']:<4} {100 * part['before'][0]:5.1f} -> {100 * part['after'][0]:5.1f} %"
                f"  {100 * gain[0]:+6.1f} ({100 * gain[1]:+.1f} to {100 * gain[2]:+.1f})  calls a solved task {shown}"
            )
        print(
            f"  of the gain, valid format {100 * value['gain_by_format']:+.1f}, right given valid {100 * value['gain_by_answers']:+.1f}"
        )


def main() -> int:
    """Parse arguments and do one of the three things."""
    parser = argparse.ArgumentParser(description="The demo's gain, its controls and its cost.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", action="store_true", help="make one run")
    what.add_argument("--check", action="store_true", help="recompute figures from committed rows")
    what.add_argument("--summarise", action="store_true", help="write summary.json from the rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--control", action="store_true", help="random rewards")
    parser.add_argument(
        "extra", nargs="*", help="options for `learnloop train`, after --; not for committed runs"
    )
    options = parser.parse_args()
    if options.run:
        print(run(options.seed, control=options.control, extra=options.extra))
        return 0
    if options.summarise:
        SUMMARY.write_text(json.dumps(recompute(), indent=1) + "\n")
        return 0
    return check()


if __name__ == "__main__":
    sys.exit(main())
