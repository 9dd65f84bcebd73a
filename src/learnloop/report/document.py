"""The report: one frozen tree of plain values, from which page, Markdown and JSON are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from learnloop.gate import Detectable, GateResult, Noise
from learnloop.probe import ProbeResult
from learnloop.report.cases import Cases
from learnloop.report.inputs import CheckpointRow, Label, Seal, SignOff
from learnloop.report.measures import MeasureRow
from learnloop.stats import Estimate
from learnloop.summary import Majority, Rerun, StepRecord, ToolMixShift

SCHEMA_VERSION = 1

Section = Literal[
    "headline", "probe_before", "probe_after", "tools", "mix", "reward", "cases", "test", "gate"
]
State = Literal["better", "worse", "undecided", "refused", "pending"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The report in one sentence, with what a reader must know beside it."""

    state: State
    sentence: str
    split: Literal["", "confirm", "test"]
    caveats: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CountRow:
    """How many rollouts of an arm were planned, graded and lost, and to what.

    `flagged` counts those in which a guard found something, `blocked` those that were rewarded as hacks;
    `unguarded` is the arm's accuracy as the grader gave it, before guards.
    """

    arm: str
    planned: int
    graded: int
    lost: int
    lost_by_kind: Mapping[str, int]
    agent_faults: int
    flagged: int
    blocked: int
    unguarded: float | None


@dataclass(frozen=True, kw_only=True)
class KindReport:
    """One kind of task: its measures, and its accuracy change with a corrected p value."""

    kind: str
    tasks: int
    change: Estimate | None
    p_holm: float | None
    measures: tuple[MeasureRow, ...]


@dataclass(frozen=True, kw_only=True)
class FormatSplit:
    """The gain in accuracy, parted into readable answers and right ones among them."""

    gain: float | None
    by_format: float | None
    by_answers: float | None
    measures: tuple[MeasureRow, ...]


@dataclass(frozen=True, kw_only=True)
class RivalRow:
    """Another way to the same end, on the same tasks; `beyond` is how far the result lies above it.

    `accuracy` is the rival's own; `words` says in a sentence what the comparison shows.
    """

    name: str
    accuracy: Estimate | None
    beyond: Estimate | None
    words: str


@dataclass(frozen=True, kw_only=True)
class SplitReport:
    """Before and after on one split; `beside` names the untrained arm when there was a warm-up.

    `rerun` and `majority` are the original for the result's budget, None where it was tried too
    rarely; `rivals` holds them as rows, and other runs that were named.
    """

    split: Literal["confirm", "test"]
    before: str
    after: str
    beside: str
    tasks: int
    units: int
    attempts: int
    coverage: float
    sentence: str
    p: float | None
    measures: tuple[MeasureRow, ...]
    counts: tuple[CountRow, ...]
    kinds: tuple[KindReport, ...]
    format: FormatSplit
    warmup_gain: Estimate | None
    tool_mix: ToolMixShift | None
    rerun: Rerun | None
    majority: Majority | None
    rivals: tuple[RivalRow, ...]
    cases: Cases


@dataclass(frozen=True, kw_only=True)
class EvaluationPoint:
    """A look at held-out screen tasks after a step."""

    step: int
    tasks: int
    correct: Estimate | None
    score: Estimate | None
    calls: Estimate | None
    calls_per_tool: Mapping[str, float]
    lost: int


@dataclass(frozen=True, kw_only=True)
class Training:
    """The training stage: steps done, looks at screen, and the choice of a checkpoint."""

    planned: int
    steps: tuple[StepRecord, ...]
    evaluations: tuple[EvaluationPoint, ...]
    checkpoints: tuple[CheckpointRow, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole report; parts that do not exist yet are None or empty, and `missing` says what fills them.

    `splits` holds the sealed test first, if it was opened, then confirm. `method` and `meta` are
    words for readers; `config` is the resolved configuration with header values masked.
    """

    schema_version: int
    run_id: str
    project: str
    command: str
    created: str
    finished: bool
    stage: str
    label: Label
    verdict: Verdict
    splits: tuple[SplitReport, ...]
    probe_before: ProbeResult | None
    probe_after: ProbeResult | None
    training: Training
    noise: Noise | None
    detectable: Detectable | None
    gate: GateResult | None
    seals: tuple[Seal, ...]
    sign_offs: tuple[SignOff, ...]
    method: tuple[tuple[str, str], ...]
    meta: Mapping[str, str]
    config: Mapping[str, Any]
    missing: Mapping[Section, str]
