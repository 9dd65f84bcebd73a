"""The peak: how many calls a second a training step will put on each endpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from learnloop.config import Config, ToolConfig
from learnloop.message import ToolCall
from learnloop.tool import Tool, ToolContext

_BURST_S = 0.1
"""A rate limit lets the requests of so many seconds go at once (`outbound/traffic.py`)."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The most calls in one second that an endpoint will see, and what bounds them."""

    tool: str
    calls_per_s: float
    bound_by: str


async def latency_of(tool: Tool, call: ToolCall, context: ToolContext) -> float:
    """Return how long the tool takes for a call that it has answered before.

    It carries the same id, so that a server may answer from memory; connecting is not measured.

    Raises:
        ToolError: the tool does not answer.
    """
    start_s = time.monotonic()
    await tool.call(call, context)
    return time.monotonic() - start_s


def in_flight(config: Config) -> int:
    """Return the most rollouts that a training step has under way at once."""
    return min(config.train.max_concurrency, config.train.rollouts_per_step)


def peaks(config: Config, latencies: Mapping[str, float], *, turn_s: float = 0.0) -> list[Peak]:
    """Return the peak for each tool, as if every rollout used that tool in every turn.

    A rollout makes one call in the time of a turn and the call, so all of them together make
    `rollouts / (turn + call)` a second, unless the tool's own limits are lower.

    Args:
        config: the project's configuration.
        latencies: seconds that a call takes, by tool.
        turn_s: seconds that a turn of the model takes; 0 gives the most that can come.
    """
    known = {tool.name: tool for tool in config.tools}
    return [
        _peak(known[name], latency_s, in_flight(config), turn_s)
        for name, latency_s in latencies.items()
        if name in known
    ]


def _peak(tool: ToolConfig, latency_s: float, rollouts: int, turn_s: float) -> Peak:
    latency_s = max(latency_s, 1e-4)
    bounds = {
        "rollouts in flight": rollouts / (latency_s + turn_s),
        "its max_concurrency": tool.max_concurrency / latency_s,
    }
    if tool.rate_limit:
        bounds["its rate_limit"] = tool.rate_limit + max(1.0, _BURST_S * tool.rate_limit)
    name = min(bounds, key=lambda bound: bounds[bound])
    return Peak(tool=tool.name, calls_per_s=bounds[name], bound_by=name)
