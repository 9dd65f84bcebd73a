"""The history of a run: what its events and rollouts in the store say, read back as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from learnloop.budget import Spend
from learnloop.gate import CheaperLook, Flips, GateResult, Look, Noise, Tally
from learnloop.probe import ProbeResult, probe
from learnloop.report import ArmName, CheckpointRow, Evaluation
from learnloop.store import EventRecord, Store
from learnloop.summary import StepRecord, summarize
from learnloop.task import Split, Task
from learnloop.trace import Trace

CLOCK = "spent_s"
"""In every event: seconds that the run had taken by then, over all its resumptions."""

CUT_SHORT = ("repeated", "abandoned")
"""Events that name rollouts which were under way when a process ended."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What one run has stored so far."""

    store: Store
    run_id: str

    def event(self, kind: str, step: int | None = None) -> EventRecord | None:
        """Return the last event of a kind, of one step where it is given."""
        found = self.store.events(self.run_id, kind)
        return next((e for e in reversed(found) if step in (None, e.data.get("step"))), None)

    def done(self, kind: str, step: int | None = None) -> bool:
        """Return whether a stage has ended: its event is stored after everything else of it."""
        return self.event(kind, step) is not None

    @property
    def spent_s(self) -> float:
        """Return the seconds that the run has taken so far, those while it lay still not counted."""
        return max((float(e.data.get(CLOCK, 0)) for e in self.store.events(self.run_id)), default=0)

    def spend(self, *, with_tokens: bool) -> Spend:
        """Return what the run's rollouts took so far; tokens on request, they take long to count.

        Rollouts that were made anew count each time: those replaced after a fault in full, those
        that were under way when the run was cut short by their number only.
        """
        if with_tokens:
            stored = sum((Spend.of(trace) for trace in self.store.traces(self.run_id)), Spend())
        else:
            totals = self.store.totals(self.run_id)
            stored = Spend(
                rollouts=sum(t.rollouts for t in totals), calls=sum(t.calls for t in totals)
            )
        told = [e for kind in CUT_SHORT for e in self.store.events(self.run_id, kind)]
        cut = sum(len(e.data["rollouts"]) for e in told)
        return stored + self.store.replaced(self.run_id) + Spend(rollouts=cut, unknown=cut)

    @property
    def stage(self) -> str:
        """Return what the run did last, in words."""
        found = self.event("stage_started")
        return str(found.data["stage"]) if found else "starting"

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """Return the records of the training steps that are done."""
        events = self.store.events(self.run_id, "step")
        return tuple(StepRecord(**{k: v for k, v in e.data.items() if k != CLOCK}) for e in events)

    @property
    def chosen(self) -> str:
        """Return the name of the chosen checkpoint; empty before the choice."""
        found = self.event("checkpoint")
        return str(found.data["weights"]) if found else ""

    @property
    def arms(self) -> Mapping[ArmName, str]:
        """Return candidate ids of the arms that are compared; empty before the choice."""
        found = self.event("checkpoint")
        return cast("Mapping[ArmName, str]", found.data["arms"]) if found else {}

    @property
    def has_warmup(self) -> bool:
        """Return whether the run was warmed up on demonstrations."""
        found = self.event("warmup")
        return found is not None and int(found.data["demonstrations"]) > 0

    @property
    def noise(self) -> Noise | None:
        """Return what the A/A run showed; None before it, or where there was none."""
        found = self.event("noise")
        known = {field.name for field in fields(Noise)}
        return found and Noise(**{k: v for k, v in found.data.items() if k in known})

    @property
    def gate(self) -> GateResult | None:
        """Return the gate's result; None before it ran."""
        return self.gates[-1] if self.gates else None

    @property
    def gates(self) -> tuple[GateResult, ...]:
        """Return the results of all the run's tests so far, the first one first."""
        return tuple(_gate(e.data) for e in self.store.events(self.run_id, "gate"))

    @property
    def verdict(self) -> GateResult | None:
        """Return the gate's word before the check of protected tasks; None where it has not spoken yet."""
        found = self.event("verdict")
        return found and _gate({k: v for k, v in found.data.items() if k != "tries"})

    def evaluations(self, known: Sequence[Evaluation] = ()) -> tuple[Evaluation, ...]:
        """Return the finished looks at screen; step 0 is before training.

        A look before the warm-up (step -1) is not among them. Those that are `known` already are
        not read again.
        """
        have = {evaluation.step: evaluation for evaluation in known}
        events = self.store.events(self.run_id, "evaluation")
        steps = {int(e.data["step"]) for e in events if e.data["step"] >= 0}
        return tuple(
            have.get(step) or Evaluation(step=step, traces=self.traces("screen", step))
            for step in sorted(steps)
        )

    def probe(self, stage: str, tasks: Mapping[str, Task], attempts: int) -> ProbeResult | None:
        """Return a finished variance probe, of `probe` or `probe_after`."""
        told = self.event(stage)
        if told is None:
            return None
        traces = self.traces(stage)
        known = {t.task_id: tasks[t.task_id] for t in traces}
        return probe(traces, known, attempts=attempts, regraded=told.data.get("regraded"))

    def compared(self, split: Split) -> dict[ArmName, tuple[Trace, ...]]:
        """Return the rollouts of the compared arms on a held-out split.

        Tasks count that every arm has tried: those that the gate used, on confirm.
        """
        traces = self.traces(split)
        tried = [{t.task_id for t in traces if t.candidate_id == c} for c in self.arms.values()]
        common = set[str].intersection(*tried) if tried else set[str]()
        return {
            arm: tuple(t for t in traces if t.candidate_id == c and t.task_id in common)
            for arm, c in self.arms.items()
            if common
        }

    def traces(self, stage: str, step: int = 0) -> tuple[Trace, ...]:
        """Return the rollouts of a stage."""
        return tuple(self.store.traces(self.run_id, stage, step))


