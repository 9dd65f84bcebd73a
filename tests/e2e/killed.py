"""Makes runs that kill themselves at a chosen place: a driver for `test_kill_anywhere.py`.

It reads one line for each process wanted, `FOLDER PLACE`, forks, and answers how that process
ended. A place counts what happens in a run: every event, and every tool call before it is made
and after it has come back. Place 0 kills nobody. Forking saves the second that imports take.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from learnloop.batch import attempts_on
from learnloop.event import Event
from learnloop.learn import evaluate, look_for_variance
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.models.policy import PolicyProcess
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.project import Project
from learnloop.run import UNTRAINED, Run
from learnloop.session import Session, begin, project_store, recorded
from learnloop.tool import Tool, ToolContext, ToolOutput


class Killer:
    """Counts places, and kills this process at one of them, as `kill -9` does."""

    def __init__(self, place: int) -> None:
        self._left = place

    def pass_by(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def emit(self, event: Event) -> None:
        """Hear of an event."""
        self.pass_by()


class Watched:
    """A tool that is a place before and after each call."""

    def __init__(self, tool: Tool, killer: Killer) -> None:
        self._tool, self._killer = tool, killer

    @property
    def schema(self) -> ToolSchema:
        return self._tool.schema

    async def call(self, call: ToolCall, context: ToolContext) -> ToolOutput:
        self._killer.pass_by()
        output = await self._tool.call(call, context)
        self._killer.pass_by()
        return output


def play(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    """Call once or twice, one after the other; answer with luck."""
    made = sum(len(m.tool_calls) for m in messages)
    if made < 1 + seed % 2:
        return [ScriptedCall(name="cat", arguments={"path": str(made)})]
    return f"Answer: {seed % 3}"


class Weights:
    """Stands in for the policy process: every named weights play the same script."""

    def model(self, weights: str) -> ScriptedModel:
        return ScriptedModel(play, latency_s=0.001)


async def work(run: Run) -> None:
    """Go through stages as a training run does, without training."""
    await evaluate(run, UNTRAINED, step=0)
    await look_for_variance(run, UNTRAINED, "probe")
    tried = attempts_on(run.sample("confirm", 6))
    run.begin_stage("comparison")
    await run.roll(*(run.batch("confirm", w, tried) for w in (UNTRAINED, run.checkpoint(1))))


async def live(folder: Path, place: int) -> None:
    """Begin a run, or go on with the one that is there."""
    project, killer = Project.open(folder), Killer(place)
    with project_store(project) as store:
        tasks = {task.id: task for task in project.tasks()}
        known = store.runs()
        record = known[0] if known else begin(project, store, "train", tasks)
        session = Session(project=project, store=store, record=record, tasks=tasks, sinks=[killer])
        async with project.open_parts() as parts:
            tools: Mapping[str, Tool] = {n: Watched(t, killer) for n, t in parts.tools.items()}
            run = Run(
                id=record.id,
                project=project,
                store=store,
                agent=project.candidate(),
                tasks=tasks,
                parts=replace(parts, tools=tools),
                policy=cast("PolicyProcess", Weights()),
                sinks=session.sinks,
                loaded={f"{record.id}/step-1"},
            )
            await recorded(session, run, work)
        store.set_status(record.id, "done")


def main() -> None:
    """Serve requests until there are none."""
    for line in sys.stdin:
        folder, place = line.rsplit(maxsplit=1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(live(Path(folder), int(place)))
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
