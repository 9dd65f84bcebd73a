"""Formulas over the scores of named graders: + - * / ^, parentheses, and a few functions. No `eval`.

sum     = product { ("+" | "-") product }
product = signed { ("*" | "/") signed }
signed  = "-" signed | power
power   = atom [ "^" signed ]
atom    = number | name | function "(" sum { "," sum } ")" | "(" sum ")"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from learnloop.errors import ConfigError, GraderError

_TOKEN = re.compile(
    r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|([A-Za-z_][A-Za-z0-9_]*)|([-+*/^(),]))"
)
_DEEPEST = 50
_LONGEST = 2000

Value = Callable[[Mapping[str, float]], float]

_ANY_NUMBER = -1
FUNCTIONS: Mapping[str, tuple[int, Callable[..., float]]] = {
    "min": (_ANY_NUMBER, min),
    "max": (_ANY_NUMBER, max),
    "abs": (1, math.fabs),
    "floor": (1, math.floor),
    "ceil": (1, math.ceil),
    "exp": (1, math.exp),
    "sqrt": (1, math.sqrt),
    "log": (1, math.log),
}


@dataclass(frozen=True)
class Formula:
    """A formula that was read; equal texts are equal formulas."""

    text: str
    names: frozenset[str]
    _value: Value

    def __call__(self, scores: Mapping[str, float]) -> float:
        """Return the value for some scores.

        Raises:
            GraderError: it has none here, such as a division by zero.
        """
        try:
            value = float(self._value(scores))
        except (ArithmeticError, ValueError, TypeError) as error:
            words = f"`{self.text}` has no value for {dict(scores)}: {error}"
            raise GraderError(words, kind="formula", retryable=False) from None
        if not math.isfinite(value):
            words = f"`{self.text}` is {value} for {dict(scores)}"
            raise GraderError(words, kind="formula", retryable=False)
        return value


def read_formula(text: str, names: Collection[str], *, where: str) -> Formula:
    """Return a formula over some named scores.

    Raises:
        ConfigError: it does not parse, or uses a name that no grader has.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"is longer than {_LONGEST} characters", where=where)
    reader = _Reader(_tokens(text, where), names, where)
    value = reader.sum(0)
    if reader.next:
        raise reader.wrong(f"`{reader.next}` is too much")
    return Formula(text, frozenset(reader.used), value)


def _tokens(text: str, where: str) -> list[str]:
    found, place = list[str](), 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ConfigError(f"`{text[place:].strip()[:20]}` is no part of a formula", where=where)
        found.append(match[0].strip())
        place = match.end()
    return found


class _Reader:
    """Reads tokens from left to right; `next` is the first one that was not read yet."""

    def __init__(self, tokens: Sequence[str], names: Collection[str], where: str) -> None:
        self._tokens, self._names, self._where = tokens, names, where
        self._place = 0
        self.used = set[str]()

    @property
    def next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{what} in `{' '.join(self._tokens)}`", where=self._where)

    def take(self, *wanted: str) -> str:
        """Return the next token if it is one of those wanted, else nothing."""
        token = self.next
        if token and token in wanted:
            self._place += 1
            return token
        return ""

    def sum(self, depth: int) -> Value:
        if depth > _DEEPEST:
            raise self.wrong("too many parentheses")
        left = self.product(depth)
        while sign := self.take("+", "-"):
            left = (
                _added(left, self.product(depth))
                if sign == "+"
                else _less(left, self.product(depth))
            )
        return left

    def product(self, depth: int) -> Value:
        left = self.signed(depth)
        while sign := self.take("*", "/"):
            right = self.signed(depth)
            left = _times(left, right) if sign == "*" else _over(left, right)
        return left

    def signed(self, depth: int) -> Value:
        if depth > _DEEPEST:
            raise self.wrong("too many signs")
        if self.take("-"):
            inner = self.signed(depth + 1)
            return lambda scores: -inner(scores)
        base = self.atom(depth)
        if self.take("^"):
            exponent = self.signed(depth + 1)
            return lambda scores: _power(base(scores), exponent(scores))
        return base

    def atom(self, depth: int) -> Value:
        token = self.next
        self._place += 1
        if token == "(":
            inner = self.sum(depth + 1)
            self._close()
            return inner
        if token[:1].isdigit() or token[:1] == ".":
            number = float(token)
            return lambda _: number
        if token in FUNCTIONS and self.take("("):
            return self._function(token, depth)
        if token in self._names:
            self.used.add(token)
            return lambda scores: scores[token]
        if not token:
            raise self.wrong("something is missing at the end")
        known = ", ".join(sorted(self._names))
        raise self.wrong(f"`{token}` is no grader ({known}) and no function")

    def _function(self, name: str, depth: int) -> Value:
        arguments = [self.sum(depth + 1)]
        while self.take(","):
            arguments.append(self.sum(depth + 1))
        self._close()
        wanted, function = FUNCTIONS[name]
        if wanted not in (_ANY_NUMBER, len(arguments)):
            raise self.wrong(f"`{name}` takes {wanted} value")
        if len(arguments) == 1 and wanted == _ANY_NUMBER:
            return arguments[0]
        return lambda scores: function(*(value(scores) for value in arguments))

    def _close(self) -> None:
        if not self.take(")"):
            raise self.wrong("a `)` is missing")


def _added(a: Value, b: Value) -> Value:
    return lambda scores: a(scores) + b(scores)


def _less(a: Value, b: Value) -> Value:
    return lambda scores: a(scores) - b(scores)


def _times(a: Value, b: Value) -> Value:
    return lambda scores: a(scores) * b(scores)


def _over(a: Value, b: Value) -> Value:
    return lambda scores: a(scores) / b(scores)


def _power(base: float, exponent: float) -> float:
    value = base**exponent
    if isinstance(value, complex):
        raise ValueError("a root of a negative number")
    return value
