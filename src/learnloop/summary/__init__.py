"""What traces say in numbers: one arm, two arms compared, one training step, the tool mix.

Everything here is a pure function of traces and tasks, and every interval takes the task (or the
group that tasks share) as its unit. Rates and shares are fractions; None means that there is
nothing to measure, never zero.

    arm.py         ArmSummary    what one candidate did            summarize(traces, tasks)
    comparison.py  Comparison    two arms on the same tasks        compare(before, after, tasks)
    rerun.py       Rerun         the original, tried again         rerun(before, after)
                   Majority      the original, put to the vote     majority(before, after)
    verdict.py                   a comparison in one sentence      sentence(comparison)
    step.py        StepRecord    one training step                 step_record(step, groups, tasks)
    tool_mix.py    ToolMixShift  did the use of tools move         tool_mix_shift(before, after, tasks)
"""

from __future__ import annotations

from learnloop.stats import Estimate
from learnloop.summary.arm import ArmSummary, CostSummary, summarize
from learnloop.summary.comparison import Comparison, Contrast, CostChange, Measure, compare
from learnloop.summary.rerun import Majority, Rerun
from learnloop.summary.row import COSTS, CostName
from learnloop.summary.step import StepRecord, learnable_share, step_record, teaches
from learnloop.summary.tool_mix import ToolMixShift, tool_mix_shift
from learnloop.summary.verdict import p_words, points, sentence

__all__ = [
    "COSTS",
    "ArmSummary",
    "Comparison",
    "Contrast",
    "CostChange",
    "CostName",
    "CostSummary",
    "Estimate",
    "Majority",
    "Measure",
    "Rerun",
    "StepRecord",
    "ToolMixShift",
    "compare",
    "learnable_share",
    "p_words",
    "points",
    "sentence",
    "step_record",
    "summarize",
    "teaches",
    "tool_mix_shift",
]
