"""The project's one HTTP client; tools and graders post through routes of it."""

from __future__ import annotations

import sys
from collections import Counter
from types import TracebackType
from typing import Self

import httpx2

from learnloop.errors import BoundaryError
from learnloop.outbound.address import check_url
from learnloop.outbound.breaker import Breaker, BreakerRules, Outage, Tell
from learnloop.outbound.retry import Retry
from learnloop.outbound.route import Endpoint, Route
from learnloop.outbound.secret import check_credentials
from learnloop.outbound.traffic import Traffic


class Outbound:
    """Holds the connections of a project; use it as an async context manager.

    Proxies of the environment are not used: tools are often on loopback, and the address policy
    must see where a request really goes. Certificates named in the environment are used.
    Routes to one address share its rate limit and its circuit breaker; `on_outage` hears when an
    endpoint stops answering and when it is back, and `faults` counts what went wrong, as
    `tool cat/5xx`, requests that were repeated with success among them.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        retry: Retry | None = None,
        breaker: BreakerRules | None = None,
    ) -> None:
        self._allow_private, self._retry = allow_private, retry or Retry()
        self._rules = breaker or BreakerRules()
        self._traffic: dict[str, Traffic] = {}
        self.faults = Counter[str]()
        self.on_outage: Tell = _ignore
        self._tls = httpx2.create_ssl_context(trust_env=True)
        self._clients: dict[str, httpx2.AsyncClient] = {}

    def _client_for(self, host: str) -> httpx2.AsyncClient:
        """Return the client of one host name.

        Requests go to numeric addresses. Two names behind one address must not share a connection: its
        certificate was verified for one of them.
        """
        if host not in self._clients:
            # No limit here: a pool of 100 would silently cap rollouts. Routes have their own limits,
            # and bound the time of a whole request.
            self._clients[host] = httpx2.AsyncClient(
                verify=self._tls,
                limits=httpx2.Limits(),
                timeout=None,
                trust_env=False,
                follow_redirects=False,
            )
        return self._clients[host]

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
        for client in self._clients.values():
            await client.aclose()

    def breaker(self, name: str) -> Breaker:
        """Return a circuit breaker for an endpoint of that name; whoever listens hears of it."""
        return Breaker(name, self._rules, lambda news: self.on_outage(news))

    def route(self, endpoint: Endpoint, error: type[BoundaryError]) -> Route:
        """Return a way to post to one endpoint; its faults are raised as `error`.

        Raises:
            ConfigError: the address is malformed or can be seen to be forbidden.
        """
        check_url(endpoint.url, allow_private=self._allow_private, where=endpoint.name)
        traffic = self._traffic.get(endpoint.url)
        if traffic is None:
            breaker = self.breaker(endpoint.name)
            traffic = self._traffic[endpoint.url] = Traffic(breaker, self.faults)
        traffic.limit(endpoint.rate_limit)
        return self._route(endpoint, error, traffic, self._retry)

    def side_route(self, endpoint: Endpoint, error: type[BoundaryError]) -> Route:
        """Return a route for what may fail without harm: one try, and no breaker that others share.

        Raises:
            ConfigError: the address is malformed or can be seen to be forbidden.
        """
        check_url(endpoint.url, allow_private=self._allow_private, where=endpoint.name)
        never = BreakerRules(faults=sys.maxsize)
        traffic = Traffic(Breaker(endpoint.name, never, _ignore), Counter[str]())
        return self._route(endpoint, error, traffic, Retry(retries=0))

    def _route(
        self, endpoint: Endpoint, error: type[BoundaryError], traffic: Traffic, retry: Retry
    ) -> Route:
        check_credentials(endpoint.url, endpoint.headers, where=endpoint.name)
        return Route(
            self._client_for(httpx2.URL(endpoint.url).host),
            endpoint,
            error,
            traffic=traffic,
            retry=retry,
            allow_private=self._allow_private,
        )


def _ignore(_: Outage) -> None:
    """Hear of an outage and do nothing."""
