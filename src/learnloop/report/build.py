"""Builds the report from what a run knows; pure, and works at any moment of the run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, Literal, cast

from learnloop.config import PricesConfig, public_url
from learnloop.report.cases import cases
from learnloop.report.document import (
    SCHEMA_VERSION,
    CountRow,
    EvaluationPoint,
    FormatSplit,
    KindReport,
    Report,
    RivalRow,
    SplitReport,
    Training,
    Verdict,
)
from learnloop.report.inputs import ArmName, Evaluation, ReportInputs
from learnloop.report.measures import format_rows, kind_rows, measure_rows
from learnloop.report.words import caveats, method, missing, rival_words, verdict_sentence
from learnloop.stats import Estimate
from learnloop.summary import (
    ArmSummary,
    Comparison,
    compare,
    sentence,
    summarize,
    tool_mix_shift,
)
from learnloop.task import Split, Task
from learnloop.trace import Trace

MASK = "(masked)"
_ADDRESSES = {"server_url", "url", "ready_url"}
_NAMES: Mapping[ArmName, str] = {
    "baseline": "untrained",
    "warm": "after warm-up",
    "final": "trained",
}


def build(inputs: ReportInputs) -> Report:
    """Return the report of everything that exists so far."""
    splits = _splits(inputs)
    return Report(
        schema_version=SCHEMA_VERSION,
        run_id=inputs.run_id,
        project=inputs.project,
        command=inputs.command,
        created=inputs.created,
        finished=inputs.finished,
        stage="" if inputs.finished else inputs.stage,
        label=inputs.label,
        verdict=_verdict(inputs, splits),
        splits=splits,
        probe_before=inputs.probe_before,
        probe_after=inputs.probe_after,
        training=_training(inputs),
        noise=inputs.noise,
        detectable=inputs.detectable,
        gate=inputs.gate,
        seals=inputs.seals,
        sign_offs=inputs.sign_offs,
        method=method(inputs, splits),
        meta=dict(inputs.meta),
        config=masked(inputs.config),
        missing=missing(inputs),
    )


def report_to_json(report: Report) -> str:
    """Return the report as JSON text; a number that is not finite becomes null, never a zero."""
    plain = _plain(asdict(report))
    return json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without secrets and without folders of this machine.

    Header values are masked, names of variables are not; of addresses, user and query values are;
    a model in a local folder is named without the folders above it.
    """
    return {key: _masked_value(key, value) for key, value in config.items()}


def _masked_value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        inner = cast(Mapping[str, Any], value)
        if key == "headers":
            return {name: v if _is_reference(v) else MASK for name, v in inner.items()}
        return masked(inner)
    if isinstance(value, list | tuple):
        return [_masked_value(key, item) for item in cast(Sequence[Any], value)]
    return _shown(key, value) if isinstance(value, str) else value


