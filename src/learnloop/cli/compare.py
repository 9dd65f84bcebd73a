"""`learnloop compare`: two runs, or arms of them, paired by task."""

from __future__ import annotations

from dataclasses import asdict

from learnloop.arms import differing_settings, find_arm, shared_split
from learnloop.cli.options import InProject
from learnloop.errors import UsageError
from learnloop.project import Project
from learnloop.render.tables import compare_table
from learnloop.report import rival_words
from learnloop.reporting import arm_fields, tasks_of_run
from learnloop.summary import Comparison, Estimate, sentence
from learnloop.summary import compare as compare_arms


def compare(
    before: str, after: str, /, *, rival: tuple[str, ...] = (), common: InProject | None = None
) -> None:
    """Compare two runs, or arms of them, on the tasks that both have tried.

    A run is named by its id, its beginning, `latest` or `latest~1`; `RUN:untrained`, `RUN:warm`
    and `RUN:final` are the arms of a training run. The split is the most telling one that both
    have: test, else confirm, else screen. Arms that different graders judged are refused.

    Args:
        before: the baseline.
        after: what is compared with it.
        rival: another run to hold `after` against, such as an `eval` with the best prompt; may be given
            several times.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(None))
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        arms = find_arm(store, before), find_arm(store, after)
        rivals = [find_arm(store, name) for name in rival]
    differing = differing_settings(*arms)
    for other in rivals:
        differing_settings(other, arms[1])
    split = shared_split(arms)
    for other in rivals:
        if split not in other.splits:
            fix = f"`learnloop eval --split {split}` makes some."
            raise UsageError(
                f"run {other.name} has no rollouts on {split}", where="--rival", fix=fix
            )
    # Of all, so that all are checked; most often all are of one dataset, and it is read once.
    datasets = {arm.run.meta.get("dataset"): arm.run for arm in (*arms, *rivals)}
    tasks, *_ = (tasks_of_run(project, run) for run in datasets.values())
    sides = [arm.splits[split] for arm in (*arms, *rivals)]
    found = compare_arms(sides[0], sides[1], tasks, prices=project.config.prices)
    held = {
        arm.name: compare_arms(side, sides[1], tasks)
        for arm, side in zip(rivals, sides[2:], strict=True)
    }
    if common.output.json:
        names = {"a": arms[0].name, "b": arms[1].name, "split": split}
        against = {name: _gain_fields(one) for name, one in held.items()}
        common.output.data({**names, "differing": differing, **_fields(found), "rivals": against})
    else:
        common.output.text(f"before: {arms[0].name}, after: {arms[1].name}, on {split}")
        common.output.show(compare_table(found))
        for name, one in held.items():
            common.output.text(f"Held against {name}, {arms[1].name} {rival_words(one)}.")
        if differing:
            common.output.text(f"beside the weights these differ: {', '.join(differing)}")
    common.output.next(common.command("runs"))


def _gain_fields(found: Comparison) -> dict[str, object]:
    """Return the difference in accuracy, and what so many tasks can show at all."""
    gain = found.correct
    return {
        "tasks": found.tasks,
        "sentence": sentence(found),
        "gain": gain.difference.value if gain else None,
        "gain_ci": [gain.difference.low, gain.difference.high] if gain else None,
        "p": gain.p if gain else None,
        "detectable": gain.detectable(found.units) if gain else None,
    }


def _fields(found: Comparison) -> dict[str, object]:
    return {
        **_gain_fields(found),
        "before": arm_fields(found.before),
        "after": arm_fields(found.after),
        "costs": {name: _change(change.both_correct) for name, change in found.costs.items()},
        "latency": {
            name: _change(change)
            for name, change in (
                ("p50", found.costs["latency_s"].p50_correct),
                ("p95", found.costs["latency_s"].p95_correct),
            )
        },
        "rerun": asdict(found.rerun) if found.rerun else None,
        "majority": asdict(found.majority) if found.majority else None,
        "wins": len(found.wins),
        "losses": len(found.losses),
        "kinds": {kind: _fields(part) for kind, part in found.kinds.items()},
    }


def _change(change: Estimate | None) -> dict[str, object] | None:
    """Return a relative change among rollouts that both arms got right; -0.4 is 40 % less."""
    return change and {"change": change.value, "ci": [change.low, change.high], "n": change.n}
