"""The rehearsal: one rollout without a model, through every tool and the grader.

A script stands in for the model: it calls each offered tool once, with arguments made up from the
tool's schema, then gives an answer. What breaks here would break the first real rollout.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from learnloop.codec import parameters_of
from learnloop.config import AgentConfig, Config
from learnloop.errors import EndpointError
from learnloop.estimate import Estimate
from learnloop.finding import Finding
from learnloop.grader import Grader
from learnloop.message import Message, ToolSchema
from learnloop.model import Sampling
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.project import Parts
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.task import Task
from learnloop.tools.cassette import ReplayedTool
from learnloop.trace import Score, Trace

ANSWER = "Answer: this is only a rehearsal"
_TEXT = 60
_DEPTH = 6


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What came of it: the trace, and how long the grader took; None when it was not reached."""

    trace: Trace
    grader_s: float | None

    @property
    def tool_seconds(self) -> dict[str, float]:
        """Return how long each tool took that was called."""
        return {c.call.name: c.latency_s for c in self.trace.calls_run}

    def finding(self) -> Finding:
        """Return what came of it as a finding."""
        if (failure := self.trace.failure) is not None:
            return Finding(
                level="error",
                what=failure.message,
                where="rehearsal",
                fix="A rollout of a script in the model's place fails; real ones would too.",
                exit_code=EndpointError.exit_code,
            )
        left_out = [c.call.name for c in self.trace.calls if not c.ran]
        if left_out:
            what = f"no arguments could be made up for {', '.join(left_out)}; not called"
            return Finding(level="warning", what=what, where="rehearsal")
        complained = sum(c.is_error for c in self.trace.calls)
        told = f", {complained} answered with an error for the model" if complained else ""
        score = self.trace.score.value if self.trace.score else 0.0
        what = f"{len(self.trace.calls)} tools called{told}; graded {score:g}"
        return Finding(level="ok", what=what, where="rehearsal")


@dataclass(frozen=True, kw_only=True)
class EndpointUse:
    """What a training run will ask of one tool or grader: at most so many calls, each this long.

    `minutes` is what those calls take together, as many at once as the settings allow.
    """

    name: str
    calls: int
    seconds: float
    minutes: float


def endpoint_uses(
    config: Config, rehearsal: Rehearsal, estimate: Estimate
) -> tuple[EndpointUse, ...]:
    """Return the uses of every endpoint that was reached; a tool may get all calls of a run."""
    at_once = config.train.max_concurrency
    width = {tool.name: min(tool.max_concurrency, at_once) for tool in config.tools}
    uses = [
        _use(f"tool {name}", estimate.max_calls, seconds, width.get(name, at_once))
        for name, seconds in rehearsal.tool_seconds.items()
    ]
    if config.grader.type == "endpoint" and rehearsal.grader_s is not None:
        uses.append(_use("grader", estimate.rollouts, rehearsal.grader_s, at_once))
    return tuple(uses)


def _use(name: str, calls: int, seconds: float, width: int) -> EndpointUse:
    minutes = calls * seconds / max(1, width) / 60
    return EndpointUse(name=name, calls=calls, seconds=seconds, minutes=minutes)


@dataclass(kw_only=True)
class _Timed:
    """A grader with a stopwatch."""

    grader: Grader
    seconds: list[float] = field(default_factory=list[float])

    @property
    def version(self) -> str:
        return self.grader.version

    async def grade(self, task: Task, trace: Trace) -> Score:
        start_s = time.monotonic()
        score = await self.grader.grade(task, trace)
        self.seconds.append(time.monotonic() - start_s)
        return score


async def rehearse(task: Task, parts: Parts, limits: AgentConfig) -> Rehearsal:
    """Make the one rollout; a fault of tool or grader is in its trace.

    Tools that answer from a cassette are not called: made-up arguments are not on it.
    """
    tools, timed = parts.tools, _Timed(grader=parts.grader)
    replayed = any(isinstance(tool, ReplayedTool) for tool in tools.values())
    # One call of each tool and an answer, whatever the project allows its agent.
    room = replace(
        limits,
        max_calls=len(tools) + 1,
        max_rounds=len(tools) + 1,
        max_tokens_total=1_000_000,
    )
    setup = Setup(
        label="check",
        model=ScriptedModel(_answer if replayed else _script),
        tools=tools,
        grader=timed,
        limits=room,
        sampling=Sampling(),
        on_end=parts.on_end,
    )
    planned = Planned(task=task, candidate_id="rehearsal", attempt=0, seed=0)
    trace = await roll_out(planned, setup)
    return Rehearsal(trace=trace, grader_s=timed.seconds[0] if timed.seconds else None)


def _script(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    """Call the next tool that has not been called; answer when there is none left."""
    called = {call.name for message in messages for call in message.tool_calls}
    asked = next((m.content for m in reversed(messages) if m.role == "user"), "")
    for tool in tools:
        if tool.name not in called:
            return [ScriptedCall(name=tool.name, arguments=made_up(tool, asked))]
    return ANSWER


def _answer(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    """Answer at once."""
    return ANSWER


def made_up(tool: ToolSchema, asked: str) -> dict[str, Any]:
    """Return arguments that a tool's schema asks for; texts are words of the question.

    Schemas can ask for more than this understands: then the arguments do not fit, and the call is
    refused before it is made.
    """
    value = _value(parameters_of(tool), " ".join(asked.split())[:_TEXT] or "test", _DEPTH)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _value(schema: object, text: str, depth: int) -> object:
    fields = cast("dict[str, Any]", schema) if isinstance(schema, dict) and depth else {}
    for key in ("const", "default"):
        if key in fields:
            return fields[key]
    for key in ("enum", "examples"):
        if isinstance(fields.get(key), list) and fields[key]:
            return fields[key][0]
    kind: object = fields.get("type", "object" if "properties" in fields else "string")
    if isinstance(kind, list):
        kind = next((k for k in cast("list[object]", kind) if k != "null"), "null")
    return _of_kind(str(kind), fields, text, depth)


def _of_kind(kind: str, fields: Mapping[str, Any], text: str, depth: int) -> object:
    if kind == "object":
        properties: Mapping[str, Any] = fields.get("properties") or {}
        needed: Sequence[str] = fields.get("required") or ()
        return {name: _value(properties.get(name), text, depth - 1) for name in needed}
    if kind == "array":
        return [_value(fields.get("items"), text, depth - 1)] * max(0, fields.get("minItems", 0))
    plain: dict[str, object] = {"boolean": False, "null": None}
    if kind in {"integer", "number"}:
        return fields.get("minimum", min(1, fields.get("maximum", 1)))
    return plain.get(kind, text[: fields.get("maxLength", _TEXT)])
