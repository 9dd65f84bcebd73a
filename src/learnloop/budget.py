"""The budget of a run: what rollouts cost, and which limit is reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from learnloop.config import BudgetConfig, PricesConfig
from learnloop.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Spend:
    """What rollouts took; adds up.

    Of `unknown` ones among `rollouts` nothing else is known: they were under way when a process
    ended, and nobody recorded their calls.
    """

    rollouts: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Return what one rollout took; one that was lost to a fault cost no less."""
        return cls(
            rollouts=1,
            calls=len(trace.calls_run),
            tokens_in=sum(t.tokens_in - t.tokens_reused for t in trace.turns),
            tokens_out=trace.tokens_out,
        )

    def __add__(self, other: Spend) -> Spend:
        """Return both together."""
        return Spend(
            rollouts=self.rollouts + other.rollouts,
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            unknown=self.unknown + other.unknown,
        )

    def cost_usd(self, prices: PricesConfig) -> float:
        """Return the price."""
        tokens = self.tokens_in * prices.tokens_in_usd + self.tokens_out * prices.tokens_out_usd
        return tokens / 1000 + self.calls * prices.call_usd


def left_out(spend: Spend, unit: str) -> str:
    """Return in words what a spend lacks in a unit of the budget; empty when it is all known."""
    if not spend.unknown or unit in {"minutes", "rollouts"}:
        return ""
    return (
        f", without what {spend.unknown} rollouts took that were under way when the run was cut "
        "short: nobody recorded it"
    )


def reached(
    spend: Spend, minutes: float, budget: BudgetConfig, prices: PricesConfig
) -> tuple[str, float] | None:
    """Return the first limit that is reached, by name, and its value; rollouts are counted apart."""
    spent = {
        "minutes": (minutes, budget.minutes),
        "calls": (spend.calls, budget.calls),
        "tokens": (spend.tokens_in + spend.tokens_out, budget.tokens),
        "cost_usd": (spend.cost_usd(prices), budget.cost_usd),
    }
    for name, (used, limit) in spent.items():
        if limit and used >= limit:
            return name, limit
    return None
