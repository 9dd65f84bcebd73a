"""Reads the one number in a short text, the way financial reports write numbers."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

Unit = Literal["number", "percent"]
"""percent: the expected value counts percentage points, so `7%` is 7 and not 0.07."""

_SCALES = {
    "k": 3, "thousand": 3, "thousands": 3,
    "m": 6, "mm": 6, "mn": 6, "mio": 6, "million": 6, "millions": 6,
    "b": 9, "bn": 9, "billion": 9, "billions": 9,
    "tn": 12, "trillion": 12, "trillions": 12,
}  # fmt: skip
_PERCENTS = {
    "%": -2, "percent": -2, "per cent": -2, "pct": -2, "pp": -2,
    "percentage point": -2, "percentage points": -2,
    "bp": -4, "bps": -4, "basis point": -4, "basis points": -4,
}  # fmt: skip

_CURRENCY = r"(?:US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|CHF|INR)\b)"
_GAP = "[ \u00a0\u2009\u202f]"
_DIGITS = (
    rf"(?:\d{{1,3}}(?:,\d{{3}})+(?![\d,])|\d{{1,3}}(?:{_GAP}\d{{3}})+(?!\d)"
    rf"|\d{{1,3}}(?:['_]\d{{3}})+(?!\d)|\d+)?(?:\.\d+)?(?:[eE][+-]?\d{{1,3}}\b)?"
)
_UNITS = "|".join(sorted(map(re.escape, [*_SCALES, *_PERCENTS]), key=len, reverse=True))
_NUMBER = re.compile(
    rf"""(?<![\w.])(?P<open>\()?\s*(?P<sign>[-+]?)\s*(?:{_CURRENCY})?\s*(?P<sign2>[-+]?)
    (?=[\d.]*\d)(?P<digits>{_DIGITS})
    (?:\s*(?P<unit>{_UNITS})(?![A-Za-z]))?(?:\s*{_CURRENCY})?\s*(?P<close>\))?
    (?:\s*(?P<after>%|percent\b))?""",
    re.VERBOSE | re.IGNORECASE,
)
_MINUS = str.maketrans(dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-"))
_LONGEST = 60


def read_number(text: str, unit: Unit = "number") -> Decimal | None:
    """Return the number in a text, or None when there is none or more than one.

    Words around the number are ignored; digits inside a word (`Q4`) are no number. Understood are
    currency, thousands separators, parentheses and Unicode signs as minus, percent, basis points,
    and k, m, bn and their words.
    """
    text = text.translate(_MINUS)
    found = [m for m in _NUMBER.finditer(text) if m["digits"]]
    if len(found) != 1:
        return None
    before, after = text[: found[0].start()], text[found[0].end() :]
    # Digits left over mean a second number, or one that was only half understood.
    if re.search(r"(?<![A-Za-z\d])\d", f"{before} {after}") or re.match(r"[A-Za-z_]\w*\d", after):
        return None
    if len(found[0][0]) > _LONGEST:
        return None
    return _value(found[0], unit)


def _value(match: re.Match[str], unit: Unit) -> Decimal | None:
    """Put sign, digits and unit together."""
    signs = [match["sign"], match["sign2"]]
    bracketed = bool(match["open"] and match["close"])
    if all(signs):
        return None
    number = Decimal(re.sub(rf"[,'_]|{_GAP}", "", match["digits"]))
    word = (match["unit"] or match["after"] or "").lower()
    exponent = _SCALES.get(word, _PERCENTS.get(word, 0))
    if unit == "percent" and word in _PERCENTS:
        exponent += 2
    number = number.scaleb(exponent)
    return -number if "-" in signs or bracketed else number
