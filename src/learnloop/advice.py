"""Advice: what to repair first, or which optimiser fits, from what was measured. Pure rules.

Repairs come before optimisers: a gain in a number that is broken is no gain. The simplest harness comes
first: where a line in the prompt would do, no training is advised. Every step names its numbers and the
run that each is from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from learnloop.gate.power import minimum_detectable_effect, pairs_needed
from learnloop.probe import ProbeResult, discordant_share
from learnloop.summary import ArmSummary

Kind = Literal["repair", "measure", "optimise", "note"]

MOST_LOST = 0.1
"""Share of rollouts lost to faults above which the endpoints come first."""
MOST_UNSTABLE = 0.1
"""Share of probed tasks that a second grading scores otherwise."""
LEAST_READABLE = 0.5
"""Share of answers that the grader must be able to read before anything else is looked at."""
MOST_BAD_CALLS = 0.2
"""Share of rollouts with a malformed call or a call to an unknown tool."""
LEAST_MIXED = 0.1
"""Share of probed tasks that pass now and then, from which rewards can teach."""
FEW_TASKS = 200
"""Tasks of confirm below which a verdict hardly carries over to others."""
WANTED = 0.05
"""The gain that a gate should be able to see."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number that advice rests on; `source` is a run's id, or `check`."""

    name: str
    value: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to do: why in words, the command or act, and the numbers it rests on."""

    kind: Kind
    code: str
    words: str
    do: str
    numbers: tuple[Number, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The last measurement of the agent: run, split and summary."""

    run: str
    split: str
    arm: ArmSummary


