"""`learnloop compare`: two runs, or arms of them, paired by task."""

from __future__ import annotations

from dataclasses import asdict

from learnloop.arms import differing_settings, find_arm, shared_split
from learnloop.cli.options import InProject
from learnloop.errors import UsageError
from learnloop.project import Project
from learnloop.render.tables import compare_table
from learnloop.reporting import arm_fields, tasks_of_run
from learnloop.summary import Comparison, Estimate, sentence
from learnloop.summary import compare as compare_arms


def compare(before: str, after: str, /, *, common: InProject | None = None) -> None:
    """Compare two runs, or arms of them, on the tasks that both have tried.

    A run is named by its id, its beginning, `latest` or `latest~1`; `RUN:untrained`, `RUN:warm`
    and `RUN:final` are the arms of a training run. The split is the most telling one that both
    have: test, else confirm, else screen. Arms that different graders judged are refused.

    Args:
        before: the baseline.
        after: what is compared with it.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(None))
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        arms = find_arm(store, before), find_arm(store, after)
    differing = differing_settings(*arms)
    split = shared_split(arms)
    tasks, _ = (tasks_of_run(project, arm.run) for arm in arms)  # of both, so both are checked
    found = compare_arms(arms[0].splits[split], arms[1].splits[split], tasks)
    if common.output.json:
        names = {"a": arms[0].name, "b": arms[1].name, "split": split}
        common.output.data({**names, "differing": differing, **_fields(found)})
    else:
        common.output.text(f"before: {arms[0].name}, after: {arms[1].name}, on {split}")
        common.output.show(compare_table(found))
        if differing:
            common.output.text(f"beside the weights these differ: {', '.join(differing)}")
    common.output.next(common.command("runs"))


def _fields(found: Comparison) -> dict[str, object]:
    gain = found.correct
    return {
        "tasks": found.tasks,
        "sentence": sentence(found),
        "before": arm_fields(found.before),
        "after": arm_fields(found.after),
        "gain": gain.difference.value if gain else None,
        "gain_ci": [gain.difference.low, gain.difference.high] if gain else None,
        "p": gain.p if gain else None,
        "costs": {name: _change(change.both_correct) for name, change in found.costs.items()},
        "rerun": asdict(found.rerun) if found.rerun else None,
        "wins": len(found.wins),
        "losses": len(found.losses),
        "kinds": {kind: _fields(part) for kind, part in found.kinds.items()},
    }


def _change(change: Estimate | None) -> dict[str, object] | None:
    """Return a relative change among rollouts that both arms got right; -0.4 is 40 % less."""
    return change and {"change": change.value, "ci": [change.low, change.high], "n": change.n}
