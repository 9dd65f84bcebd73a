"""The verdict: a comparison in one sentence."""

from __future__ import annotations

import math

from learnloop import stats
from learnloop.summary.comparison import Comparison, Contrast, Measure

SMALL_SAMPLE = 30
# Below half a point the number of tasks needed is so large that naming it helps nobody.
_NO_DIFFERENCE = 0.005


def sentence(comparison: Comparison, *, measure: Measure = "correct") -> str:
    """Return the verdict in words, such as "beats the baseline by +11.2 points (95 % CI ...)"."""
    contrast = comparison.correct if measure == "correct" else comparison.score
    if comparison.refused or contrast is None:
        return f"no headline: {comparison.refused}"
    found = contrast.difference
    if not contrast.decisive:
        head = f"not decisive: {points(found.value)} points"
        return f"{head} ({_evidence(comparison, contrast)}); {_wanted(comparison, contrast)}"
    better = found.value > 0
    head = "beats the baseline by" if better else "falls behind the baseline by"
    tail = _count(len(comparison.losses if better else comparison.wins), better=not better)
    return f"{head} {points(found.value)} points ({_evidence(comparison, contrast)}); {tail}"


def points(fraction: float) -> str:
    """Return a difference of fractions in signed percentage points: 0.112 is "+11.2"."""
    return f"{100 * fraction:+.1f}"


def p_words(p: float) -> str:
    """Return a p value as it is printed: "p = 0.032" or "p < 0.001"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _evidence(comparison: Comparison, contrast: Contrast) -> str:
    found = contrast.difference
    low = points(found.low) if found.low is not None else "?"
    high = points(found.high) if found.high is not None else "?"
    words = [f"95 % CI {low} to {high}", _size(comparison)]
    if contrast.p_holm is None:
        words.append(p_words(contrast.p))
    else:
        words.append(f"Holm-corrected {p_words(contrast.p_holm)}")
    if comparison.units < SMALL_SAMPLE:
        words.append("small sample")
    return "; ".join(words)


def _size(comparison: Comparison) -> str:
    attempts = max(comparison.before.attempts, comparison.after.attempts)
    times = f" x {attempts}" if attempts > 1 else ""
    if comparison.units == comparison.tasks:
        return f"{comparison.tasks} tasks{times}"
    return f"{comparison.tasks} tasks{times} in {comparison.units} groups"


def _count(tasks: int, *, better: bool) -> str:
    word = "better" if better else "worse"
    if tasks == 0:
        return f"no task got {word}"
    return f"{tasks} task{'' if tasks == 1 else 's'} got {word}"


def _wanted(comparison: Comparison, contrast: Contrast) -> str:
    """Say how many more tasks would decide it, or what these could have shown at all."""
    center, sd, units = contrast.difference.value, contrast.sd, comparison.units
    if abs(center) < _NO_DIFFERENCE:
        return f"{100 * contrast.detectable(units):.1f} points is what these tasks show with 80 % power"
    missing = stats.tasks_needed(sd, abs(center)) - units
    more = math.ceil(missing * comparison.tasks / units)
    if more <= 0:
        return "about as many tasks again would settle it"
    return f"about {more} more tasks for 80 % power"
