"""A route: posts JSON to one endpoint within its limits, and repeats what failed."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Generic, TypeVar

import anyio
import httpx2

from learnloop.clock import paused
from learnloop.errors import BoundaryError, GraderError
from learnloop.faults import Rule, rule_of
from learnloop.outbound.address import allowed_addresses
from learnloop.outbound.retry import Retry
from learnloop.outbound.secret import redactor
from learnloop.outbound.signature import signature_headers
from learnloop.outbound.traffic import Traffic

MAX_BYTES = 1_000_000
"""Largest request or reply body that the wire contract allows."""

_EXCERPT = 200
"""How many characters of a body an error message quotes."""

_CONNECT_SHARE = 0.9
"""Share of the time of a request that connecting may take."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where requests are posted; `url`, `headers` and `secret` are never shown.

    `rate_limit` is in requests a second, 0 for none; with a `secret` requests are signed.
    """

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    timeout_s: float = 600.0
    max_concurrency: int = 64
    rate_limit: float = 0.0
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a server answered."""

    status: int
    body: bytes
    retry_after: str | None = None

    @property
    def reason(self) -> str:
        """Return the status in words, such as `HTTP 404 Not Found`."""
        try:
            return f"HTTP {self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            return f"HTTP {self.status}"


@dataclass(frozen=True, kw_only=True)
class Posted(Generic[T]):
    """What came of a request in the end, and how many times it had to be repeated."""

    value: T
    retries: int


@dataclass(kw_only=True)
class _Attempt:
    """One attempt at a request: whether it was the one that looks, and what came back.

    `looks` counts the looks of this request that failed before.
    """

    looks: int = 0
    look: int = 0
    reply: Reply | None = None

    @property
    def retry_after(self) -> str | None:
        return self.reply.retry_after if self.reply else None


class TooLarge(BoundaryError):
    """A request or reply body is over the limit; repeating it would not help."""