@dataclass(frozen=True, kw_only=True)
class Probed:
    """The last variance probe, and its run."""

    run: str
    probe: ProbeResult


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a project.

    Attributes:
        errors: what `check` calls errors, a line each.
        measured: the last measurement; None when there is none.
        probed: the last probe; None when there is none.
        tools: names of the tools that tasks offer.
        confirm_tasks: tasks of the split that the gate uses.
        trainable: whether the weights can be trained here.
        alpha: error of one test of the gate.
        pairs: most pairs of one test.
    """

    errors: tuple[str, ...]
    measured: Measured | None
    probed: Probed | None
    tools: tuple[str, ...]
    confirm_tasks: int
    trainable: bool
    alpha: float
    pairs: int


def advise(known: Evidence) -> tuple[Step, ...]:
    """Return what to do, the first thing first; there is always at least one step."""
    repairs = [*_errors(known), *_faults(known), *_grader(known), *_form(known), *_calls(known)]
    steps = [*repairs, *_missing(known)]
    if not steps:
        steps = [_optimiser(known)]
    return (*steps, *_unused(known), *_size(known))


def _errors(known: Evidence) -> Iterator[Step]:
    for first, *others in (known.errors,) if known.errors else ():
        more = f" and {len(others)} more" if others else ""
        yield Step(
            kind="repair",
            code="check_fails",
            words=f"the project does not fit together: {first}{more}",
            do="learnloop check",
            numbers=(Number(name="errors", value=len(known.errors), source="check"),),
        )


def _missing(known: Evidence) -> Iterator[Step]:
    if known.probed is None:
        yield Step(
            kind="measure",
            code="no_probe",
            words="where the agent can learn is not known yet",
            do="learnloop probe",
        )
    if known.measured is None:
        yield Step(
            kind="measure",
            code="no_measurement",
            words="what the agent reaches is not known yet",
            do="learnloop eval",
        )


def _faults(known: Evidence) -> Iterator[Step]:
    """Rollouts that are lost say nothing, and they are not lost at random."""
    found: list[tuple[str, int, int, str]] = []
    if known.measured:
        arm = known.measured.arm
        kinds = ", ".join(arm.lost)
        found.append((known.measured.run, arm.planned - arm.graded, arm.planned, kinds))
    if known.probed:
        probe = known.probed.probe
        kinds = ", ".join(probe.lost)
        found.append((known.probed.run, probe.planned - probe.graded, probe.planned, kinds))
    for run, lost, planned, kinds in found:
        if lost > MOST_LOST * planned:
            yield Step(
                kind="repair",
                code="flaky_endpoint",
                words=f"{lost} of {planned} rollouts were lost to faults ({kinds})",
                do=f"learnloop show {run}",
                numbers=(Number(name="lost", value=lost / planned, source=run),),
            )
            return


def _grader(known: Evidence) -> Iterator[Step]:
    if known.probed is None or not known.probed.probe.tasks:
        return
    probe, run = known.probed.probe, known.probed.run
    unstable, total = probe.buckets["grader_unstable"], len(probe.tasks)
    if probe.buckets["never_passed"] == total and probe.advice.code == "grader_too_harsh":
        yield Step(
            kind="repair",
            code="nothing_passes",
            words=f"none of {total} probed tasks ever passed, though the answers could be read",
            do="try the grader on known good answers, then take easier tasks",
            numbers=(Number(name="never_passed", value=1.0, source=run),),
        )
    if unstable > MOST_UNSTABLE * total:
        yield Step(
            kind="repair",
            code="grader_unstable",
            words=f"the grader scored {unstable} of {total} tasks otherwise when asked again",
            do="make the grader answer alike for the same rollout",
            numbers=(Number(name="grader_unstable", value=unstable / total, source=run),),
        )


def _form(known: Evidence) -> Iterator[Step]:
    """Answers that cannot be read are a matter of the prompt, where those that can are often right."""
    if known.measured is None or known.measured.arm.valid is None:
        return
    arm, run = known.measured.arm, known.measured.run
    readable, right = arm.valid, arm.correct_given_valid
    if readable is None or readable.value >= LEAST_READABLE:
        return
    numbers = [Number(name="readable", value=readable.value, source=run)]
    words = f"the grader could read {readable.value:.0%} of the answers"
    if right is not None and right.value > 0:
        numbers.append(Number(name="correct_given_readable", value=right.value, source=run))
        words += f", and {right.value:.0%} of those were right: a line in the prompt may do"
    yield Step(
        kind="repair",
        code="say_the_form",
        words=words,
        do="say in the system prompt how an answer must look, or warm up on demonstrations",
        numbers=tuple(numbers),
    )


def _calls(known: Evidence) -> Iterator[Step]:
    if known.measured is None or known.measured.arm.bad_calls is None:
        return
    bad, run = known.measured.arm.bad_calls.value, known.measured.run
    if bad > MOST_BAD_CALLS:
        yield Step(
            kind="repair",
            code="tool_descriptions",
            words=f"{bad:.0%} of the rollouts have a malformed call or one to an unknown tool",
            do="look at names, descriptions and parameters of the tools: learnloop tools list",
            numbers=(Number(name="bad_calls", value=bad, source=run),),
        )


def _optimiser(known: Evidence) -> Step:
    """Choose among the optimisers, when nothing has to be repaired first."""
    assert known.probed is not None, "a missing probe was told before"
    probe, run = known.probed.probe, known.probed.run
    total, mixed = len(probe.tasks), probe.buckets["mixed"]
    share = mixed / total if total else 0.0
    numbers = (
        Number(name="mixed", value=share, source=run),
        Number(name="never_passed", value=_part(probe, "never_passed"), source=run),
        Number(name="always_passed", value=_part(probe, "always_passed"), source=run),
    )
    if total and probe.buckets["always_passed"] == total:
        words = f"all {total} probed tasks pass always: only cost is left to improve"
        do = "take harder tasks, or reward fewer calls with grader.cost_weight"
        return Step(kind="note", code="solved", words=words, do=do, numbers=numbers)
    if share >= LEAST_MIXED and known.trainable:
        words = f"{mixed} of {total} probed tasks pass now and then, and the weights can be trained"
        return Step(kind="optimise", code="rft", words=words, do="learnloop train", numbers=numbers)
    if share >= LEAST_MIXED:
        words = f"{mixed} of {total} probed tasks pass now and then, and the model is frozen: skill"
        do = "edit the prompt by hand: the optimiser `skill` is not in this version"
        return Step(kind="optimise", code="skill", words=words, do=do, numbers=numbers)
    words = (
        f"only {mixed} of {total} probed tasks vary: harness, tools or prompt hold the agent back, "
        "which is for `proposer`"
    )
    do = (
        "the optimiser `proposer` is not in this version: look at failed rollouts "
        f"(learnloop show {run}), take easier tasks, or warm up on demonstrations"
    )
    return Step(kind="optimise", code="proposer", words=words, do=do, numbers=numbers)


def _part(probe: ProbeResult, bucket: Literal["never_passed", "always_passed"]) -> float:
    return probe.buckets[bucket] / len(probe.tasks) if probe.tasks else 0.0


def _unused(known: Evidence) -> Iterator[Step]:
    if known.measured is None:
        return
    used = known.measured.arm.calls_per_tool
    if unused := [tool for tool in known.tools if tool not in used]:
        yield Step(
            kind="note",
            code="unused_tools",
            words=f"never called in {known.measured.arm.graded} rollouts: {', '.join(unused)}",
            do="describe when to use them, or leave them out",
            numbers=(Number(name="unused", value=len(unused), source=known.measured.run),),
        )


def _size(known: Evidence) -> Iterator[Step]:
    """Say what the gate can see with this noise and so many tasks."""
    share = discordant_share(known.probed.probe.tasks) if known.probed else None
    if known.probed is None or not share or known.pairs < 1:
        return
    seen = minimum_detectable_effect(known.alpha, share, known.pairs)
    needed = pairs_needed(known.alpha, share, WANTED)
    words = (
        f"two runs of the agent differ in about {share:.0%} of tasks: with {known.pairs} pairs the gate sees "
        f"gains from {100 * seen:.0f} points in four of five cases; {100 * WANTED:.0f} points need {needed} pairs"
    )
    if known.confirm_tasks < FEW_TASKS:
        words += f"; confirm has {known.confirm_tasks} tasks, and {FEW_TASKS} carry over better"
    yield Step(
        kind="note",
        code="power",
        words=words,
        do="add held-out tasks, or expect to see large gains only",
        numbers=(
            Number(name="discordant_share", value=share, source=known.probed.run),
            Number(name="detectable_effect", value=seen, source=known.probed.run),
            Number(name="pairs_needed", value=needed, source=known.probed.run),
        ),
    )
