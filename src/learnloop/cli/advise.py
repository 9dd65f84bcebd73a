"""`learnloop advise`: what to repair first, or which optimiser fits, and why."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import anyio

from learnloop.advice import Step
from learnloop.advice import advise as rules
from learnloop.check import check
from learnloop.cli.options import InProject
from learnloop.evidence import evidence
from learnloop.project import Project

_KINDS = {"repair": "repair first", "measure": "measure", "optimise": "optimise", "note": "note"}


def advise(folder: Path | None = None, /, *, common: InProject | None = None) -> None:
    """Say what to repair first, or which optimiser fits, from the check and the runs so far.

    Args:
        folder: the project's folder.
        common: how to print, and which project.
    """
    common = common or InProject()
    project = Project.open(common.folder(folder))
    steps = rules(evidence(project, anyio.run(check, project)))
    if common.output.json:
        common.output.data({"steps": [asdict(step) for step in steps]})
    else:
        for number, step in enumerate(steps, start=1):
            _print(common, number, step)
    first = steps[0].do
    if first.startswith("learnloop "):
        common.output.next(common.command(first.removeprefix("learnloop "), folder))


def _print(common: InProject, number: int, step: Step) -> None:
    common.output.text(f"{number}. {_KINDS[step.kind]}: {step.words}.")
    common.output.text(f"   {step.do}")
    for source in dict.fromkeys(n.source for n in step.numbers):
        told = ", ".join(f"{n.name} {n.value:.3g}" for n in step.numbers if n.source == source)
        common.output.text(f"   from {source}: {told}")
