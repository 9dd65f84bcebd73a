"""Grading again: does the grader say of one rollout what it said before?"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from learnloop.errors import EndpointError, GraderError
from learnloop.rollout import grade
from learnloop.run import Run
from learnloop.trace import Trace


async def regrade(run: Run, traces: Sequence[Trace]) -> dict[str, float]:
    """Return second scores by trace id: of the first graded rollout of each task.

    Only graders behind an endpoint are asked: ours are functions of task and rollout. What the grader
    does not answer, and rollouts whose texts were not kept, have no second score. A grader that has gone
    since it gave the first ones leaves the probe without second scores, and not without a verdict.
    """
    if run.config.grader.type != "endpoint" or not run.config.probe.regrade:
        return {}
    first: dict[str, Trace] = {}
    for trace in traces:
        if trace.score and trace.content == "full":
            first.setdefault(trace.task_id, trace)
    places, found = anyio.CapacityLimiter(run.config.train.max_concurrency), dict[str, float]()

    async def ask(trace: Trace) -> None:
        async with places:
            try:
                score = await grade(run.parts.grader, run.tasks[trace.task_id], trace)
            except (GraderError, EndpointError):
                return
        found[trace.id] = score.value

    async with anyio.create_task_group() as group:
        for trace in first.values():
            group.start_soon(ask, trace)
    return dict(sorted(found.items()))
