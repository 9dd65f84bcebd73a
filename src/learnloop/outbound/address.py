"""The address policy: where requests may go."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

import anyio

from learnloop.errors import ConfigError
from learnloop.outbound.secret import shown_url

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA = frozenset(
    ipaddress.ip_address(a) for a in ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")
)
"""Cloud metadata services outside the link-local ranges: AWS over IPv6, Alibaba, Azure."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def check_url(url: str, *, allow_private: bool, where: str) -> None:
    """Refuse an address that can be seen to be wrong before anything is sent.

    Raises:
        ConfigError: not an http(s) URL, or a numeric address that the policy forbids.
    """
    try:
        parts = urlsplit(url)
        host, usable = parts.hostname or "", parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        host, usable = "", False
    if not host or not usable:
        raise ConfigError(
            f"{shown_url(url) if host else url!r} is not a web address",
            where=where,
            fix="Write it as http://HOST:PORT/PATH.",
        )
    literal = _parsed(host)
    if literal is None or _allowed(literal, allow_private=allow_private):
        return
    fix = (
        "Set allow_private = true under [network]." if _allowed(literal, allow_private=True) else ""
    )
    raise ConfigError(f"the network policy forbids {host}", where=where, fix=fix)


async def allowed_addresses(host: str, port: int, *, allow_private: bool) -> tuple[str, ...]:
    """Return the numeric addresses of a host that the policy allows, in the resolver's order.

    Raises:
        OSError: the name does not resolve.
    """
    if (literal := _parsed(host)) is not None:
        found = [str(literal)]
    else:
        infos = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = [str(info[4][0]).partition("%")[0] for info in infos]
    kept = (a for a in found if _allowed(ipaddress.ip_address(a), allow_private=allow_private))
    return tuple(dict.fromkeys(kept))


def _parsed(host: str) -> _Address | None:
    """Return a numeric address, or None for a name (`0x7f.1` counts as one: it is resolved)."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def _allowed(address: _Address, *, allow_private: bool) -> bool:
    """Judge an address; one that is wrapped in IPv6 is judged by what it wraps."""
    address = _unwrapped(address)
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return False
    # 0.0.0.0 reaches the own machine on Linux but no server is meant to be called by it.
    if address.is_unspecified:
        return False
    return allow_private or address.is_global


def _unwrapped(address: _Address) -> _Address:
    """Return the IPv4 address inside a mapped, 6to4 or NAT64 one."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
