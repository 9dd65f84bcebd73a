"""The runner: many rollouts at once, results in the order they were planned."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar, cast

import anyio

from learnloop.faults import rule_of
from learnloop.trace import Trace

P = TypeVar("P")
"""What plans one rollout: `Planned`, or whatever else `roll` understands."""

Roll = Callable[[P, int], Awaitable[Trace]]
"""Makes one rollout; the number counts earlier tries of it that ended in a fault."""

OnTrace = Callable[[Trace], None]


async def run_many(
    plan: Sequence[P],
    roll: Roll[P],
    *,
    max_concurrency: int,
    on_trace: OnTrace,
    infra_retries: int = 1,
) -> list[Trace]:
    """Make every planned rollout, at most `max_concurrency` at a time.

    A rollout that ends in an infrastructure fault is tried again up to `infra_retries` times where
    the error policy (`faults.py`) says so, and never disturbs the others. `on_trace` gets every
    trace as it is finished, those that were retried too, so that faults can be counted; the
    returned list has the last try of each, in the order of the plan.

    Raises:
        UserError, or whatever `roll` or `on_trace` raises: the remaining rollouts are cancelled.
    """
    found: dict[int, Trace] = {}
    waiting = iter(enumerate(plan))
    # Workers take the next rollout when they are free: nothing is queued ahead of its time.
    workers = min(max(1, max_concurrency), len(plan))

    async def work(queue: Iterator[tuple[int, P]]) -> None:
        for index, planned in queue:
            found[index] = await _with_retries(planned, roll, on_trace, infra_retries)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(workers):
                group.start_soon(work, waiting)
    except BaseExceptionGroup as errors:
        raise _first(errors) from None
    return [found[i] for i in range(len(plan))]


async def _with_retries(planned: P, roll: Roll[P], on_trace: OnTrace, infra_retries: int) -> Trace:
    """Try a rollout until it is not lost to a fault of the infrastructure."""
    retry = 0
    while True:
        trace = await roll(planned, retry)
        on_trace(trace)
        failure = trace.failure
        if failure is None or retry >= infra_retries:
            return trace
        if not rule_of(failure.boundary, failure.kind).repeats_rollout:
            return trace
        retry += 1


def _first(error: BaseException) -> BaseException:
    """Return the first single error of a nested group: one line for the user, not a tree."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    return _first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
