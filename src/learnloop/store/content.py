"""Content policy: how much of what was said a stored rollout keeps. Numbers stay in all of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from learnloop.message import ToolCall
from learnloop.store.texts import map_texts
from learnloop.trace import Content, Trace

NOT_KEPT = "(not kept)"
"""Stands for a malformed call where no text is kept: that there was one is a number."""

_MASKS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # Guarded on its left: else every start within a long word would look through all of it.
        (r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "[email]"),
        # What announces a key, then what looks like one: long, of letters and digits both.
        (r"(?i)\b(?:bearer|basic)\s+[\w.~+/=-]{8,}", "[key]"),
        (
            r"\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|glpat|xox[a-z]|hf|AKIA|ASIA|AIza|eyJ)[\w.-]{12,}",
            "[key]",
        ),
        (r"(?<![\w+-])(?=[\w+-]*\d)(?=[\w+-]*[A-Za-z])[\w+-]{24,}={0,2}", "[key]"),
        # Cards in groups of four, then whatever is long and of digits only.
        (r"(?<!\d)(?:\d{4}[ -]){3}\d{1,7}(?!\d)", "[card]"),
        (r"(?<![\d.])\d{9,}(?!\d)", "[digits]"),
        # Telephone numbers: a plus, a bracket or a zero first, or groups joined by - . or /
        (r"(?<![\w.])(?:\+|\(?0(?!\.))\d{0,4}\)?(?:[ ./-]?\(?\d{1,5}\)?){2,6}(?!\w)", "[phone]"),
        (r"(?<![\w.])\(?\d{3}\)?[ ./-]\d{3}[ ./-]\d{4}(?!\w)", "[phone]"),
    )
)
_PHONE_DIGITS = 7
"""A telephone number has at least so many; fewer are a price or a date."""
_PART_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def reduce(trace: Trace, content: Content, salt: bytes) -> Trace:
    """Return the trace with as much content as a policy keeps; `full` changes nothing.

    masked: addresses, telephone numbers, long numbers and keys are masked. hash: every text is its
    hash under the rollout's salt. none and erased: no texts. Token ids and logprobs spell the texts
    out, so they go with them.
    """
    if content == "full":
        return trace

    def change(text: str) -> str:
        return _changed(text, content, salt)

    changed = _renamed(map_texts(trace, change), content, salt)
    turns = tuple(
        replace(
            new, token_ids=(), logprobs=(), malformed=new.malformed or (old.malformed and NOT_KEPT)
        )
        for old, new in zip(trace.turns, changed.turns, strict=True)
    )
    score = changed.score
    if score is not None:
        flags = tuple(change(flag) for flag in score.flags)
        score = replace(score, flags=flags, parts=_parts(score.parts, change))
    return replace(changed, turns=turns, score=score, content=content)


def _parts(parts: Mapping[str, float], change: Callable[[str], str]) -> dict[str, float]:
    """Return the parts of a score; a name that is no plain word is a text, and goes as texts do.

    The numbers stay: where names become equal, or nothing, they are counted.
    """
    kept = {name: value for name, value in parts.items() if _is_plain(name)}
    for name, value in parts.items():
        if not _is_plain(name):
            kept[_free(change(name) or NOT_KEPT, kept)] = value
    return kept


def _free(name: str, taken: Mapping[str, float]) -> str:
    """Return the name, or with the first number behind it that makes it a new one."""
    numbered = (f"{name} {number}" for number in count(2))
    return name if name not in taken else next(n for n in numbered if n not in taken)


def _is_plain(name: str) -> bool:
    """Return whether a name is one that a program gives, with nothing in it to be masked."""
    return bool(_PART_NAME.fullmatch(name)) and mask(name) == name


def told(text: str, content: Content) -> str:
    """Return as much of a message that may quote what was said as a policy keeps."""
    if content == "full":
        return text
    return mask(text) if content == "masked" else NOT_KEPT


def mask(text: str) -> str:
    """Return the text without e-mail addresses, telephone numbers, long numbers and keys."""
    for pattern, name in _MASKS:
        text = pattern.sub(lambda found, name=name: _masked(found.group(), name), text)
    return text


def _masked(found: str, name: str) -> str:
    """Return what stands for a find; a row of years and the like is left as it is."""
    digits = [int(c) for c in found if c.isdecimal()]
    if name == "[phone]" and len(digits) < _PHONE_DIGITS:
        return found
    if name == "[card]" and not _is_card(digits):
        return found
    return name


def _is_card(digits: list[int]) -> bool:
    """Return whether the last digit is the check digit of the others (Luhn's rule)."""
    doubled = [2 * d - 9 * (d > 4) for d in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _changed(text: str, content: Content, salt: bytes) -> str:
    if content == "masked":
        return mask(text)
    if content == "hash" and text:
        return "sha256:" + hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).hexdigest()
    return ""


def _renamed(trace: Trace, content: Content, salt: bytes) -> Trace:
    """Change names of tools that are none: the model may have written anything there."""

    def named(call: ToolCall) -> ToolCall:
        if _TOOL_NAME.fullmatch(call.name):
            return call
        return replace(call, name=_changed(call.name, content, salt) or NOT_KEPT)

    return replace(
        trace,
        messages=tuple(
            replace(m, tool_calls=tuple(map(named, m.tool_calls)), name=_message_name(m.name))
            for m in trace.messages
        ),
        turns=tuple(replace(t, tool_calls=tuple(map(named, t.tool_calls))) for t in trace.turns),
        calls=tuple(replace(c, call=named(c.call)) for c in trace.calls),
    )


def _message_name(name: str) -> str:
    return name if not name or _TOOL_NAME.fullmatch(name) else NOT_KEPT
