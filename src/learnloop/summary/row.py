"""A row: one rollout reduced to the numbers that reports need."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from learnloop.budget import Spend
from learnloop.config import PricesConfig
from learnloop.task import Task
from learnloop.trace import Score, Trace

CostName = Literal["calls", "rounds", "tokens", "latency_s", "usd"]
COSTS: tuple[CostName, ...] = ("calls", "rounds", "tokens", "latency_s")
"""What every rollout costs; money comes beside it where there are prices."""


class Row(NamedTuple):
    """One planned rollout in numbers.

    `lost` names the failure kind of a rollout without a score and is empty otherwise; a lost
    row's score is 0 and counts only where "all planned, faults as failures" is asked for. Costs and
    `tools` count calls that were run; the others are `calls_not_run`. `answer` is what a vote
    counts: the last line of the answer, evened out; None where its text was not kept.
    """

    task_id: str
    unit: str
    kind: str
    score: float = 0.0
    correct: float = 0.0
    valid: float = 0.0
    lost: str = ""
    agent_fault: bool = False
    bad_call: bool = False
    costs: Mapping[CostName, float] = MappingProxyType({})
    tools: Mapping[str, int] = MappingProxyType({})
    calls_not_run: int = 0
    answer: str | None = None

    @property
    def solved(self) -> bool:
        """Return whether the grader found the answer fully correct."""
        return self.correct >= 1.0 - 1e-9


def rows_of(
    traces: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    attempts: int = 0,
    prices: PricesConfig | None = None,
) -> tuple[Row, ...]:
    """Return one row for each planned rollout of one arm; with `prices` money is among its costs.

    Of several traces of one attempt (a retry after a fault) the graded one counts, else the last.
    With `attempts` above 0, every task of `tasks` was planned that often and what left no trace
    is lost as `not_run`; with 0, what has a trace was planned.
    """
    kept = dict[tuple[str, int], Trace]()
    for trace in traces:
        key = (trace.task_id, trace.attempt)
        if key not in kept or not _has_score(kept[key]):
            kept[key] = trace
    prices = prices if prices != PricesConfig() else None
    rows = [_row(trace, tasks.get(trace.task_id), prices) for trace in kept.values()]
    seen = Counter(row.task_id for row in rows)
    for task in tasks.values() if attempts else ():
        missing = max(0, attempts - seen[task.id])
        rows += [_blank(task.id, task, "not_run") for _ in range(missing)]
    return tuple(rows)


def _has_score(trace: Trace) -> bool:
    return trace.outcome == "agent_fault" or (trace.outcome == "graded" and trace.score is not None)


def _blank(task_id: str, task: Task | None, lost: str) -> Row:
    unit, kind = (task.group or task.id, task.kind) if task else (task_id, "")
    return Row(task_id=task_id, unit=unit, kind=kind, lost=lost)


def _row(trace: Trace, task: Task | None, prices: PricesConfig | None) -> Row:
    if not _has_score(trace):
        return _blank(trace.task_id, task, trace.failure.kind if trace.failure else "no_score")
    run = trace.calls_run
    tools: dict[str, int] = {}  # plain: a Counter for each of 100,000 rollouts takes a second
    for record in run:
        tools[record.call.name] = tools.get(record.call.name, 0) + 1
    # An agent fault that no grader scored is a failure of the agent, not a missing number.
    score = trace.score or Score(value=0.0, correct=0.0, parts={"valid": 0.0})
    costs: dict[CostName, float] = {
        "calls": float(len(run)),
        "rounds": float(len({record.round for record in run})),
        "tokens": float(trace.tokens_total),
        "latency_s": trace.latency_s,
    }
    if prices is not None:
        costs["usd"] = Spend.of(trace).cost_usd(prices)
    return Row(
        task_id=trace.task_id,
        unit=(task.group or task.id) if task else trace.task_id,
        kind=task.kind if task else "",
        score=score.value,
        correct=score.correct,
        valid=score.parts.get("valid", 1.0),
        agent_fault=trace.outcome == "agent_fault",
        bad_call=has_bad_call(trace, task),
        costs=costs,
        tools=tools,
        calls_not_run=len(trace.calls) - len(run),
        answer=voted(trace),
    )


def voted(trace: Trace) -> str | None:
    """Return what a vote counts of an answer: its last line, spaces and letter case evened out."""
    if trace.content != "full":
        return None  # hashes are salted for each rollout: equal answers have different ones
    lines = trace.answer.strip().splitlines()
    return " ".join(lines[-1].split()).casefold() if lines else ""


def has_bad_call(trace: Trace, task: Task | None) -> bool:
    """Return whether the rollout has a malformed call or one to a tool its task does not have."""
    if any(turn.malformed for turn in trace.turns):
        return True
    if task is None or not task.tools:
        return False
    known = {tool.name for tool in task.tools}
    return any(call.name not in known for turn in trace.turns for call in turn.tool_calls)


def by_unit(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by unit (the task's group), units in order of their names."""
    found = defaultdict[str, list[Row]](list)
    for row in rows:
        found[row.unit].append(row)
    return {unit: found[unit] for unit in sorted(found)}


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by task, tasks in order of their ids."""
    found = defaultdict[str, list[Row]](list)
    for row in rows:
        found[row.task_id].append(row)
    return {task_id: found[task_id] for task_id in sorted(found)}


def mean(values: Sequence[float]) -> float:
    """Return the plain mean; `values` must not be empty."""
    return math.fsum(values) / len(values)


def tool_counts(rows: Iterable[Row]) -> Counter[str]:
    """Return how many calls went to each tool."""
    counts = Counter[str]()
    for row in rows:
        for tool, calls in row.tools.items():
            counts[tool] += calls
    return counts


def calls_per_tool(counts: Mapping[str, int], rollouts: int) -> dict[str, float]:
    """Return the mean number of calls a rollout makes to each tool that was called at all."""
    return {tool: counts[tool] / rollouts for tool in sorted(counts)}


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Return which share of all calls went to each tool; empty when there were no calls."""
    total = sum(counts.values())
    return {tool: counts[tool] / total for tool in sorted(counts)} if total else {}


def tool_shares(rows: Iterable[Row]) -> dict[str, float]:
    """Return the shares of some rows' calls."""
    return shares(tool_counts(rows))
