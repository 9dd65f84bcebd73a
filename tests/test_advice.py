"""Advice: repairs before optimisers, the simplest thing first, and every step with its numbers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.test_summary import graded, lost

from learnloop.advice import Evidence, Measured, Probed, advise
from learnloop.message import Message, ToolSchema
from learnloop.probe import probe
from learnloop.summary import summarize
from learnloop.task import Task
from learnloop.trace import Trace

OPENING = (Message(role="user", content="?"),)
TASKS = {
    f"t{n}": Task(id=f"t{n}", split="train", group=f"g{n}", messages=OPENING, tools=())
    for n in range(20)
}

TOOLS = (ToolSchema(name="search", description="", parameters_json="{}"),)


def probed(passes: int, of: int = 3, *, regraded: float | None = None) -> Probed:
    """Return a probe in which every task passes so often."""
    traces = [graded(t, float(n < passes), attempt=n) for t in TASKS for n in range(of)]
    again = {} if regraded is None else {t.id: regraded for t in traces if t.attempt == 0}
    return Probed(run="run-p", probe=probe(traces, TASKS, attempts=of, regraded=again))


def measured(
    *, valid: float = 1.0, right: float = 0.5, bad: bool = False, gone: int = 0
) -> Measured:
    traces: list[Trace] = []
    for n, task in enumerate(TASKS):
        if n < gone:
            traces.append(lost(task))
            continue
        readable = n < valid * len(TASKS)
        traces.append(
            graded(
                task,
                float(readable and n < right * len(TASKS)),
                parts={"valid": float(readable)},
                asked=("no-such-tool",) if bad else (),
            )
        )
    tasks = {t: replace(task, tools=TOOLS) for t, task in TASKS.items()} if bad else TASKS
    return Measured(run="run-m", split="screen", arm=summarize(traces, tasks))


GOOD = Evidence(
    errors=(),
    measured=measured(),
    probed=probed(1),
    tools=("search",),
    confirm_tasks=300,
    trainable=True,
    alpha=0.0125,
    pairs=400,
)


def codes(known: Evidence) -> list[str]:
    return [step.code for step in advise(known)]


@pytest.mark.parametrize(
    ("known", "first"),
    [
        (GOOD, "rft"),
        (replace(GOOD, trainable=False), "skill"),
        (replace(GOOD, probed=probed(3)), "solved"),
        (replace(GOOD, probed=probed(0)), "nothing_passes"),
        (replace(GOOD, errors=("learnloop.toml:3: typo", "more")), "check_fails"),
        (replace(GOOD, probed=None), "no_probe"),
        (replace(GOOD, measured=None), "no_measurement"),
        (replace(GOOD, measured=measured(gone=3)), "flaky_endpoint"),
        (replace(GOOD, probed=probed(1, regraded=0.0)), "grader_unstable"),
        (replace(GOOD, measured=measured(valid=0.3)), "say_the_form"),
        (replace(GOOD, measured=measured(bad=True)), "tool_descriptions"),
    ],
)
def test_the_first_step_fits_what_is_known(known: Evidence, first: str) -> None:
    assert codes(known)[0] == first


def test_what_hardly_varies_is_for_the_proposer() -> None:
    traces = [graded(t, float(i == 0), attempt=n) for i, t in enumerate(TASKS) for n in range(3)]
    known = replace(GOOD, probed=Probed(run="p", probe=probe(traces, TASKS, attempts=3)))
    step = advise(known)[0]
    assert step.code == "proposer"
    assert "not in this version" in step.do


def test_a_prompt_line_is_advised_where_readable_answers_are_right() -> None:
    step = advise(replace(GOOD, measured=measured(valid=0.3, right=1.0)))[0]
    assert step.words.endswith("100% of those were right: a line in the prompt may do")
    step = advise(replace(GOOD, measured=measured(valid=0.3, right=0.0)))[0]
    assert "a line in the prompt" not in step.words


def test_notes_name_unused_tools_and_what_the_gate_can_see() -> None:
    steps = {s.code: s for s in advise(replace(GOOD, tools=("search", "cat"), confirm_tasks=40))}
    assert steps["unused_tools"].words.endswith(": cat")
    numbers = {n.name: n.value for n in steps["power"].numbers}
    # Every task passes once in three: two attempts differ in 2 * 1 * 2 / (3 * 2) of cases.
    assert numbers["discordant_share"] == pytest.approx(2 / 3)
    assert numbers["pairs_needed"] > 400
    assert "confirm has 40 tasks" in steps["power"].words
    assert "unused_tools" not in codes(GOOD)


@settings(derandomize=True, deadline=None, max_examples=50)  # a busy machine is slow
@given(st.integers(0, 10_000))
def test_whatever_is_known_a_repair_comes_first_and_steps_name_their_numbers(seed: int) -> None:
    rng = random.Random(seed)
    known = replace(
        GOOD,
        errors=rng.choice(((), ("broken",))),
        measured=rng.choice((None, measured(), measured(valid=0.2), measured(gone=5))),
        probed=rng.choice((None, probed(0), probed(1), probed(3), probed(2, regraded=0.0))),
        trainable=rng.random() < 0.5,
        pairs=rng.choice((0, 40, 400)),
    )
    steps = advise(known)
    kinds = [step.kind for step in steps]
    assert kinds
    assert kinds == sorted(kinds, key=("repair", "measure", "optimise", "note").index)
    assert not ({"repair", "measure"} & {*kinds} and "optimise" in kinds)
    for step in steps:
        assert step.words
        assert step.do
        assert step.numbers or step.kind == "measure"
        assert {n.source for n in step.numbers} <= {"check", "run-m", "run-p"}
    if known.probed and known.probed.probe.buckets["mixed"] == 0:
        assert "rft" not in codes(known)
