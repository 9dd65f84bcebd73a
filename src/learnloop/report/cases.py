"""A case: one task, the trajectory before beside the one after, and what differs in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from learnloop.task import Task, field_of
from learnloop.trace import CallRecord, Content, Trace

SHOWN = 10
"""Most wins, and most regressions, that a report shows."""
RESULT_CHARS = 280
"""Most characters of one tool result that are kept."""
TEXT_CHARS = 1200
"""Most characters of a question, an expected answer or an answer that are kept."""

_NOT_KEPT = {
    "hash": "(not kept: the project stores hashes of texts)",
    "none": "(not kept: the project stores numbers only)",
    "erased": "(erased from the store)",
}
"""What stands in place of texts, by what the store kept of a rollout."""
_ENDINGS = {
    "answer": "gave an answer",
    "calls": "ran out of calls",
    "rounds": "ran out of rounds",
    "tokens": "ran out of tokens",
    "length": "was cut off in the middle of a turn",
    "context": "filled its context",
    "wall_time": "ran out of time",
    "cancelled": "was cancelled",
    "infra": "was lost to a fault outside the agent",
}


@dataclass(frozen=True, kw_only=True)
class ShownCall:
    """One tool call as a report shows it; `repeats` marks one made before with equal arguments."""

    tool: str
    arguments: str
    result: str
    round: int
    is_error: bool
    repeats: bool


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One rollout as a report shows it."""

    trace_id: str
    attempt: int
    calls: tuple[ShownCall, ...]
    answer: str
    correct: float
    score: float
    outcome: str
    finish_reason: str
    explanation: str
    tokens: int
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """One task in both arms: `mean_before` and `mean_after` are over its graded attempts."""

    task_id: str
    kind: str
    question: str
    expected: str
    mean_before: float
    mean_after: float
    attempts_before: int
    attempts_after: int
    before: Trajectory
    after: Trajectory
    differences: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The tasks that changed most, and how many changed at all, each way."""

    wins: tuple[Case, ...]
    regressions: tuple[Case, ...]
    wins_total: int
    regressions_total: int


def cases(
    tasks: Mapping[str, Task],
    before: Sequence[Trace],
    after: Sequence[Trace],
    *,
    reference: str = "answer",
    shown: int = SHOWN,
) -> Cases:
    """Return the largest wins and regressions by mean correctness; kinds take turns among equals.

    `reference` names the field of the task's row that holds the expected answer.
    """
    olds, news = _graded_by_task(before), _graded_by_task(after)
    changed = [(_mean(news[t]) - _mean(olds[t]), t) for t in sorted(olds.keys() & news.keys())]
    rises = [(d, t) for d, t in changed if d > 0]
    falls = [(-d, t) for d, t in changed if d < 0]

    def show(ranked: list[tuple[float, str]], sign: int) -> tuple[Case, ...]:
        chosen = _alternate(ranked, tasks)[:shown]
        return tuple(_case(t, tasks.get(t), olds[t], news[t], (sign, reference)) for t in chosen)

    return Cases(
        wins=show(rises, 1),
        regressions=show(falls, -1),
        wins_total=len(rises),
        regressions_total=len(falls),
    )


def differences(before: Trace, after: Trace) -> tuple[str, ...]:
    """Return, in words, how two rollouts of one task differ: tools, calls, ending, answer."""
    found = (
        _first_tool(before, after),
        _call_count(before, after),
        _repeats(before, after),
        _errors(before, after),
        _tool_sets(before, after),
        _ending(before, after),
        _answers(before, after),
    )
    return tuple(words for words in found if words)


def trajectory(trace: Trace) -> Trajectory:
    """Return what a report shows of a rollout, with long texts shortened."""
    return Trajectory(
        trace_id=trace.id,
        attempt=trace.attempt,
        calls=_shown_calls(trace),
        answer=_NOT_KEPT.get(trace.content) or _short(trace.answer, TEXT_CHARS),
        correct=trace.score.correct if trace.score else 0.0,
        score=trace.score.value if trace.score else 0.0,
        outcome=trace.outcome,
        finish_reason=trace.finish_reason,
        explanation=_explanation(trace),
        tokens=trace.tokens_total,
        latency_s=trace.latency_s,
    )


def _case(
    task_id: str,
    task: Task | None,
    olds: Sequence[Trace],
    news: Sequence[Trace],
    how: tuple[int, str],
) -> Case:
    sign, reference = how
    old, new = _pair(olds, news, sign)
    return Case(
        task_id=task_id,
        kind=task.kind if task else "",
        question=_short(_question(task, old, new), TEXT_CHARS),
        expected=_short(_expected(task, reference, old, new), TEXT_CHARS),
        mean_before=_mean(olds),
        mean_after=_mean(news),
        attempts_before=len(olds),
        attempts_after=len(news),
        before=trajectory(old),
        after=trajectory(new),
        differences=differences(old, new),
    )


def _pair(olds: Sequence[Trace], news: Sequence[Trace], sign: int) -> tuple[Trace, Trace]:
    """Return the first attempt that changed the way the task did; extremes when none did."""
    by_attempt = {t.attempt: t for t in news}
    for old in olds:
        new = by_attempt.get(old.attempt)
        if new is not None and sign * (_correct(new) - _correct(old)) > 0:
            return old, new
    return (
        min(olds, key=lambda t: sign * _correct(t)),
        max(news, key=lambda t: sign * _correct(t)),
    )


def _alternate(ranked: list[tuple[float, str]], tasks: Mapping[str, Task]) -> list[str]:
    """Order by size of change; among equal changes let the kinds take turns."""
    turn: Counter[tuple[float, str]] = Counter()
    keyed: list[tuple[float, int, str]] = []
    for size, task_id in ranked:
        slot = (size, tasks[task_id].kind if task_id in tasks else "")
        keyed.append((-size, turn[slot], task_id))
        turn[slot] += 1
    return [task_id for _, _, task_id in sorted(keyed)]


def _graded_by_task(traces: Iterable[Trace]) -> dict[str, list[Trace]]:
    grouped: dict[str, list[Trace]] = defaultdict(list)
    for trace in sorted(traces, key=lambda t: t.attempt):
        if trace.score is not None:
            grouped[trace.task_id].append(trace)
    return dict(grouped)


def _correct(trace: Trace) -> float:
    return trace.score.correct if trace.score else 0.0


def _mean(traces: Sequence[Trace]) -> float:
    return fmean(_correct(t) for t in traces)


def _question(task: Task | None, *traces: Trace) -> str:
    """Return what was asked, as far as the store kept it of every one of the rollouts."""
    least = _least_kept(traces)
    if least.content in _NOT_KEPT:
        return _NOT_KEPT[least.content]
    messages = task.messages if task and least.content == "full" else least.messages
    asked = [m.content for m in messages if m.role == "user"]
    return asked[-1] if asked else ""


def _expected(task: Task | None, reference: str, *traces: Trace) -> str:
    """Return the reference answer; it may quote what was said, so it goes where texts go."""
    least = _least_kept(traces)
    if task is None or least.content == "full":
        gold: object = field_of(task.item, reference) if task else None
        return "" if gold is None else str(gold)
    return _NOT_KEPT.get(least.content, "(not kept: the project masks texts)")


def _least_kept(traces: Sequence[Trace]) -> Trace:
    order: tuple[Content, ...] = ("erased", "none", "hash", "masked", "full")
    return min(traces, key=lambda t: order.index(t.content))


def _short(words: str, limit: int) -> str:
    if len(words) <= limit:
        return words
    return f"{words[:limit].rstrip()} … ({len(words) - limit} more characters)"


def _with_repeats(calls: Sequence[CallRecord]) -> list[tuple[CallRecord, bool]]:
    seen: set[tuple[str, str]] = set()
    marked: list[tuple[CallRecord, bool]] = []
    for call in calls:
        key = (call.call.name, call.call.arguments.strip())
        marked.append((call, key in seen))
        seen.add(key)
    return marked


def _explanation(trace: Trace) -> str:
    if trace.score is None or trace.content in _NOT_KEPT:
        return ""
    return _short(trace.score.explanation, RESULT_CHARS)


def _shown_calls(trace: Trace) -> tuple[ShownCall, ...]:
    instead = _NOT_KEPT.get(trace.content, "")
    return tuple(_shown(c, repeats=again, instead=instead) for c, again in _repeated(trace))


def _repeated(trace: Trace) -> list[tuple[CallRecord, bool]]:
    """Return calls, and which of them repeat another; without arguments that cannot be told."""
    if trace.content in {"none", "erased"}:
        return [(call, False) for call in trace.calls]
    return _with_repeats(trace.calls)


def _shown(record: CallRecord, *, repeats: bool, instead: str) -> ShownCall:
    return ShownCall(
        tool=record.call.name,
        arguments=instead or _short(record.call.arguments, RESULT_CHARS),
        result=instead or _short(record.output, RESULT_CHARS),
        round=record.round,
        is_error=record.is_error,
        repeats=repeats,
    )


def _first_tool(before: Trace, after: Trace) -> str:
    old = before.calls[0].call.name if before.calls else "no tool"
    new = after.calls[0].call.name if after.calls else "no tool"
    return "" if old == new else f"First tool: {old} before, {new} after."


def _call_count(before: Trace, after: Trace) -> str:
    old, new = len(before.calls_run), len(after.calls_run)
    if old == new:
        return ""
    return f"Calls: {_in_rounds(before)} before, {_in_rounds(after)} after."


def _in_rounds(trace: Trace) -> str:
    calls, rounds = len(trace.calls_run), trace.rounds
    return str(calls) if rounds == calls else f"{calls} in {rounds} rounds"


def _repeats(before: Trace, after: Trace) -> str:
    if {"none", "erased"} & {before.content, after.content}:
        return ""
    old = sum(again for _, again in _with_repeats(before.calls))
    new = sum(again for _, again in _with_repeats(after.calls))
    return (
        "" if old == new else f"Calls repeated with the same arguments: {old} before, {new} after."
    )


def _errors(before: Trace, after: Trace) -> str:
    old = sum(c.is_error for c in before.calls)
    new = sum(c.is_error for c in after.calls)
    return "" if old == new else f"Calls answered with an error: {old} before, {new} after."


def _tool_sets(before: Trace, after: Trace) -> str:
    old, new = ({c.call.name for c in t.calls_run} for t in (before, after))
    parts = [f"no longer uses {', '.join(sorted(old - new))}"] if old - new else []
    parts += [f"now uses {', '.join(sorted(new - old))}"] if new - old else []
    return f"Tools: {' and '.join(parts)}." if parts else ""


def _ending(before: Trace, after: Trace) -> str:
    if before.finish_reason == after.finish_reason:
        return ""
    old = _ENDINGS.get(before.finish_reason, before.finish_reason)
    new = _ENDINGS.get(after.finish_reason, after.finish_reason)
    return f"Ending: {old} before, {new} after."


def _answers(before: Trace, after: Trace) -> str:
    if {before.content, after.content} & _NOT_KEPT.keys():
        # Hashes of two rollouts have different salts, so not even these can be compared.
        return ""
    old, new = (_short(t.answer.strip(), 120) for t in (before, after))
    return (
        "The answer is the same text." if old == new else f"Answer: “{old}” before, “{new}” after."
    )
