"""How alike two texts are, from 0 to 1, by the measures of the wire contract.

fuzzy_match  normalised edit similarity (rapidfuzz `ratio`, case kept)
bleu         BLEU of one sentence, add-one smoothing from 2-grams on (Lin and Och 2004)
gleu         the lesser of n-gram precision and recall, n = 1 to 4 (Wu et al. 2016)
meteor       unigram F-mean with the fragmentation penalty (Banerjee and Lavie 2005), exact words only
rouge_1..5   F1 of n-grams; rouge_l: F1 by the longest common subsequence (Lin 2004)
cosine       cosine of word counts; the hosted service takes embeddings instead

Words are runs of letters and digits, in lower case.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rapidfuzz import fuzz

Words = Sequence[str]

_WORD = re.compile(r"\w+")
_LONGEST_BLEU = 4


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text.lower())


def fuzzy_match(text: str, reference: str) -> float:
    """Return the edit similarity of two texts."""
    return fuzz.ratio(text, reference) / 100


def bleu(text: str, reference: str) -> float:
    """Return the smoothed BLEU of a text."""
    ours, theirs = words_of(text), words_of(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    logs = 0.0
    for n in range(1, _LONGEST_BLEU + 1):
        shared, made, _ = _overlap(ours, theirs, n)
        add = n > 1
        if not shared and not add:
            return 0.0
        logs += math.log((shared + add) / (made + add))
    shortness = min(0.0, 1 - len(theirs) / len(ours))
    return math.exp(shortness + logs / _LONGEST_BLEU)


def gleu(text: str, reference: str) -> float:
    """Return the Google-BLEU of a text."""
    ours, theirs = words_of(text), words_of(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    counts = [_overlap(ours, theirs, n) for n in range(1, _LONGEST_BLEU + 1)]
    shared, made, wanted = (sum(x) for x in zip(*counts, strict=True))
    return shared / max(made, wanted)


def meteor(text: str, reference: str) -> float:
    """Return METEOR with exact matches, without stems and synonyms."""
    ours, theirs = words_of(text), words_of(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(theirs):
        places.setdefault(word, []).append(place)
    matched = [places[word].pop(0) if places.get(word) else None for word in ours]
    hits = [place for place in matched if place is not None]
    if not hits:
        return 0.0
    precision, recall = len(hits) / len(ours), len(hits) / len(theirs)
    mean = 10 * precision * recall / (recall + 9 * precision)
    return mean * (1 - 0.5 * (_chunks(matched) / len(hits)) ** 3)


def _chunks(matched: Sequence[int | None]) -> int:
    """Count runs of matches that are neighbours in both texts."""
    runs, last = 0, None
    for place in matched:
        if place is not None and (last is None or place != last + 1):
            runs += 1
        last = place
    return runs


def rouge(n: int) -> Callable[[str, str], float]:
    """Return the F1 of n-grams."""

    def measure(text: str, reference: str) -> float:
        ours, theirs = words_of(text), words_of(reference)
        if not ours or not theirs:
            return float(ours == theirs)
        return _f1(*_overlap(ours, theirs, n))

    return measure


def rouge_l(text: str, reference: str) -> float:
    """Return the F1 of the longest common subsequence of words."""
    ours, theirs = words_of(text), words_of(reference)
    if not ours or not theirs:
        return float(ours == theirs)
    row = [0] * (len(theirs) + 1)
    for word in ours:
        diagonal = 0
        for j, other in enumerate(theirs, start=1):
            above = row[j]
            row[j] = diagonal + 1 if word == other else max(above, row[j - 1])
            diagonal = above
    return _f1(row[-1], len(ours), len(theirs))


def cosine(text: str, reference: str) -> float:
    """Return the cosine of word counts."""
    ours, theirs = Counter(words_of(text)), Counter(words_of(reference))
    if not ours or not theirs:
        return float(ours == theirs)
    product = sum(ours[word] * theirs[word] for word in ours)
    return product / math.sqrt(_square(ours) * _square(theirs))


def _square(counts: Counter[str]) -> int:
    return sum(n * n for n in counts.values())


def _overlap(ours: Words, theirs: Words, n: int) -> tuple[int, int, int]:
    """Return how many n-grams two texts share, and how many each has."""
    first, second = (
        Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        for words in (ours, theirs)
    )
    return (first & second).total(), first.total(), second.total()


def _f1(shared: int, made: int, wanted: int) -> float:
    return 2 * shared / (made + wanted) if made + wanted else 0.0


METRICS: Mapping[str, Callable[[str, str], float]] = {
    "fuzzy_match": fuzzy_match,
    "bleu": bleu,
    "gleu": gleu,
    "meteor": meteor,
    **{f"rouge_{n}": rouge(n) for n in range(1, 6)},
    "rouge_l": rouge_l,
    "cosine": cosine,
}