def _shown(key: str, text: str) -> str:
    if key in _ADDRESSES:
        return public_url(text)
    return PurePath(text).name if key == "ref" and PurePath(text).is_absolute() else text


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("${") and value.endswith("}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in cast(Mapping[Any, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in cast(Sequence[Any], value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _splits(inputs: ReportInputs) -> tuple[SplitReport, ...]:
    found = (
        _split("test", inputs.test, inputs),
        _split("confirm", inputs.confirm, inputs),
    )
    return tuple(split for split in found if split is not None)


def _split(
    name: Literal["confirm", "test"],
    arms: Mapping[ArmName, tuple[Trace, ...]],
    inputs: ReportInputs,
) -> SplitReport | None:
    first: ArmName = "warm" if arms.get("warm") else "baseline"
    before, after = arms.get(first, ()), arms.get("final", ())
    if not before or not after:
        return None
    untrained = arms.get("baseline", ()) if first == "warm" else ()
    prices = _prices(inputs.config)
    found = compare(before, after, inputs.tasks, prices=prices)
    beside = summarize(untrained, inputs.tasks, prices=prices) if untrained else None
    warmup = compare(untrained, before, inputs.tasks).correct if untrained else None
    return SplitReport(
        split=name,
        before=_NAMES[first],
        after=_NAMES["final"],
        beside=_NAMES["baseline"] if beside else "",
        tasks=found.tasks,
        units=found.units,
        attempts=max(found.before.attempts, found.after.attempts),
        coverage=found.coverage,
        sentence=sentence(found),
        p=found.correct.p if found.correct else None,
        measures=measure_rows(found, beside),
        counts=_counts(found, beside, first, arms),
        kinds=_kinds(found, beside),
        format=_format(found, beside),
        warmup_gain=warmup.difference if warmup else None,
        tool_mix=tool_mix_shift(before, after, inputs.tasks),
        rerun=found.rerun,
        majority=found.majority,
        rivals=(*_bought(found), *_rivals(name, after, inputs)),
        cases=cases(inputs.tasks, before, after, reference=_reference(inputs.config)),
    )


def _bought(found: Comparison) -> Iterator[RivalRow]:
    """Yield what tries of the original alone would buy for the result's budget."""
    if rerun := found.rerun:
        name = f"best of {rerun.k} reruns of the original"
        yield RivalRow(name=name, accuracy=rerun.best, beyond=rerun.beyond, words=rerun.words)
    if vote := found.majority:
        name = f"vote of {vote.k} runs of the original"
        yield RivalRow(name=name, accuracy=vote.reached, beyond=vote.beyond, words=vote.words)


def _rivals(split: Split, after: Sequence[Trace], inputs: ReportInputs) -> Iterator[RivalRow]:
    """Yield the result held against other runs on the tasks of this split."""
    for name, splits in inputs.rivals.items():
        if split not in splits:
            continue
        found = compare(splits[split], after, inputs.tasks)
        accuracy, gain = found.before.correct, found.correct
        beyond = gain.difference if gain else None
        words = f"against run {name} the result {rival_words(found)}"
        yield RivalRow(name=f"run {name}", accuracy=accuracy, beyond=beyond, words=words)


def _prices(config: Mapping[str, Any]) -> PricesConfig:
    known: Mapping[str, float] = config.get("prices") or {}
    return PricesConfig(**known)


def _reference(config: Mapping[str, Any]) -> str:
    grader: Mapping[str, Any] = config.get("grader") or {}
    return str(grader.get("reference", "answer"))


def _counts(
    found: Comparison,
    beside: ArmSummary | None,
    before: ArmName,
    traces: Mapping[ArmName, tuple[Trace, ...]],
) -> tuple[CountRow, ...]:
    arms: list[tuple[ArmName, ArmSummary]] = [(before, found.before), ("final", found.after)]
    if beside:
        arms.insert(0, ("baseline", beside))
    return tuple(
        CountRow(
            arm=_NAMES[name],
            **_guarded(traces[name]),
            planned=arm.planned,
            graded=arm.graded,
            lost=arm.planned - arm.graded,
            lost_by_kind=dict(arm.lost),
            agent_faults=arm.agent_faults,
        )
        for name, arm in arms
    )


def _guarded(traces: Sequence[Trace]) -> dict[str, Any]:
    """Return what guards found in an arm, and its accuracy as if they had not been there."""
    scores = [t.score for t in traces if t.score is not None]
    plain = [s.parts.get("unguarded_correct", s.correct) for s in scores]
    return {
        "flagged": sum(bool(s.flags) for s in scores),
        "blocked": sum("unguarded" in s.parts for s in scores),
        "unguarded": math.fsum(plain) / len(plain) if plain else None,
    }


def _kinds(found: Comparison, beside: ArmSummary | None) -> tuple[KindReport, ...]:
    return tuple(
        KindReport(
            kind=kind or "(no kind)",
            tasks=part.tasks,
            change=part.correct.difference if part.correct else None,
            p_holm=part.correct.p_holm if part.correct else None,
            measures=kind_rows(part, beside.kinds.get(kind) if beside else None),
        )
        for kind, part in found.kinds.items()
    )


def _format(found: Comparison, beside: ArmSummary | None) -> FormatSplit:
    return FormatSplit(
        gain=found.correct.difference.value if found.correct else None,
        by_format=found.gain_by_format,
        by_answers=found.gain_by_answers,
        measures=format_rows(found, beside),
    )


def _training(inputs: ReportInputs) -> Training:
    return Training(
        planned=inputs.steps_planned,
        steps=inputs.steps,
        evaluations=tuple(_point(e, inputs.tasks) for e in inputs.evaluations),
        checkpoints=inputs.checkpoints,
    )


def _point(evaluation: Evaluation, tasks: Mapping[str, Task]) -> EvaluationPoint:
    arm = summarize(evaluation.traces, tasks)
    calls: Estimate | None = arm.costs["calls"].mean if arm.costs else None
    return EvaluationPoint(
        step=evaluation.step,
        tasks=arm.tasks,
        correct=arm.correct,
        score=arm.score,
        calls=calls,
        calls_per_tool=dict(arm.calls_per_tool),
        lost=arm.planned - arm.graded,
    )


def _verdict(inputs: ReportInputs, splits: Sequence[SplitReport]) -> Verdict:
    if not splits:
        words = "No verdict yet: the trained agent has not been measured on held-out tasks."
        return Verdict(state="pending", sentence=words, split="", caveats=())
    head = splits[0]
    state, words = verdict_sentence(head)
    return Verdict(state=state, sentence=words, split=head.split, caveats=caveats(inputs, head))