def checkpoint_rows(
    looks: Sequence[Evaluation], tasks: Mapping[str, Task]
) -> tuple[CheckpointRow, ...]:
    """Return every checkpoint that was looked at; the best is marked.

    The best has the highest accuracy on screen; among equals the one with fewer calls, then the
    later one.
    """
    rows = [_checkpoint(look, tasks) for look in looks if look.step > 0]
    best = max(rows, key=lambda r: (r.correct or 0, -(r.calls or 0), r.step), default=None)
    return tuple(_judged(row, best) for row in rows if best)


def _checkpoint(look: Evaluation, tasks: Mapping[str, Task]) -> CheckpointRow:
    found = summarize(look.traces, {t.task_id: tasks[t.task_id] for t in look.traces})
    return CheckpointRow(
        step=look.step,
        tasks=found.tasks,
        correct=found.correct.value if found.correct else None,
        calls=found.costs["calls"].mean.value if found.costs else None,
    )


def _judged(row: CheckpointRow, best: CheckpointRow) -> CheckpointRow:
    """Say why a checkpoint was chosen or not."""
    if row is best:
        return replace(row, chosen=True, reason="best accuracy on screen")
    if row.correct == best.correct:
        reason = f"as accurate as step {best.step}, which makes fewer calls or is later"
    else:
        reason = f"less accurate on screen than step {best.step}"
    return replace(row, reason=reason)


_NOT_OF_THE_GATE = {CLOCK, "weights"}


def _gate(data: Mapping[str, Any]) -> GateResult:
    values = {k: v for k, v in data.items() if k not in _NOT_OF_THE_GATE}
    values["looks"] = tuple(_look(look) for look in data["looks"])
    values["saving"] = tuple(CheaperLook(**look) for look in data.get("saving", ()))
    return GateResult(**values)


def _look(data: Mapping[str, Any]) -> Look:
    values: dict[str, Any] = dict(data)
    values |= {name: _tally(data[name]) for name in ("clean", "with_faults")}
    return Look(**values)


def _tally(data: Mapping[str, Any]) -> Tally:
    values: dict[str, Any] = dict(data)
    if values.get("flips"):
        values["flips"] = Flips(**values["flips"])
    return Tally(**values)
