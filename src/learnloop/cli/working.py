"""Sessions of the verbs that make runs of their own, shown on the terminal as they go."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import anyio

from learnloop.cli.output import Output
from learnloop.project import Project
from learnloop.render.terminal import Progress
from learnloop.session import Session, begin, checked_tasks, project_store


@contextmanager
def new_session(
    project: Project, output: Output, verb: str, words: Sequence[str] = ()
) -> Generator[Session]:
    """Check the project and begin a run in it; the project is held until the end.

    `words` are those of the command line that are no settings.
    """
    with project_store(project, tell=output.alert) as store:
        tasks = anyio.run(checked_tasks, project)
        record = begin(project, store, verb, tasks, words)
        yield Session(project=project, store=store, record=record, tasks=tasks)


@contextmanager
def watched(session: Session, output: Output) -> Generator[Session]:
    """Show the session's events on stderr unless remarks are not wanted."""
    with ExitStack() as stack:
        if not output.quiet:
            progress = stack.enter_context(Progress())
            session = replace(session, sinks=[progress, *session.sinks])
        try:
            yield session
        except KeyboardInterrupt:
            record = session.record
            if record.command != "train":
                output.alert(
                    f"run {record.id} keeps the rollouts it has; only training goes on after an "
                    f"interruption, {record.command} starts anew"
                )
            raise
