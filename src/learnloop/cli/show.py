"""`learnloop show`: one run in numbers, or one rollout word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from learnloop.cli.options import InProject
from learnloop.cli.output import Output, printable
from learnloop.cli.runs import as_it_is, run_fields
from learnloop.errors import UsageError
from learnloop.message import Message
from learnloop.project import Project
from learnloop.store import RunRecord, StepTotals, Store
from learnloop.trace import Trace


def show(name: str, /, *, common: InProject | None = None) -> None:
    """Show one run or one rollout.

    Args:
        name: a run (`latest`, `latest~1`, an id or its beginning) or a rollout (`trace_...`).
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    project = Project.open(common.folder(None))
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        if name.startswith("trace_"):
            _show_trace(output, store.trace(name))
            output.next(common.command("runs"))
        else:
            run = as_it_is(store.run(name), project)
            _show_run(output, run, store)
            output.next(common.command(f"report {run.id}"))


def _show_run(output: Output, run: RunRecord, store: Store) -> None:
    stages = [_stage(stage, totals) for stage, totals in _by_stage(store.totals(run.id))]
    if output.json:
        output.data({"run": run_fields(run), "stages": stages})
        return
    output.text(f"run {run.id}: {run.command}, {run.status}, seed {run.seed}, {run.config_hash}")
    head = ("stage", "step", "rollouts", "lost", "score", "correct", "calls")
    output.table(head, [tuple(_cell(stage[key]) for key in head) for stage in stages])


def _by_stage(
    totals: Sequence[StepTotals],
) -> Iterator[tuple[tuple[str, int], list[StepTotals]]]:
    """Yield the totals of each stage and step, in the order in which the store has them."""
    groups: dict[tuple[str, int], list[StepTotals]] = {}
    for total in totals:
        groups.setdefault((total.stage, total.step), []).append(total)
    yield from groups.items()


def _stage(key: tuple[str, int], totals: Sequence[StepTotals]) -> dict[str, object]:
    """Return a stage in numbers; means are over rollouts that have a score."""
    rollouts, scored = sum(t.rollouts for t in totals), sum(t.scored for t in totals)
    return {
        "stage": key[0],
        "step": key[1],
        "rollouts": rollouts,
        "lost": rollouts - scored,
        "score": _mean(sum(t.value_sum for t in totals), scored),
        "correct": _mean(sum(t.correct_sum for t in totals), scored),
        "calls": _mean(float(sum(t.scored_calls for t in totals)), scored),
    }


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _show_trace(output: Output, trace: Trace) -> None:
    if output.json:
        output.data({"trace": asdict(trace)})
        return
    output.text(f"{trace.id}: task {trace.task_id}, attempt {trace.attempt}, {trace.candidate_id}")
    if trace.content != "full":
        output.text(f"of what was said, the store kept: {trace.content}")
    for message in trace.messages:
        for line in _lines(message):
            output.text(printable(line))
    output.text(
        f"ended by {trace.finish_reason}, {len(trace.calls_run)} calls, {trace.latency_s:.1f} s"
    )
    if trace.failure is not None:
        failure = trace.failure
        output.text(printable(f"lost: {failure.boundary} {failure.kind}: {failure.message}"))
    elif trace.score is not None:
        score = trace.score
        output.text(
            printable(f"score {score.value:.3f}, correct {score.correct:g}. {score.explanation}")
        )


def _lines(message: Message) -> Iterator[str]:
    """Yield a message as lines that start with its role."""
    for line in message.content.splitlines():
        yield f"{message.role:>9} | {line}"
    for call in message.tool_calls:
        yield f"{message.role:>9} > {call.name} {call.arguments}"
