"""The study behind the gate's numbers: simulate, keep the raw rows, recompute every figure from them.

    python -m bench.gate_study --quick --check | --run | --check      (see `gate.py`)

`--quick` simulates fewer runs and checks them with wider tolerance; with `--check` the committed
rows are checked as well. A false adoption may exceed its bound by three standard errors of the
number of runs, nothing else. Exit code 1: the summary does not follow from the rows; 3: something
that must hold does not. Label of every figure: mechanism.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench import gate_coverage, gate_peers
from bench.gate_runs import finish_order_rows, run_rows, saving_rows
from bench.gate_worlds import ALPHA, WORLDS, World, pairs_of

from learnloop.gate import GateRules, decide

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "gate"
SUMMARY = RESULTS / "summary.json"
PARTS = ("worlds", "runs", "saving", "order", "published", "equal", "coverage")
LETTERS = {"adopt": "a", "reject": "r", "indecisive": "i", "no_change": "n", "infra": "f"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is simulated."""

    seed: int = 4
    runs: int = 2000
    graded_runs: int = 2000
    chains: int = 2000
    peers: int = 20_000
    coverage: int = 2000
    resampled: int = 200

    @property
    def hash(self) -> str:
        """Return a hash of these numbers."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


FULL = Settings()
QUICK = Settings(runs=60, graded_runs=25, chains=40, peers=4000, coverage=80, resampled=8)


# --- simulating ----------------------------------------------------------------------------------


def world_row(world: World, runs: int, seed: tuple[int, ...]) -> dict[str, Any]:
    """Return the verdicts of one world: a letter a run (A: adopted and carries over), and its look."""
    rng = np.random.default_rng(seed)
    letters, looks, seen = list[str](), list[str](), list[float]()
    for run in range(runs):
        rules = GateRules(alpha=ALPHA, scores=world.scores, seed=run)
        pairs = pairs_of(world, rng)
        found = decide(pairs, rules)
        assert found is not None, "the cap always decides"
        letter = LETTERS[found.outcome]
        letters.append(letter.upper() if found.carries_over else letter)
        looks.append(str(len(found.looks)))
        if found.outcome == "adopt":
            counted = pairs[: found.pairs]
            seen.append(sum(p.clean_difference for p in counted) / found.pairs)
    return {
        "world": world.name,
        "runs": runs,
        "verdicts": "".join(letters),
        "looks": "".join(looks),
        "gain_seen": round(float(np.mean(seen)), 4) if seen else None,
    }


def simulate(part: str, settings: Settings, equal_pairs: Mapping[str, float]) -> Iterator[Any]:
    """Yield the rows of one part of the study."""
    s = settings
    if part == "worlds":
        for i, world in enumerate(WORLDS):
            runs = s.graded_runs if world.scores == "graded" else s.runs
            yield world_row(world, runs, (s.seed, i))
    elif part == "runs":
        yield from run_rows(s.chains, s.seed)
    elif part == "saving":
        yield from saving_rows(s.runs, s.seed)
    elif part == "order":
        yield from finish_order_rows(s.runs, s.seed)
    elif part == "published":
        yield from gate_peers.published_rows(s.peers, s.seed)
    elif part == "equal":
        yield from gate_peers.equal_rows(equal_pairs, ALPHA, s.peers, s.seed)
    else:
        yield from gate_coverage.rows(s.coverage, s.resampled, s.seed)


def study(settings: Settings, *, only: Sequence[str] = PARTS) -> dict[str, list[Any]]:
    """Return the rows of the parts, and say how long each took."""
    out: dict[str, list[Any]] = {}
    for part in only:
        began_s = time.perf_counter()
        pairs = mean_pairs(out["worlds"]) if "worlds" in out else {}
        out[part] = list(simulate(part, settings, pairs))
        print(f"{part}: {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
    return out


def write(settings: Settings, found: Mapping[str, Sequence[Any]], made_at: str) -> None:
    """Write the raw rows of each part with what made them; `made_at` is the commit."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    head = {
        "label": "mechanism",
        "commit": made_at,
        "config_hash": settings.hash,
        "settings": asdict(settings),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    for part, rows in found.items():
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        text = json.dumps({**head, "part": part}, indent=1)
        (RESULTS / f"{part}.json").write_text(f'{text[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n')


