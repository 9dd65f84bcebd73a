"""Addresses and headers of hosted tools and graders, with every secret taken out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from learnloop.errors import ConfigError
from learnloop.formats.mapping import Mapped
from learnloop.formats.openai_rft.json_file import table

_SCHEME_WORD = re.compile(r"(Bearer|Basic|Token) +(\S+)", re.IGNORECASE)
_REFERENCE = re.compile(r"(?:(?:Bearer|Basic|Token) +)?\$\{\w+\}", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where something is posted to; header values only refer to the environment."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class Variables:
    """Names the environment variables that take the place of secrets; equal ones share a name."""

    names: dict[str, str] = field(default_factory=dict[str, str], repr=False)
    uses: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def reference(self, secret: str, *, owner: str, header: str) -> str:
        """Return `${NAME}` in place of a secret, and note what it is for."""
        if secret not in self.names:
            self.names[secret] = self._free_name(f"{owner}_{header}")
        name = self.names[secret]
        self.uses.setdefault(name, []).append(f"header {header} of {owner}")
        return f"${{{name}}}"

    def _free_name(self, words: str) -> str:
        plain = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")
        name = f"KEY_{plain}" if not plain or plain[0].isdigit() else plain
        # LEARNLOOP_A__B would be read as a setting.
        name = name.removeprefix("LEARNLOOP_") or "KEY"
        taken, number = set(self.names.values()), 2
        chosen = name
        while chosen in taken:
            chosen, number = f"{name}_{number}", number + 1
        return chosen


def read_address(
    data: Mapping[str, Any], key: str, *, owner: str, where: str, variables: Variables
) -> tuple[Address, list[Mapped]]:
    """Return the address under `key` with its `headers`, and what could not be kept of it.

    Raises:
        ConfigError: no http address, or headers that are no texts. No value is repeated.
    """
    url: object = data.get(key)
    if not isinstance(url, str):
        raise ConfigError(f"has no `{key}`", where=where, fix="Give it as text, with http://.")
    headers = _headers(data.get("headers"), owner=owner, where=where, variables=variables)
    plain, left_out = _without_secrets(url, key=key, where=where)
    mapped = [
        Mapped(
            source=f"{owner}: {left_out} of its address",
            fate="unmapped",
            why="may be secret and was not written; send it as a header, or add it by hand",
        )
    ]
    return Address(name=owner, url=plain, headers=headers), mapped if left_out else []


def is_private(url: str) -> bool:
    """Return whether an address is on this machine or in a private network, as far as it shows."""
    host = urlsplit(url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))


def _without_secrets(url: str, *, key: str, where: str) -> tuple[str, str]:
    """Return an address without user, password and query, and the names of what it had of them."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"`{key}` is not a web address", where=where) from None
    if not usable:
        fix = "Write it as http://HOST:PORT/PATH."
        raise ConfigError(f"`{key}` is not an http address", where=where, fix=fix)
    user, at, host = parts.netloc.rpartition("@")
    had = [*(["the user"] if at and user else []), *(["the query"] if parts.query else [])]
    return urlunsplit((parts.scheme, host, parts.path, "", "")), " and ".join(had)


def _headers(data: object, *, owner: str, where: str, variables: Variables) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in table({} if data is None else data, f"{where}: headers").items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"header `{name}` is not a text", where=where)
        headers[name] = _referring(value.strip(), owner=owner, header=name, variables=variables)
    return headers


def _referring(value: str, *, owner: str, header: str, variables: Variables) -> str:
    """Return a header's value with its secret part replaced; the word `Bearer` is kept."""
    if _REFERENCE.fullmatch(value):
        for name in re.findall(r"\$\{(\w+)\}", value):
            variables.uses.setdefault(name, []).append(f"header {header} of {owner}")
        return value
    if found := _SCHEME_WORD.fullmatch(value):
        secret = variables.reference(found[2], owner=owner, header=header)
        return f"{found[1]} {secret}"
    return variables.reference(value, owner=owner, header=header)
