"""The variance probe: where the agent can learn, seen from a few attempts at each task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from learnloop import stats
from learnloop.summary.row import Row, by_task, mean, rows_of
from learnloop.task import Task
from learnloop.trace import Trace

Bucket = Literal["never_passed", "mixed", "always_passed", "grader_unstable", "infra_flaky"]
BUCKETS: tuple[Bucket, ...] = (
    "never_passed",
    "mixed",
    "always_passed",
    "grader_unstable",
    "infra_flaky",
)
AdviceCode = Literal[
    "go", "nothing_to_learn", "too_hard", "grader_too_harsh", "grader_unstable", "tools_broken"
]
GROUP_SIZES = (4, 8, 16, 32)

_SAME = 1e-9


@dataclass(frozen=True, kw_only=True)
class ProbedTask:
    """One probed task: mean, deviation and best of its graded scores, and its bucket.

    `attempts` counts planned attempts, `graded` those with a score, `passed` the fully correct
    ones; mean, sd and best are None when nothing was graded: missing is not zero.
    """

    task_id: str
    kind: str
    bucket: Bucket
    attempts: int
    graded: int
    passed: int
    mean: float | None
    sd: float | None
    best: float | None


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Expected share of groups of `group_size` attempts whose results differ.

    Up to the probe's own number of attempts the share is exact and unbiased and has no interval;
    above it is fitted. Beyond twice that number it is `extrapolated`, and `other_fit` gives a
    second fit that makes no assumption on the law of pass rates.
    """

    group_size: int
    share: float
    low: float | None = None
    high: float | None = None
    extrapolated: bool = False
    other_fit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do next: a code to act on, and why in words."""

    code: AdviceCode
    words: str


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What the probe found.

    Attributes:
        attempts: planned attempts of each task.
        tasks: one entry for each task, in order of bucket, mean and id.
        buckets: number of tasks in each bucket; they sum to the number of tasks.
        signals: expected share of groups with signal, by group size.
        planned: rollouts planned; `graded` of them have a score, `lost` counts the others by kind.
        sentence: the verdict.
        regraded: rollouts that were graded a second time.
        limit: what so few attempts cannot see, in words.
        advice: what to do next.
    """

    attempts: int
    tasks: tuple[ProbedTask, ...]
    buckets: Mapping[Bucket, int]
    signals: tuple[Signal, ...]
    planned: int
    graded: int
    lost: Mapping[str, int]
    regraded: int
    sentence: str
    limit: str
    advice: Advice

    @property
    def expected_signal(self) -> dict[int, float]:
        """Return the expected share of groups with signal by group size."""
        return {signal.group_size: signal.share for signal in self.signals}


def probe(
    traces: Sequence[Trace],
    tasks: Mapping[str, Task],
    *,
    attempts: int,
    regraded: Mapping[str, float] | None = None,
    group_sizes: Sequence[int] = GROUP_SIZES,
) -> ProbeResult:
    """Return what `attempts` tries at each task of `tasks` show.

    Args:
        traces: the rollouts of the probe.
        tasks: the tasks that were probed, by id.
        attempts: rollouts planned for each of them.
        regraded: second scores by trace id, where traces were graded twice.
        group_sizes: sizes of training groups to foresee.
    """
    rows = rows_of(traces, tasks, attempts=attempts)
    unstable = _unstable(traces, regraded or {})
    probed = [_probed(ours, unstable) for ours in by_task(rows).values()]
    buckets: dict[Bucket, int] = {
        name: sum(task.bucket == name for task in probed) for name in BUCKETS
    }
    cells = [(t.passed, t.graded) for t in probed if t.bucket in BUCKETS[:3]]
    signals = expected_signals(cells, group_sizes)
    return ProbeResult(
        attempts=attempts,
        tasks=tuple(sorted(probed, key=_place)),
        buckets=buckets,
        signals=signals,
        planned=len(rows),
        graded=sum(not row.lost for row in rows),
        lost=dict(sorted(Counter(row.lost for row in rows if row.lost).items())),
        regraded=len(regraded or {}),
        sentence=_sentence(buckets, attempts),
        limit=_limit(attempts),
        advice=_advice(buckets, rows, traces),
    )


def _unstable(traces: Sequence[Trace], regraded: Mapping[str, float]) -> set[str]:
    """Return the tasks with a trace whose second score differs from its first."""
    return {
        trace.task_id
        for trace in traces
        if trace.score is not None
        and abs(regraded.get(trace.id, trace.score.value) - trace.score.value) > _SAME
    }


def _probed(rows: Sequence[Row], unstable: set[str]) -> ProbedTask:
    graded = [row for row in rows if not row.lost]
    scores = [row.score for row in graded]
    return ProbedTask(
        task_id=rows[0].task_id,
        kind=rows[0].kind,
        bucket=_bucket(rows, graded, unstable),
        attempts=len(rows),
        graded=len(graded),
        passed=sum(row.solved for row in graded),
        mean=mean(scores) if scores else None,
        sd=stats.deviation(scores) if scores else None,
        best=max(scores, default=None),
    )


def _place(task: ProbedTask) -> tuple[int, float, str]:
    """Return a key to sort by: bucket, mean and id, tasks without a mean behind the others."""
    mean_or_last = math.inf if task.mean is None else task.mean
    return BUCKETS.index(task.bucket), mean_or_last, task.task_id


