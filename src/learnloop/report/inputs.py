"""What a report is made from: everything a run knows so far; parts that do not exist yet are absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from learnloop.gate import Detectable, GateResult, Noise
from learnloop.probe import ProbeResult
from learnloop.summary import StepRecord
from learnloop.task import Split, Task
from learnloop.trace import Trace

ArmName = Literal["baseline", "warm", "final"]
Label = Literal["lift", "replayed", "mechanism"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Rollouts on held-out screen tasks after a step; step 0 is before training."""

    step: int
    traces: tuple[Trace, ...]


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """One checkpoint that could have been chosen: its mean correctness, and why or why not."""

    step: int
    correct: float | None
    calls: float | None = None
    tasks: int = 0
    chosen: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """One opening of the sealed test: which run did it, and when (ISO 8601)."""

    run_id: str
    opened: str


@dataclass(frozen=True, kw_only=True)
class SignOff:
    """Somebody who accepted the run: the name as it was given, when (ISO 8601), and what was said."""

    name: str
    signed: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportInputs:
    """Everything a report reads.

    Attributes:
        run_id: the run; `project` its project's name.
        command: the command line that repeats it, without machine paths.
        created: when this report is written (ISO 8601).
        config: the resolved configuration as plain values; header values are masked on the way out.
        tasks: every task of the dataset by id.
        probe_before: variance probe before training; `probe_after` the same after it.
        confirm: rollouts on confirm by arm; `test` on the sealed test, empty while it is sealed.
            Arms are `baseline`, `warm` (after a supervised warm-up, if any) and `final`.
        steps: training steps done; `steps_planned` how many there will be.
        evaluations: looks at screen during training.
        noise: what the A/A run showed; None before it, or where there was none.
        detectable: what the gate can show under that noise.
        gate: the gate's result; None before it ran.
        checkpoints: the table by which a checkpoint was chosen.
        seals: every opening of this test set so far, this run's included.
        sign_offs: who accepted the run so far, the first one first.
        rivals: runs to hold the result against besides: by name, their rollouts by split.
        meta: versions, hashes, seeds, host facts, as words; no names and no paths.
        label: what kind of evidence this is.
        finished: whether anything will still be added.
        stage: what the run is doing now.
    """

    run_id: str
    project: str
    command: str
    created: str
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tasks: Mapping[str, Task] = field(default_factory=dict[str, Task])
    probe_before: ProbeResult | None = None
    probe_after: ProbeResult | None = None
    confirm: Mapping[ArmName, tuple[Trace, ...]] = field(
        default_factory=dict[ArmName, tuple[Trace, ...]]
    )
    test: Mapping[ArmName, tuple[Trace, ...]] = field(
        default_factory=dict[ArmName, tuple[Trace, ...]]
    )
    steps: tuple[StepRecord, ...] = ()
    steps_planned: int = 0
    evaluations: tuple[Evaluation, ...] = ()
    noise: Noise | None = None
    detectable: Detectable | None = None
    gate: GateResult | None = None
    checkpoints: tuple[CheckpointRow, ...] = ()
    seals: tuple[Seal, ...] = ()
    sign_offs: tuple[SignOff, ...] = ()
    rivals: Mapping[str, Mapping[Split, tuple[Trace, ...]]] = field(
        default_factory=dict[str, Mapping[Split, tuple[Trace, ...]]]
    )
    meta: Mapping[str, str] = field(default_factory=dict[str, str])
    label: Label = "lift"
    finished: bool = False
    stage: str = ""
