"""The project's one HTTP client; tools and graders post through routes of it."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx2

from learnloop.errors import BoundaryError
from learnloop.outbound.address import check_url
from learnloop.outbound.retry import Retry
from learnloop.outbound.route import Endpoint, Route


class Outbound:
    """Holds the connections of a project; use it as an async context manager.

    Proxies of the environment are not used: tools are often on loopback, and the address policy
    must see where a request really goes. Certificates named in the environment are used.
    """

    def __init__(self, *, allow_private: bool = False, retry: Retry | None = None) -> None:
        self._allow_private, self._retry = allow_private, retry or Retry()
        # No limit here: a pool of 100 would silently cap rollouts. Routes have their own limits,
        # and bound the time of a whole request.
        self._client = httpx2.AsyncClient(
            verify=httpx2.create_ssl_context(trust_env=True),
            limits=httpx2.Limits(),
            timeout=None,
            trust_env=False,
            follow_redirects=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    def route(self, endpoint: Endpoint, error: type[BoundaryError]) -> Route:
        """Return a way to post to one endpoint; its faults are raised as `error`.

        Raises:
            ConfigError: the address is malformed or can be seen to be forbidden.
        """
        check_url(endpoint.url, allow_private=self._allow_private, where=endpoint.name)
        return Route(
            self._client, endpoint, error, retry=self._retry, allow_private=self._allow_private
        )