def _bucket(rows: Sequence[Row], graded: Sequence[Row], unstable: set[str]) -> Bucket:
    # More than a third lost, or too little left to see variance: the task says nothing yet.
    if 3 * (len(rows) - len(graded)) > len(rows) or not graded:
        return "infra_flaky"
    if rows[0].task_id in unstable:
        return "grader_unstable"
    right = [row.correct for row in graded]
    if all(row.solved for row in graded):
        return "always_passed"
    return "mixed" if max(right) - min(right) > _SAME else "never_passed"


def discordant_share(tasks: Sequence[ProbedTask]) -> float | None:
    """Return how often two attempts at a task differ, unbiased; None without tasks tried twice."""
    pairs = [(t.passed, t.graded) for t in tasks if t.graded > 1]
    if not pairs:
        return None
    return mean([2 * c * (n - c) / (n * (n - 1)) for c, n in pairs])


def expected_signals(
    cells: Sequence[tuple[int, int]], group_sizes: Sequence[int]
) -> tuple[Signal, ...]:
    """Return the expected share of groups with signal for each size, from (passes, attempts)."""
    if not cells:
        return ()
    return tuple(_signal(cells, size) for size in sorted(group_sizes))


def _signal(cells: Sequence[tuple[int, int]], size: int) -> Signal:
    seen = min(k for _, k in cells)
    if size <= seen:
        return Signal(group_size=size, share=stats.signal_unbiased(cells, size))
    fitted = stats.signal_beta_binomial(cells, size)
    far = size > 2 * seen
    return Signal(
        group_size=size,
        share=fitted.value,
        low=fitted.low,
        high=fitted.high,
        extrapolated=far,
        other_fit=stats.signal_npmle(cells, size) if far else None,
    )


def _sentence(buckets: Mapping[Bucket, int], attempts: int) -> str:
    total = sum(buckets.values())
    parts = [
        f"{buckets['mixed']} of {total} tasks can teach",
        f"{buckets['never_passed']} never passed in {attempts}",
        f"{buckets['always_passed']} always passed in {attempts}",
    ]
    if buckets["grader_unstable"]:
        parts.append(f"{buckets['grader_unstable']} got another score when graded again")
    if buckets["infra_flaky"]:
        parts.append(f"{buckets['infra_flaky']} lost too many attempts to faults")
    return "; ".join(parts)


def _limit(attempts: int) -> str:
    most = 1 - 0.05 ** (1 / attempts)
    return (
        f"never passed in {attempts} is compatible with a pass rate of up to {most:.2f}; "
        f"at a rate of 0.10, {attempts} tries miss {0.9**attempts:.0%} of tasks"
    )


def _advice(buckets: Mapping[Bucket, int], rows: Sequence[Row], traces: Sequence[Trace]) -> Advice:
    total = sum(buckets.values())
    if total == 0:
        return Advice(code="nothing_to_learn", words="no task was probed")
    broken = _broken(buckets["infra_flaky"], total, rows) or _failing_calls(traces)
    if broken:
        return Advice(code="tools_broken", words=broken)
    if 10 * buckets["grader_unstable"] > total:
        words = f"the grader contradicts itself on {buckets['grader_unstable']} tasks; fix it first"
        return Advice(code="grader_unstable", words=words)
    if buckets["mixed"] == 0:
        return _no_variance(buckets, rows)
    words = "go: train with rft"
    if buckets["mixed"] * 10 < total:
        words += "; few tasks teach, so draw easier ones more often or take larger groups"
    return Advice(code="go", words=words)


def _broken(flaky: int, total: int, rows: Sequence[Row]) -> str:
    lost = Counter(row.lost for row in rows if row.lost)
    if 5 * flaky <= total or not lost:
        return ""
    kind, count = lost.most_common(1)[0]
    return (
        f"{flaky} of {total} tasks lost too many attempts; the commonest fault is {kind} ({count})"
    )


def _failing_calls(traces: Sequence[Trace]) -> str:
    calls = Counter(record.call.name for trace in traces for record in trace.calls)
    errors = Counter(r.call.name for trace in traces for r in trace.calls if r.is_error)
    for tool, count in calls.items():
        if count >= 10 and errors[tool] >= 0.9 * count:
            return f"{errors[tool]} of {count} calls to {tool} ended in an error"
    return ""


def _no_variance(buckets: Mapping[Bucket, int], rows: Sequence[Row]) -> Advice:
    if buckets["never_passed"] == 0:
        words = "every task always passes: only cost is left to improve, or take harder tasks"
        return Advice(code="nothing_to_learn", words=words)
    if buckets["always_passed"]:
        words = (
            "no task varies: what passes always passes and the rest never does; take tasks between"
        )
        return Advice(code="nothing_to_learn", words=words)
    readable = mean([row.valid for row in rows if not row.lost])
    if readable < 0.5:
        words = (
            f"the grader could read {readable:.0%} of the answers: say the answer's form in the "
            "prompt or warm up on demonstrations"
        )
        return Advice(code="too_hard", words=words)
    words = (
        f"nothing passed though {readable:.0%} of the answers could be read: check the grader on "
        "known good answers, then take easier tasks"
    )
    return Advice(code="grader_too_harsh", words=words)
