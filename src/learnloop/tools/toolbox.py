"""The tools that one rollout may call, with the checks that come before a call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learnloop.boundary import boundary
from learnloop.errors import ConfigError
from learnloop.message import ToolCall, ToolSchema
from learnloop.task import Task
from learnloop.tool import Tool, ToolContext
from learnloop.tools.arguments import argument_error
from learnloop.trace import CallRecord


@dataclass(frozen=True, kw_only=True)
class Toolbox:
    """What one task offers: schemas as the model was told, and the tools behind them."""

    schemas: Mapping[str, ToolSchema]
    tools: Mapping[str, Tool]
    context: ToolContext

    async def run(self, call: ToolCall, round_index: int) -> CallRecord:
        """Run one call and record it.

        An unknown name and malformed arguments run nothing: they come back as errors that the
        model is shown.

        Raises:
            ToolError: the tool failed in a way that is not the agent's doing.
        """
        if wrong := self._wrong(call):
            return CallRecord(call=call, round=round_index, output=wrong, is_error=True, ran=False)
        start_s = time.monotonic()
        with boundary("tool"):
            output = await self.tools[call.name].call(call, self.context)
        return CallRecord(
            call=call,
            round=round_index,
            output=output.text,
            is_error=output.is_error,
            latency_s=time.monotonic() - start_s,
            retries=output.retries,
        )

    def _wrong(self, call: ToolCall) -> str:
        """Return the error that keeps a call from being made, or nothing."""
        schema = self.schemas.get(call.name)
        if schema is None:
            names = ", ".join(self.schemas) or "none"
            return f"error: no tool {call.name!r}; tools: {names}"
        return argument_error(schema, call.arguments)


def open_toolbox(task: Task, tools: Mapping[str, Tool], trace_id: str) -> Toolbox:
    """Return the toolbox of a task: the tools its row names, or all when it names none.

    Raises:
        ConfigError: the row names a tool that nobody serves. Told as "unknown tool" to the model,
            this mistake would pass for a weak agent.
    """
    offered: Sequence[ToolSchema] = task.tools or tuple(t.schema for t in tools.values())
    for schema in offered:
        if schema.name not in tools:
            raise ConfigError(
                f"task {task.id} offers tool {schema.name!r}, which is not configured",
                where="dataset",
                fix=f"Names must match exactly; configured: {', '.join(tools) or 'none'}.",
            )
    schemas = {s.name: s for s in offered}
    return Toolbox(
        schemas=schemas, tools=tools, context=ToolContext(trace_id=trace_id, item=task.item)
    )
