"""The end of an episode: tells stateful tools that a rollout is over, so that they free its state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio

from learnloop.boundary import boundary
from learnloop.config import ToolConfig
from learnloop.errors import BoundaryError, ToolError
from learnloop.outbound import Endpoint, Outbound, Reply, Route, expand_headers, expand_secret

LONGEST_S = 5.0
"""Seconds that telling may hold a rollout up, whatever the servers do."""


class EpisodeEnd:
    """Posts `{"type": "episode_end", "trace_id"}` to every address that wants to know.

    Best effort: one try, a few seconds, and nothing that happens here changes the rollout. It is
    told when a rollout was cancelled or lost too.
    """

    def __init__(
        self, configs: Sequence[ToolConfig], outbound: Outbound, *, environ: Mapping[str, str]
    ) -> None:
        wanted = {c.episode_end_url: c for c in configs if c.episode_end_url}
        self._routes = [_route(config, outbound, environ) for config in wanted.values()]

    async def tell(self, trace_id: str) -> None:
        """Tell all of them at once that this rollout is over."""
        if not self._routes:
            return
        body = json.dumps({"type": "episode_end", "trace_id": trace_id}).encode()
        with anyio.move_on_after(LONGEST_S, shield=True):
            async with anyio.create_task_group() as group:
                for route in self._routes:
                    group.start_soon(_post, route, body, trace_id)


def _route(config: ToolConfig, outbound: Outbound, environ: Mapping[str, str]) -> Route:
    where = f"tool {config.name}"
    endpoint = Endpoint(
        name=where,
        url=config.episode_end_url,
        headers=expand_headers(config.headers, environ, where=where),
        timeout_s=LONGEST_S,
        secret=expand_secret(config.secret, environ, where=where),
    )
    return outbound.side_route(endpoint, ToolError)


async def _post(route: Route, body: bytes, trace_id: str) -> None:
    with suppress(BoundaryError), boundary("tool"):
        await route.post(body, {"X-Trace-Id": trace_id, "Idempotency-Key": trace_id}, _ignore)


def _ignore(_: Reply) -> None:
    """Take whatever the server answers."""
