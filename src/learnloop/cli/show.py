"""`learnloop show`: one run in numbers, or one rollout word for word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from learnloop.cli.options import InProject
from learnloop.cli.output import Output
from learnloop.cli.runs import run_fields
from learnloop.errors import UsageError
from learnloop.message import Message
from learnloop.project import Project
from learnloop.store import RolloutRecord, RunRecord, Store
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
            run = store.run(name)
            _show_run(output, run, store)
            output.next(common.command(f"report {run.id}"))


def _show_run(output: Output, run: RunRecord, store: Store) -> None:
    stages = [_stage(stage, rows) for stage, rows in _by_stage(store.rows(run.id))]
    if output.json:
        output.data({"run": run_fields(run), "stages": stages})
        return
    output.text(f"run {run.id}: {run.command}, {run.status}, seed {run.seed}, {run.config_hash}")
    head = ("stage", "step", "rollouts", "lost", "score", "correct", "calls")
    output.table(head, [tuple(_cell(stage[key]) for key in head) for stage in stages])


def _by_stage(
    rows: Sequence[RolloutRecord],
) -> Iterator[tuple[tuple[str, int], list[RolloutRecord]]]:
    """Yield the rollouts of each stage and step, in the order in which the store has them."""
    groups: dict[tuple[str, int], list[RolloutRecord]] = {}
    for row in rows:
        groups.setdefault((row.stage, row.step), []).append(row)
    yield from groups.items()


def _stage(key: tuple[str, int], rows: Sequence[RolloutRecord]) -> dict[str, object]:
    """Return a stage in numbers; means are over rollouts that have a score."""
    return {
        "stage": key[0],
        "step": key[1],
        "rollouts": len(rows),
        "lost": sum(r.value is None for r in rows),
        "score": _mean([r.value for r in rows if r.value is not None]),
        "correct": _mean([r.correct for r in rows if r.correct is not None]),
        "calls": _mean([float(r.calls) for r in rows if r.value is not None]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _show_trace(output: Output, trace: Trace) -> None:
    if output.json:
        output.data({"trace": asdict(trace)})
        return
    output.text(f"{trace.id}: task {trace.task_id}, attempt {trace.attempt}, {trace.candidate_id}")
    for message in trace.messages:
        for line in _lines(message):
            output.text(_plain(line))
    output.text(
        f"ended by {trace.finish_reason}, {len(trace.calls_run)} calls, {trace.latency_s:.1f} s"
    )
    if trace.failure is not None:
        failure = trace.failure
        output.text(_plain(f"lost: {failure.boundary} {failure.kind}: {failure.message}"))
    elif trace.score is not None:
        score = trace.score
        output.text(
            _plain(f"score {score.value:.3f}, correct {score.correct:g}. {score.explanation}")
        )


def _lines(message: Message) -> Iterator[str]:
    """Yield a message as lines that start with its role."""
    for line in message.content.splitlines():
        yield f"{message.role:>9} | {line}"
    for call in message.tool_calls:
        yield f"{message.role:>9} > {call.name} {call.arguments}"


def _plain(text: str) -> str:
    """Return text that cannot move a terminal's cursor: the model wrote it, not we."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
