"""The tool mix: which share of calls goes to each tool, and whether it moved beyond noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learnloop import stats
from learnloop.summary.row import Row, by_unit, rows_of, tool_shares
from learnloop.task import Task
from learnloop.trace import Trace


@dataclass(frozen=True, kw_only=True)
class ToolMixShift:
    """How far two arms differ in their use of tools.

    Attributes:
        before: share of calls by tool in the first arm; `after` in the second.
        distance: total variation distance of the two: 0 is the same mix, 1 has no tool in common.
        noise_p95: 95th percentile of that distance when the arms of each unit are swapped at
            random, as if one agent had made both: a permutation band, and no A/A run.
        units: units graded in both arms.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]
    distance: float
    noise_p95: float
    units: int

    @property
    def beyond_noise(self) -> bool:
        """Return whether the mix moved more than chance moves it."""
        return self.distance > self.noise_p95


def tool_mix_shift(
    before: Sequence[Trace], after: Sequence[Trace], tasks: Mapping[str, Task], *, seed: int = 0
) -> ToolMixShift | None:
    """Return the shift of the tool mix between two arms; None if one of them made no call.

    Only tasks graded in both arms count.
    """
    old = [row for row in rows_of(before, tasks) if not row.lost]
    new = [row for row in rows_of(after, tasks) if not row.lost]
    both = {row.task_id for row in old} & {row.task_id for row in new}
    old = [row for row in old if row.task_id in both]
    new = [row for row in new if row.task_id in both]
    shares = tool_shares(old), tool_shares(new)
    if not shares[0] or not shares[1]:
        return None
    ours, theirs, tools = by_unit(old), by_unit(new), sorted(shares[0] | shares[1])
    return ToolMixShift(
        before=shares[0],
        after=shares[1],
        distance=total_variation(shares[0], shares[1]),
        noise_p95=stats.swapped_distance_p95(
            [_counts(ours[unit], tools) for unit in ours],
            [_counts(theirs[unit], tools) for unit in ours],
            seed=seed,
        ),
        units=len(ours),
    )


def total_variation(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Return half the summed absolute difference of two distributions."""
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in a.keys() | b.keys()) / 2


def _counts(rows: Sequence[Row], tools: Sequence[str]) -> list[float]:
    return [float(sum(row.tools.get(tool, 0) for row in rows)) for tool in tools]
