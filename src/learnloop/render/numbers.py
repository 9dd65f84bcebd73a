"""How numbers are written: one way for the page, for Markdown and for the terminal."""

from __future__ import annotations

import math

from learnloop.stats import Estimate

NONE = "\N{EN DASH}"
"""Stands where a number could not be had; never a zero."""
MINUS = "\N{MINUS SIGN}"


def amount(value: float | None, unit: str) -> str:
    """Return a value in its unit: `share` as percent, `seconds` with s, `usd` with cents and less, `count` plain."""
    if value is None:
        return NONE
    if unit == "share":
        return _minus(f"{100 * value:.1f} %")
    if unit == "usd":
        return _minus(_money(value))
    words = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    if unit == "seconds":
        return _minus(f"{words} s")
    return _minus(f"{value:,.0f}" if abs(value) >= 100 else words)


def _money(value: float) -> str:
    """Return dollars with cents, and of less than one with two figures that say something."""
    if abs(value) >= 1 or value == 0:
        return f"{value:,.2f}"
    return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"


def interval(estimate: Estimate | None, unit: str) -> str:
    """Return `low to high` in the unit, or nothing where there is no interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    if unit == "share":
        return _minus(f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}")
    low, high = (
        amount(v, "usd" if unit == "usd" else "count") for v in (estimate.low, estimate.high)
    )
    return f"{low} to {high}"


def change(estimate: Estimate | None, kind: str) -> str:
    """Return a signed change: points for a `difference`, percent for a `relative` one."""
    if estimate is None:
        return NONE
    words = f"{100 * estimate.value:+.1f}"
    return _minus(f"{words} points" if kind == "difference" else f"{words} %")


def change_interval(estimate: Estimate | None) -> str:
    """Return the signed interval of a change in points or percent."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return _minus(f"{100 * estimate.low:+.1f} to {100 * estimate.high:+.1f}")


def direction(estimate: Estimate | None, better: str) -> str:
    """Return `up` when a change is surely good, `down` when surely bad, else nothing."""
    if estimate is None or not (estimate.above_zero or estimate.below_zero):
        return ""
    good = estimate.above_zero if better == "higher" else estimate.below_zero
    return "up" if good else "down"


def duration(seconds: float | None) -> str:
    """Return a length of time in the two units that matter."""
    if seconds is None:
        return NONE
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def capitalized(words: str) -> str:
    """Return words with a capital first letter, the rest as it is."""
    return words[:1].upper() + words[1:]


def _minus(words: str) -> str:
    return words.replace("-", MINUS)
