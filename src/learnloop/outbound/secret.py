"""Secrets in headers and addresses: taken from the environment, and hidden in every text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

from learnloop.errors import ConfigError

HIDDEN = "[redacted]"

_HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_SHORTEST = 6
"""Shorter values stay: hiding every `1` would ruin a text and protect nothing."""


def expand_headers(
    headers: Mapping[str, str], environ: Mapping[str, str], *, where: str
) -> dict[str, str]:
    """Return the headers with `${NAME}` replaced by values of the environment.

    Raises:
        ConfigError: a variable is not set.
    """
    return {k: expand_secret(v, environ, where=where) for k, v in headers.items()}


def expand_secret(text: str, environ: Mapping[str, str], *, where: str) -> str:
    """Return a text with `${NAME}` replaced by values of the environment.

    Raises:
        ConfigError: a variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigError(
                f"a header or secret needs the environment variable {match[1]}, which is not set",
                where=where,
                fix=f"Set it: export {match[1]}=...",
            )
        return environ[match[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)


def shown_url(url: str) -> str:
    """Return an address fit for a message: without user, password, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def redactor(url: str, headers: Mapping[str, str], secret: str = "") -> Callable[[str], str]:
    """Return a function that hides a secret, and those of an address and its headers, in any text."""
    hidden = {*_secrets(url, headers), *([secret] if len(secret) >= _SHORTEST else [])}
    secrets = sorted(hidden, key=len, reverse=True)
    if not secrets:
        return lambda text: text
    pattern = re.compile("|".join(map(re.escape, secrets)))
    return lambda text: pattern.sub(HIDDEN, text)


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return whole header values, their words (`Bearer` apart from its key), and URL secrets."""
    values = [v for k, v in headers.items() if k.lower() not in _HARMLESS]
    words = [w for v in values for w in v.split() if w.lower() not in {"bearer", "basic"}]
    parts = urlsplit(url)
    userinfo = parts.netloc.rpartition("@")[0]
    in_url = [*userinfo.split(":"), *(v for _, v in parse_qsl(parts.query))]
    decoded = [unquote(v) for v in in_url]
    return [v for v in (*values, *words, *in_url, *decoded) if len(v) >= _SHORTEST]