def commit() -> str:
    """Return the commit of this tree, marked where the tree is not that commit's."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    status = [*git, "status", "--porcelain", "--", ".", ":!bench/results"]
    return head + (" with changes" if subprocess.check_output(status, text=True) else "")


# --- figures -------------------------------------------------------------------------------------


def share(count: int, runs: int) -> float:
    """Return a share, rounded so that it can be compared as text."""
    return round(count / runs, 5) if runs else 0.0


def mean_pairs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the mean number of pairs until the verdict by world."""
    return {r["world"]: 80 * sum(map(int, r["looks"])) / r["runs"] for r in rows}


def figures(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return every figure, from the rows alone."""
    pairs = mean_pairs(rows["worlds"])
    truth = {w.name: w.truth for w in WORLDS}
    worlds = {
        r["world"]: {
            "runs": r["runs"],
            "adopted": share(r["verdicts"].upper().count("A"), r["runs"]),
            "carries_over": share(r["verdicts"].count("A"), r["runs"]),
            "infra": share(r["verdicts"].count("f"), r["runs"]),
            "rollouts": round(2 * pairs[r["world"]], 1),
            "inflation": None
            if r["gain_seen"] is None
            else round(r["gain_seen"] - truth[r["world"]], 4),
        }
        for r in rows["worlds"]
    }
    out: dict[str, Any] = {"worlds": worlds}
    for part in ("runs", "saving", "order", "published", "equal"):
        out[part] = [
            {
                **{k: v for k, v in r.items() if k != "adopted"},
                "share": share(r["adopted"], r["runs"]),
            }
            for r in rows[part]
        ]
    out["coverage"] = [{**r, "covers": share(r["covered"], r["runs"])} for r in rows["coverage"]]
    return out


def error(p: float, runs: int) -> float:
    """Return the standard error of a share."""
    return math.sqrt(max(p * (1 - p), 1e-9) / runs)


Target = tuple[bool, str]


def targets(found: Mapping[str, Any]) -> Iterator[Target]:
    """Yield everything that must hold, with whether it does."""
    yield from _world_targets(found["worlds"])
    for part in ("runs", "saving"):
        for row in found[part]:
            yield from _bounded(
                f"{row['case']}", row["share"], row["runs"], row["holds"], row["bound"]
            )
    for row in found["order"]:
        if row["case"] == "another verdict":
            yield (
                row["share"] == 0,
                f"finish order changes {row['share']:.0%} of {row['runs']} verdicts",
            )
    yield from _peer_targets(found)
    yield from _coverage_targets(found["coverage"])


def _world_targets(worlds: Mapping[str, Any]) -> Iterator[Target]:
    for world in WORLDS:
        row = worlds[world.name]
        value = row["carries_over" if world.labelled else "adopted"]
        yield from _bounded(world.name, value, row["runs"], world.holds, world.bound)


def _bounded(name: str, value: float, runs: int, holds: str, bound: float) -> Iterator[Target]:
    slack = 3 * error(bound, runs)
    if holds == "at most":
        yield (
            value <= bound + slack,
            f"{name}: adopted {value:.4f}, at most {bound:g} + 3 s.e. {slack:.4f}",
        )
    elif holds == "at least":
        # The bounds of gains lie below what was measured already; few runs need more room.
        room = slack if runs < 1000 else 0.0
        yield value >= bound - room, f"{name}: adopted {value:.4f}, at least {bound:g}"


def _peer_targets(found: Mapping[str, Any]) -> Iterator[Target]:
    for row in found["equal"]:
        ours = found["worlds"][row["world"]]
        slack = 3 * math.hypot(
            error(ours["adopted"], ours["runs"]), error(row["share"], row["runs"])
        )
        yield (
            row["share"] <= ours["adopted"] + slack,
            f"{row['world']}, {row['pairs']} pairs: {row['rule']} {row['share']:.3f}, "
            f"our gate {ours['adopted']:.3f}",
        )


def _coverage_targets(rows: Sequence[Mapping[str, Any]]) -> Iterator[Target]:
    for row in rows:
        least = gate_coverage.LEAST[row["tasks"]]
        slack = 3 * error(least, row["runs"])
        yield (
            row["covers"] >= least - slack,
            f"{row['interval']}, {row['world']}, {row['tasks']} tasks: covers {row['covers']:.3f}, "
            f"at least {least}",
        )


# --- printing ------------------------------------------------------------------------------------


def show(found: Mapping[str, Any]) -> None:
    """Print the tables."""
    print(f"{'world (mechanism)':52} runs adopted carries rollouts inflation")
    for name, row in found["worlds"].items():
        inflation = "" if row["inflation"] is None else f"{100 * row['inflation']:+6.1f}"
        print(
            f"{name:52} {row['runs']:4} {row['adopted']:7.4f} {row['carries_over']:7.4f} "
            f"{row['rollouts']:8.0f} {inflation}"
        )
    for part in ("runs", "saving", "order"):
        for row in found[part]:
            print(f"{row['case']:52} {row['runs']:4} {row['share']:7.4f}")
    print("\nothers' rules as published: adopted, inflation of the reported score, rollouts")
    for row in found["published"]:
        print(
            f"  {row['rule']:12} {row['world']:6} {row['case']:18} {row['share']:.3f} "
            f"{100 * row['inflation']:+5.1f} {row['rollouts']}"
        )


def judge(found: Mapping[str, Any], title: str) -> int:
    """Print what does not hold; return how many."""
    results = list(targets(found))
    missed = [words for met, words in results if not met]
    for words in missed:
        print(f"MISSED {words}")
    print(f"{title}: {len(results) - len(missed)} of {len(results)} hold")
    return len(missed)


def check_committed() -> int:
    """Recompute the committed figures; return the exit code."""
    if not SUMMARY.exists():
        print("no committed rows yet: python bench/gate.py --run", file=sys.stderr)
        return 1
    data = {part: json.loads((RESULTS / f"{part}.json").read_text()) for part in PARTS}
    found = figures({part: d["rows"] for part, d in data.items()})
    hashes = {d["config_hash"] for d in data.values()}
    if hashes != {Settings(**data["worlds"]["settings"]).hash}:
        print("the rows were made with different settings", file=sys.stderr)
        return 1
    if json.loads(SUMMARY.read_text()) != json.loads(json.dumps(found)):
        print(f"{SUMMARY.name} does not follow from the rows", file=sys.stderr)
        return 1
    show(found)
    return 3 if judge(found, "committed rows") else 0


def main() -> int:
    """Parse arguments and do what is asked."""
    parser = argparse.ArgumentParser(description="The gate's error, power and coverage.")
    parser.add_argument("--run", action="store_true", help="simulate in full and keep the rows")
    parser.add_argument("--quick", action="store_true", help="simulate a little, keep nothing")
    parser.add_argument("--check", action="store_true", help="recompute the committed figures")
    parser.add_argument("--only", choices=PARTS, nargs="*", help="with --run: parts to redo")
    options = parser.parse_args()
    if options.run:
        run_parts(options.only or PARTS)
        return check_committed()
    code = 0
    if options.quick:
        code = 3 if judge(figures(study(QUICK)), "quick simulation") else 0
    if options.check:
        code = max(code, check_committed())
    return code if options.quick or options.check else 2


def run_parts(parts: Sequence[str]) -> None:
    """Simulate in full; what is not asked for stays as it is committed."""
    rows: dict[str, list[Any]] = {}
    made_at = commit()  # before hours of work during which the tree may change
    for part in PARTS:
        if part in parts:
            pairs = mean_pairs(rows["worlds"]) if "worlds" in rows else {}
            rows[part] = list(simulate(part, FULL, pairs))
            write(FULL, {part: rows[part]}, made_at)
            print(f"{part} is written", file=sys.stderr)
        else:
            rows[part] = json.loads((RESULTS / f"{part}.json").read_text())["rows"]
    SUMMARY.write_text(json.dumps(figures(rows), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
