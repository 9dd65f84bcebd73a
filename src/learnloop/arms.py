"""Arms: what `RUN`, `RUN:warm` and `RUN/step-5` mean on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learnloop.codec import config_changes
from learnloop.errors import ConfigError, UsageError
from learnloop.history import History
from learnloop.project import Project
from learnloop.report import ArmName
from learnloop.run import UNTRAINED
from learnloop.session import training_run
from learnloop.store import RunRecord, Store
from learnloop.task import SPLITS, Split
from learnloop.trace import Trace

_TELLING = re.compile(
    r"model\.(dtype|temperature|max_.+)|agent\.(?!system_prompt).+|grader\.cost_.+|tools\[.+"
)
"""Settings by which the same weights may answer, or be paid, differently."""

_NAMES: Mapping[str, ArmName] = {"untrained": "baseline", "warm": "warm", "final": "final"}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One candidate's stored rollouts by split."""

    name: str
    run: RunRecord
    splits: Mapping[Split, tuple[Trace, ...]]


def find_arm(store: Store, text: str) -> Arm:
    """Return the arm that a text names: `RUN`, `RUN:untrained`, `RUN:warm` or `RUN:final`.

    A training run alone means its chosen checkpoint, a run of `eval` its only candidate.

    Raises:
        UsageError: there is no such run or arm, or the run is not that far.
    """
    name, _, wanted = text.partition(":")
    if wanted and wanted not in _NAMES:
        raise UsageError(f"no arm `{wanted}`", where=text, fix=f"Arms: {', '.join(_NAMES)}.")
    run = training_run(store, name) if wanted else store.run(name)
    candidate = ""
    if run.command == "train":
        wanted = wanted or "final"
        candidate = _candidate(History(store=store, run_id=run.id), wanted, text)
    splits: dict[Split, tuple[Trace, ...]] = {}
    for split in SPLITS:
        if found := _rollouts(store, run, split, candidate):
            splits[split] = found
    return Arm(name=f"{run.id}:{wanted}" if wanted else run.id, run=run, splits=splits)


def shared_split(arms: Sequence[Arm]) -> Split:
    """Return the most telling split on which every arm has rollouts.

    Raises:
        UsageError: there is none.
    """
    for split in reversed(SPLITS):
        if all(split in arm.splits for arm in arms):
            return split
    have = "; ".join(f"{arm.name}: {', '.join(arm.splits) or 'none'}" for arm in arms)
    raise UsageError(f"no split has rollouts of both ({have})", fix="`learnloop eval` makes some.")


def differing_settings(before: Arm, after: Arm) -> list[str]:
    """Return what beside the weights differs between two arms and may explain their difference.

    Raises:
        ConfigError: they were judged by different graders: their scores say nothing together.
    """
    runs = before.run, after.run
    graders = [str(run.meta.get("grader", "")) for run in runs]
    if all(graders) and graders[0] != graders[1]:
        raise ConfigError(
            f"judged by different graders: {before.name} by {graders[0]}, "
            f"{after.name} by {graders[1]}",
            fix="Measure both anew with one grader: `learnloop eval --candidate RUN`.",
        )
    changed = config_changes(runs[0].config_json, runs[1].config_json)
    inputs = ("system prompt", "model", "tool schemas")
    return [
        *(key for key in changed if _TELLING.fullmatch(key)),
        *(f"the {name}" for name in inputs if runs[0].meta.get(name) != runs[1].meta.get(name)),
    ]


def find_weights(project: Project, name: str) -> str:
    """Return the weights that `untrained`, `RUN` or `RUN/step-5` means.

    Raises:
        UsageError: there is no such run or checkpoint.
    """
    if name == "untrained":
        return UNTRAINED
    run_name, _, checkpoint = name.partition("/")
    with project.open_store() as store:
        run = training_run(store, run_name)
        chosen = History(store=store, run_id=run.id).chosen
    kept = sorted(p.parent.name for p in project.run_folder(run.id).glob("*/config.json"))
    if not checkpoint and not chosen:
        what = "no checkpoint is chosen yet"
    elif (wanted := checkpoint or chosen.rpartition("/")[2]) in kept:
        return f"{run.id}/{wanted}"
    else:
        what = f"no checkpoint `{wanted}` was kept"
    fix = f"There are: {', '.join(kept)}." if kept else "Let the run go on first."
    raise UsageError(what, where=f"run {run.id}", fix=fix)


def _candidate(history: History, wanted: str, text: str) -> str:
    arms = history.arms
    if not arms:
        raise UsageError(f"run {history.run_id} has not been measured yet", where=text)
    if (name := _NAMES[wanted]) not in arms:
        raise UsageError(f"run {history.run_id} had no warm-up", where=text)
    return arms[name]


def _rollouts(store: Store, run: RunRecord, split: Split, candidate: str) -> tuple[Trace, ...]:
    if candidate and split == "train":
        return ()  # training rollouts are of many weights, and nothing can be read off them
    found = store.traces(run.id, split)
    return tuple(t for t in found if not candidate or t.candidate_id == candidate)