class Route:
    """Posts JSON to one endpoint; every fault is raised as the error class it was made with."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        endpoint: Endpoint,
        error: type[BoundaryError],
        *,
        traffic: Traffic,
        retry: Retry,
        allow_private: bool,
    ) -> None:
        self._client, self._endpoint, self._error = client, endpoint, error
        self._traffic, self._retry, self._allow_private = traffic, retry, allow_private
        self._url = httpx2.URL(endpoint.url)
        self._limiter = anyio.CapacityLimiter(endpoint.max_concurrency)
        self.redact = redactor(endpoint.url, endpoint.headers, endpoint.secret)

    def rule(self, kind: str) -> Rule:
        """Return what follows from a fault of that kind here."""
        return rule_of("grader" if self._error is GraderError else "tool", kind)

    def excerpt(self, reply: Reply) -> str:
        """Return the beginning of a body as one line, for an error message."""
        # Secrets go first: a cut through one would leave a part that is no longer recognised.
        text = self.redact(reply.body.decode("utf-8", "replace"))
        return " ".join(text.split())[:_EXCERPT]

    def fault(self, message: str, *, kind: str, quote: str = "") -> BoundaryError:
        """Return an error of this route's class that names the endpoint and holds no secret.

        `quote` is what it says of the reply in the endpoint's own words.
        """
        brief = self.redact(f"{self._endpoint.name}: {message}")
        text = self.redact(f"{self._endpoint.name}: {message} {quote}".rstrip())
        repeats = self.rule(kind).repeats_request
        return self._error(text, kind=kind, retryable=repeats, brief=brief)

    async def post(
        self, body: bytes, headers: Mapping[str, str], read: Callable[[Reply], T]
    ) -> Posted[T]:
        """Post, and repeat after a fault.

        A fault while the breaker is open uses up no retry: the request waits until the endpoint is
        back, the breaker's patience ends, or too many of its own looks have failed.

        `read` gets every reply that is not 3xx, 429 or 5xx and turns it into a value, or raises a
        `fault` to have the request repeated.

        Raises:
            TooLarge: request or reply is over the limit.
            BoundaryError: (of the route's class) the fault that was left after the retries.
            EndpointError: the endpoint was down for longer than the breaker waits.
        """
        if len(body) > MAX_BYTES:
            raise TooLarge(f"request of {len(body)} bytes is over {MAX_BYTES}", kind="too_large")
        attempt = repeats = looks = 0
        breaker = self._traffic.breaker
        while True:
            one = _Attempt(looks=looks)
            try:
                return Posted(value=await self._tried(body, headers, read, one), retries=repeats)
            except self._error as fault:
                looks += bool(one.look)
                waits = fault.retryable and breaker.is_open
                if waits and breaker.gives_up(looks):
                    raise
                if not waits and (not fault.retryable or attempt >= self._retry.retries):
                    raise
            repeats += 1
            if not waits:
                with paused():
                    await anyio.sleep(self._retry.delay_s(attempt, one.retry_after))
                attempt += 1

    async def _tried(
        self,
        body: bytes,
        headers: Mapping[str, str],
        read: Callable[[Reply], T],
        one: _Attempt,
    ) -> T:
        """Make one attempt when the breaker lets it, and tell the breaker how it went."""
        breaker = self._traffic.breaker
        while True:
            look = one.look = await breaker.admit(one.looks)
            try:
                reply = await self._once(body, headers, is_look=bool(look))
                if reply is None:
                    continue
                one.reply = reply
                value = self._judged(reply, read)
            except (self._error, TooLarge) as fault:
                self._note(fault, one)
                raise
            except BaseException:
                breaker.let_go(look)
                raise
            breaker.succeeded()
            return value

    def _note(self, fault: BoundaryError, one: _Attempt) -> None:
        """Count a fault, and tell the breaker of it."""
        breaker = self._traffic.breaker
        self._traffic.count(self._endpoint.name, fault.kind)
        if self.rule(fault.kind).trips:
            asked_s = self._retry.asked_s(one.retry_after) or 0.0
            breaker.failed(
                fault.brief, look=one.look, looks=one.looks + bool(one.look), asked_s=asked_s
            )
        else:
            breaker.let_go(one.look)

    def _judged(self, reply: Reply, read: Callable[[Reply], T]) -> T:
        """Raise what the status alone says is a fault; leave the rest to `read`."""
        if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
            raise self.fault(reply.reason, kind="429")
        if 300 <= reply.status < 400:
            raise self.fault(f"{reply.reason}: redirects are not followed", kind="redirect")
        if reply.status >= 500:
            raise self.fault(reply.reason, kind="5xx", quote=self.excerpt(reply))
        return read(reply)

    async def _once(
        self, body: bytes, headers: Mapping[str, str], *, is_look: bool
    ) -> Reply | None:
        """Make one attempt; its place in the limiter is given back before any wait.

        Nothing is sent, and None returned, when the breaker opened while a place was waited for.
        """
        # A look needs no place: one that hangs may hold the last.
        place = nullcontext() if is_look else self._limiter
        async with self._in_line(place):
            if self._traffic.breaker.is_open and not is_look:
                return None
            with self._faults(), anyio.fail_after(self._endpoint.timeout_s):
                return await self._send(body, headers)

    @asynccontextmanager
    async def _in_line(self, place: AbstractAsyncContextManager[object]) -> AsyncGenerator[None]:
        """Hold a place for the block; waiting for it is not the agent's time."""
        async with AsyncExitStack() as stack:
            with paused():
                await self._traffic.turn()
                await stack.enter_async_context(place)
            yield

    @contextmanager
    def _faults(self) -> Generator[None]:
        """Name what the network can do to a request."""
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException):
            limit_s = self._endpoint.timeout_s
            raise self.fault(f"no reply within {limit_s:g} s", kind="timeout") from None
        except (httpx2.HTTPError, OSError) as error:
            kind = "tls" if _caused_by(error, ssl.SSLError) else "connect"
            raise self.fault(f"{type(error).__name__}: {error}", kind=kind) from None

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Connect to an address that the policy allows; try the next one when nobody is there."""
        host, port = self._url.host, self._url.port or 443
        try:
            addresses = await allowed_addresses(host, port, allow_private=self._allow_private)
        except (OSError, UnicodeError) as error:
            what = f"no address is known for {host}: {getattr(error, 'strerror', '') or error}"
            raise self.fault(what, kind="connect") from None
        if not addresses:
            hint = "the network policy forbids its address (allow_private under [network])"
            raise self.fault(hint, kind="refused_address")
        for address in addresses[:-1]:
            try:
                return await self._exchange(address, body, headers)
            except httpx2.ConnectError:
                continue
        return await self._exchange(addresses[-1], body, headers)

    async def _exchange(self, address: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Post to a numeric address, so that a second look-up cannot lead elsewhere."""
        host = self._url.netloc.decode("ascii")
        own = {"Content-Type": "application/json", "Host": host}
        if self._endpoint.secret:
            own |= signature_headers(self._endpoint.secret, body, int(time.time()))
        request = self._client.build_request(
            "POST",
            self._url.copy_with(host=address),
            content=body,
            headers={**own, **headers, **self._endpoint.headers},
            # A handshake that is cancelled from outside leaves its socket open; one that runs out
            # of its own time closes it.
            extensions={
                "sni_hostname": self._url.host,
                "timeout": {"connect": _CONNECT_SHARE * self._endpoint.timeout_s},
            },
        )
        response = await self._client.send(request, stream=True)
        try:
            return Reply(
                status=response.status_code,
                body=await _body(response),
                retry_after=response.headers.get("retry-after"),
            )
        finally:
            await response.aclose()


async def _body(response: httpx2.Response) -> bytes:
    """Read a body, and stop as soon as it is over the limit."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            raise TooLarge(f"reply is over {MAX_BYTES} bytes", kind="too_large")
    return bytes(body)


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Say whether an error of that kind stands at any place of the chain of causes."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
