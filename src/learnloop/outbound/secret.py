"""Secrets in headers and addresses: taken from the environment, and hidden in every text."""

from __future__ import annotations

import base64
import html
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
        ConfigError: a variable is not set, or a value cannot be sent in a header.
    """
    expanded = {k: expand_secret(v, environ, where=where) for k, v in headers.items()}
    for name, value in expanded.items():
        _check_header(name, value, headers[name], where)
    return expanded


def _check_header(name: str, value: str, written: str, where: str) -> None:
    """Refuse a value that HTTP cannot carry, without showing it."""
    if value.strip() and value.isascii() and value.isprintable():
        return
    what = "is empty" if not value.strip() else "holds a character that is not printable ASCII"
    variables = re.findall(r"\$\{(\w+)\}", written)
    source = f" (from the environment variable {', '.join(variables)})" if variables else ""
    fix = "Set it to the value alone, without a line break or other invisible character."
    raise ConfigError(f"header {name}{source} {what}", where=where, fix=fix)


def check_credentials(url: str, headers: Mapping[str, str], *, where: str) -> None:
    """Refuse an address with user and password beside an `Authorization` header.

    Raises:
        ConfigError: both are there, and only one of them could be sent.
    """
    if "@" in urlsplit(url).netloc and "authorization" in {k.lower() for k in headers}:
        raise ConfigError(
            "the address holds a user and there is an Authorization header: one would be lost",
            where=where,
            fix="Take USER:PASSWORD@ out of the address, or remove the header.",
        )


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
    pattern = re.compile("|".join("".join(map(_any_form, s)) for s in secrets))
    return lambda text: pattern.sub(HIDDEN, text)


def _any_form(char: str) -> str:
    """Return a pattern of a character as it is, or escaped for JSON, an address or HTML."""
    if char.isascii() and char.isalnum():
        return char
    # A text inside a text is escaped more than once; the bound keeps matching linear.
    literal = r"\\{1,4}" if char == "\\" else r"\\{0,3}" + re.escape(char)
    percent = "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "replace"))
    forms = [literal, rf"(?i:\\{{1,3}}u{ord(char):04x}|{percent})"]
    if (entity := html.escape(char)) != char:
        forms.append(re.escape(entity))
    if char in "\t\n\r":
        forms.append(r"\\{1,3}" + {"\t": "t", "\n": "n", "\r": "r"}[char])
    if char == " ":
        forms.append(r"\+")
    return f"(?:{'|'.join(forms)})"


def _secrets(url: str, headers: Mapping[str, str]) -> list[str]:
    """Return whole header values, their words (`Bearer` apart from its key), and URL secrets."""
    values = [v.strip() for k, v in headers.items() if k.lower() not in _HARMLESS]
    words = [w for v in values for w in v.split() if w.lower() not in {"bearer", "basic"}]
    parts = urlsplit(url)
    userinfo = parts.netloc.rpartition("@")[0]
    in_url = [*userinfo.split(":"), *(v for _, v in parse_qsl(parts.query))]
    found = (*values, *words, *in_url, *map(unquote, in_url), *_basic(userinfo))
    return [v for v in found if len(v) >= _SHORTEST]


def _basic(userinfo: str) -> list[str]:
    """Return the word that the `Authorization` header of a user and password holds."""
    if not userinfo:
        return []
    user, _, password = userinfo.partition(":")
    pair = f"{unquote(user)}:{unquote(password)}"
    return [pair, base64.b64encode(pair.encode()).decode()]
