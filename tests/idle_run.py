"""A run without services and policy process, for what needs neither."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.e2e.small_project import write_small_project

from learnloop.grader import Grader
from learnloop.models.policy import PolicyProcess
from learnloop.project import Parts, Project
from learnloop.run import Run
from learnloop.session import Session, begin


@contextmanager
def idle_run(
    folder: Path, *, warmup: bool = False, flags: Mapping[str, object] | None = None
) -> Generator[tuple[Session, Run]]:
    """Begin a run on a small project; its store is real, its parts are absent."""
    if not folder.exists():
        write_small_project(folder, warmup=warmup)
    project = Project.open(folder, environ={}, flags=flags or {})
    tasks = {task.id: task for task in project.tasks()}
    with project.open_store() as store:
        record = begin(project, store, "train", tasks)
        run = Run(
            id=record.id,
            project=project,
            store=store,
            agent=project.candidate(),
            tasks=tasks,
            parts=Parts(tools={}, grader=cast("Grader", None)),
            policy=cast("PolicyProcess", None),
            has_warmup=warmup,
        )
        yield Session(project=project, store=store, record=record, tasks=tasks), run
