"""Runs tasks of this project with a scripted model: all transfers in one turn, then a look.

python play.py [--tasks 100] [--at-once 50]
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx2

from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.project import Project
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import run_many
from learnloop.task import Task
from learnloop.trace import Trace


def teller(tasks: dict[str, dict[str, Any]]) -> ScriptedModel:
    """Return a model that does what the row says; it finds the row by its question."""

    def play(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
        row = tasks[next(m.content for m in messages if m.role == "user")]
        turns = sum(m.role == "assistant" for m in messages)
        if turns == 0:
            return [ScriptedCall(name="transfer", arguments=move) for move in row["moves"]]
        if turns == 1:
            return [ScriptedCall(name="balance", arguments={"account": row["account"]})]
        return f"Answer: {messages[-1].content}"

    return ScriptedModel(play)


async def play(project: Project, count: int, at_once: int) -> tuple[list[Trace], int]:
    """Return the traces, and how many copies of the database the server still has."""
    await project.ensure_data()
    tasks = project.tasks()[:count]
    rows = {_question(task): dict(task.item) for task in tasks}
    async with project.open_parts() as parts:
        setup = Setup(
            label="play",
            model=teller(rows),
            tools=parts.tools,
            grader=parts.grader,
            limits=project.config.agent,
            sampling=Sampling(),
            on_end=parts.on_end,
        )
        plan = [Planned(task=t, candidate_id="teller", attempt=0, seed=0) for t in tasks]
        traces = await run_many(
            plan,
            lambda planned, retry: roll_out(planned, setup, retry),
            max_concurrency=at_once,
            on_trace=lambda _: None,
        )
        async with httpx2.AsyncClient(trust_env=False) as client:
            state = await client.get(f"{parts.addresses['bank']}/health")
    return traces, int(state.json()["episodes"])


def _question(task: Task) -> str:
    return next(m.content for m in task.messages if m.role == "user")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=50)
    options = parser.parse_args()
    project = Project.open(Path(__file__).parent)
    traces, left = anyio.run(play, project, options.tasks, options.at_once)
    summary = {
        "outcomes": Counter(t.outcome for t in traces),
        "correct": sum(t.score.correct for t in traces if t.score),
        "copies_left": left,
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
