"""`learnloop flags`: what guards found in a run."""

from __future__ import annotations

from collections import Counter

from learnloop.cli.options import InProject
from learnloop.errors import UsageError
from learnloop.guards import CATALOGUE, UNGUARDED
from learnloop.history import History
from learnloop.project import Project
from learnloop.trace import Trace

_SHOWN = 3


def flags(run: str = "latest", /, *, common: InProject | None = None) -> None:
    """Show what guards found in the rollouts of a run, and the alarms of its training.

    Args:
        run: the run: an id, its beginning, `latest` or `latest~1`.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(None))
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        record = store.run(run)
        traces = [t for t in store.traces(record.id) if t.score is not None]
        history = History(store=store, run_id=record.id)
        alarms = [e.data for e in store.events(history.run_id, "alarm")]
    flagged = [t for t in traces if t.score is not None and t.score.flags]
    if common.output.json:
        common.output.data(
            {
                "run": record.id,
                "rollouts": len(traces),
                "blocked": sum(_is_blocked(t) for t in flagged),
                "guards": _counts(flagged),
                "flagged": [_fields(t) for t in flagged],
                "alarms": [{k: v for k, v in a.items() if k != "spent_s"} for a in alarms],
            }
        )
    else:
        _print(common, flagged, len(traces))
        for alarm in alarms:
            common.output.text(f"alarm at step {alarm['step']}, {alarm['guard']}: {alarm['words']}")
    first = f"show {flagged[0].id}" if flagged else f"show {record.id}"
    common.output.next(common.command(first))


def _print(common: InProject, flagged: list[Trace], rollouts: int) -> None:
    blocked = sum(_is_blocked(t) for t in flagged)
    common.output.text(
        f"{len(flagged)} of {rollouts} graded rollouts are flagged, {blocked} were rewarded as hacks"
    )
    for name, count in _counts(flagged).items():
        severity = CATALOGUE[name].severity if name in CATALOGUE else "by the grader"
        common.output.text(f"{name} ({severity}): {count}")
        for trace in [t for t in flagged if t.score and name in t.score.flags][:_SHOWN]:
            words = trace.score.explanation if trace.score else ""
            common.output.text(f"   {trace.id}  {words[:120]}")


def _counts(flagged: list[Trace]) -> dict[str, int]:
    found = Counter(name for t in flagged if t.score for name in t.score.flags)
    return dict(found.most_common())


def _is_blocked(trace: Trace) -> bool:
    return trace.score is not None and UNGUARDED in trace.score.parts


def _fields(trace: Trace) -> dict[str, object]:
    assert trace.score is not None, "only graded rollouts are flagged"
    return {
        "trace": trace.id,
        "task": trace.task_id,
        "flags": list(trace.score.flags),
        "blocked": _is_blocked(trace),
        "value": trace.score.value,
        "unguarded": trace.score.parts.get(UNGUARDED),
        "explanation": trace.score.explanation,
    }
