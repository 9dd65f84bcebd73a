"""Verdicts that need no pair at all."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.gate.pool import ErrorPool
from learnloop.gate.result import GateResult


def refuse_early(
    *,
    same_content: bool,
    leaks: Sequence[str],
    confirm_tasks: int,
    pool: ErrorPool | None = None,
) -> GateResult | None:
    """Return a verdict that needs no pair at all, or None when the pairs must be run.

    Args:
        same_content: whether both candidates have the same content hash.
        leaks: findings that link confirm tasks to tasks the optimiser has read, in words.
        confirm_tasks: how many confirm tasks there are.
        pool: the error that the run has left, where it tests more than one candidate.
    """
    if same_content:
        words = "the candidate has the incumbent's content; nothing to test"
        return GateResult(outcome="no_change", words=words)
    if leaks:
        more = f" (and {len(leaks) - 1} more)" if len(leaks) > 1 else ""
        return GateResult(outcome="leak", words=f"the confirm tasks leak: {leaks[0]}{more}")
    if confirm_tasks == 0:
        return GateResult(outcome="invalid", words="there are no confirm tasks to test on")
    if pool is not None and pool.left == 0:
        words = (
            f"the error of this run ({pool.alpha:.0%}) is spent on {pool.used} candidates; "
            "only new confirm tasks open the gate again"
        )
        return GateResult(outcome="invalid", words=words)
    return None
