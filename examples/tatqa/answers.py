"""Whether an answer says what TAT-QA's gold answer says.

The comparison, in words:
- What counts is the text behind the last `Answer:`, or the last line when there is none.
- A gold value that is a number (`$1,496.5`, `(12.6)`, `22.22%`, `INR19`) is compared as one.
  Currencies, thousands separators and the unit words of the answer are understood. A bare number is
  read in the scale of the gold answer (percent, thousand, million, billion) or, for amounts, in
  full; a number with its own unit must come to the same amount. A fraction is never taken for a
  percentage, and `a fall of 5` is not -5.
- A computed number may differ by half a unit of the gold answer's last digit; a copied or counted
  one must be equal.
- Any other value is compared as words, without case and punctuation: equal is 1, otherwise F1 of
  the words.
- Several values: parts of the answer, divided by `;` or lines (or commas and `and`), are paired
  with gold values of score 1; the score is F1 of the pairs. Order does not count.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

SCALES = {"": 0, "percent": 0, "thousand": 3, "million": 6, "billion": 9}
CURRENCIES = r"(?:US\$|A\$|C\$|HK\$|S\$|[$€£¥₹]|USD|EUR|GBP|RMB|INR|AUD|CAD|HKD|SGD|JPY|CHF)"
UNITS = {
    "%": "percent",
    "percent": "percent",
    "per cent": "percent",
    "thousand": "thousand",
    "thousands": "thousand",
    "k": "thousand",
    "million": "million",
    "millions": "million",
    "m": "million",
    "billion": "billion",
    "billions": "billion",
    "bn": "billion",
}
NUMBER = re.compile(
    rf"""(?P<minus>[-\u2212\u2013]?)\s*{CURRENCIES}?\s*(?P<bracket>\(?)\s*{CURRENCIES}?\s*
    (?P<inner>[-\u2212\u2013]?)\s*(?P<digits>\d[\d,]*(?:\.\d+)?|\.\d+)\s*
    (?P<first>%?)\s*(?P<close>\)?)\s*(?P<unit>[a-z%]*(?:\s+cent)?)\s*{CURRENCIES}?\.?""",
    re.VERBOSE | re.IGNORECASE,
)
STATED = re.compile(r"answer\s*(?:is\b)?\s*:", re.IGNORECASE)
WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
NOTHING = {"", "-", "\u2013", "\u2014", "nil", "none"}


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number as it was written, with its unit; the unit is empty when none was said."""

    value: Decimal
    unit: str = ""

    def amount(self, scale: str) -> Decimal:
        """Return the amount, when a bare number is meant in `scale`."""
        return self.value.scaleb(SCALES[self.unit or scale])


@dataclass(frozen=True, kw_only=True)
class Gold:
    """A gold answer: its values, their scale, and whether it was computed."""

    values: tuple[str, ...]
    scale: str = ""
    computed: bool = False

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Gold:
        """Return the gold answer of a row, or of a question of TAT-QA.

        Raises:
            ValueError: it has no values, or an unknown scale.
        """
        raw = data.get("answer")
        values = tuple(str(v).strip() for v in (raw if isinstance(raw, list) else [raw]))
        scale = str(data.get("scale") or "")
        if not values or raw is None or not all(values):
            raise ValueError("the answer is empty")
        if scale not in SCALES:
            raise ValueError(f"the scale {scale!r} is unknown")
        return cls(values=values, scale=scale, computed=data.get("answer_type") == "arithmetic")

    def text(self) -> str:
        """Return the answer as an agent would give it."""
        return "; ".join(self._said(value) for value in self.values)

    def _said(self, value: str) -> str:
        number = read_number(value)
        if not self.scale or number is None or number.unit:
            return value
        return f"{value}%" if self.scale == "percent" else f"{value} {self.scale}"


def read_number(text: str) -> Number | None:
    """Return the number that a text consists of; None when it holds anything else."""
    found = NUMBER.fullmatch(text.strip())
    if found is None or bool(found["bracket"]) != bool(found["close"]):
        return None
    said = " ".join(found["unit"].lower().split())
    if said and said not in UNITS:
        return None
    unit = "percent" if found["first"] else UNITS.get(said, "")
    if found["first"] and said not in {"", "%"}:
        return None
    value = Decimal(found["digits"].replace(",", ""))
    is_negative = bool(found["minus"] or found["inner"] or found["bracket"])
    return Number(value=-value if is_negative else value, unit=unit)


def final_answer(text: str) -> str:
    """Return the part of a text that states the answer."""
    parts = STATED.split(text)
    if len(parts) > 1:
        return parts[-1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def score(text: str, gold: Gold) -> float:
    """Return how well a whole answer text says what the gold answer says, from 0 to 1."""
    answer = final_answer(text)
    if not answer:
        return 0.0
    if len(gold.values) == 1:
        return score_value(answer, gold.values[0], gold)
    return max(score_several(parts, gold) for parts in divisions(answer))


def score_value(answer: str, value: str, gold: Gold) -> float:
    """Score one value."""
    number = read_number(value)
    if number is not None:
        return float(same_number(read_number(answer), number, gold, places(value)))
    if value.lower() in NOTHING:
        return float(answer.lower() in NOTHING | {"0"})
    return f1(words(answer), words(value))


def same_number(answer: Number | None, number: Number, gold: Gold, digits: int) -> bool:
    """Return whether two numbers are the same amount."""
    if answer is None:
        return False
    scale = number.unit or gold.scale
    # A percentage is no amount: its unit must agree, or be left out.
    if "percent" in {answer.unit, scale} and answer.unit not in {"", scale}:
        return False
    half = Decimal(1).scaleb(-digits) / 2 if gold.computed else Decimal(0)
    tolerance = half.scaleb(SCALES[scale])
    want = number.amount(scale)
    read = {answer.amount(scale), *([answer.value] if not answer.unit else [])}
    return any(abs(value - want) <= tolerance for value in read)


def places(value: str) -> int:
    """Return how many decimals a number is written with."""
    digits = re.search(r"\.(\d+)", value)
    return len(digits[1]) if digits else 0


def score_several(parts: Sequence[str], gold: Gold) -> float:
    """Pair parts of an answer with gold values; return F1 of the pairs."""
    left = list(gold.values)
    for part in parts:
        hit = next((value for value in left if score_value(part, value, gold) == 1), None)
        if hit is not None:
            left.remove(hit)
    paired = len(gold.values) - len(left)
    return 2 * paired / (len(parts) + len(gold.values))


def divisions(answer: str) -> Iterable[list[str]]:
    """Yield the ways in which an answer may be divided into values."""
    for pattern in (r"[;\n]", r"\n|;|,\s+(?:and\s+)?|\s+and\s+"):
        # A dash with a space behind it is a bullet; one without belongs to a number.
        parts = [re.sub(r"^[-*]\s+", "", part.strip()) for part in re.split(pattern, answer)]
        yield [part for part in parts if part]


def words(text: str) -> list[str]:
    """Return the words of a text, evened out; numbers lose their thousands separators."""
    return [w.replace(",", "") for w in WORD.findall(text.casefold().replace("\u2019", "'"))]


def f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    """Return F1 of two bags of words; 1 only when they are equal in order too."""
    if answer == gold:
        return 1.0
    shared = sum((Counter(answer) & Counter(gold)).values())
    if not shared:
        return 0.0
    value = 2 * shared / (len(answer) + len(gold))
    return min(value, 0.99)  # the same words in another order are not the same answer
