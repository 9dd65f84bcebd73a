"""An httpx2 transport that goes only where the address policy lets it, for clients not our own."""

from __future__ import annotations

import httpx2

from learnloop.outbound.address import allowed_addresses


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """Connects to the address that was looked at, so that a second look-up cannot lead elsewhere."""

    def __init__(self, *, allow_private: bool) -> None:
        super().__init__(
            verify=httpx2.create_ssl_context(trust_env=True),
            limits=httpx2.Limits(),
            trust_env=False,
        )
        self._allow_private = allow_private

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the first allowed address of its host."""
        host, port = request.url.host, request.url.port or 443
        try:
            addresses = await allowed_addresses(host, port, allow_private=self._allow_private)
        except (OSError, UnicodeError) as error:  # the name cannot be looked up
            what = f"no address is known for {host}: {error}"
            raise httpx2.ConnectError(what, request=request) from error
        if not addresses:
            what = "the network policy forbids its address (allow_private under [network])"
            raise httpx2.ConnectError(what, request=request)
        for address in addresses[:-1]:
            try:
                return await super().handle_async_request(_to(request, address))
            except httpx2.ConnectError:
                continue
        return await super().handle_async_request(_to(request, addresses[-1]))


def _to(request: httpx2.Request, address: str) -> httpx2.Request:
    """Return the request for a numeric address; its Host header stays that of the name."""
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
