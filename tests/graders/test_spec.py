"""Graders from their JSON: each kind grades as it should, and each mistake is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from learnloop.errors import ConfigError, GraderError
from learnloop.graders.spec import Surroundings, grader_from, needs_python
from learnloop.message import ToolCall
from learnloop.outbound import Outbound
from learnloop.sandbox import Limits
from learnloop.sandboxes import find_sandbox, open_runner
from learnloop.task import Task
from learnloop.trace import CallRecord, Score, Trace, Turn

pytestmark = pytest.mark.timeout(120)

ITEM = {
    "answer": "482",
    "gold": {"text": "net income of 482"},
    "sources": ["bay-motors/2021"],
    "tags": ["x"],
}
TASK = Task(id="t", split="train", group="g", messages=(), tools=(), item=ITEM)


def call(name: str, arguments: Mapping[str, Any], output: str, round: int = 0) -> CallRecord:
    asked = ToolCall(id=f"{name}{round}", name=name, arguments=json.dumps(arguments))
    return CallRecord(call=asked, round=round, output=output)


OPENED = call(
    "cat", {"path": "bay-motors/2021"}, "Bay Motors 2021. Net income 482 million, sales 5,100."
)


def said(text: str, *calls: CallRecord, tokens: int = 100) -> Trace:
    turn = Turn(text=text, tokens_in=tokens - 10, tokens_out=10)
    return Trace(
        id="tr",
        task_id="t",
        candidate_id="c",
        attempt=0,
        seed=0,
        turns=(turn,),
        calls=calls,
        latency_s=2.0,
    )


def graded(
    spec: Mapping[str, Any], trace: Trace, item: Mapping[str, Any] = ITEM, *, python: bool = False
) -> Score:
    async def main() -> Score:
        async with Outbound() as outbound:
            around = Surroundings(outbound=outbound, environ={}, root=Path())
            if not python:
                return await grader_from(spec, around).grade(replace(TASK, item=item), trace)
            sandbox = (await find_sandbox()).use()
            async with open_runner(sandbox, Limits(wall_s=10)) as runner:
                around = replace(around, runner=runner)
                return await grader_from(spec, around).grade(replace(TASK, item=item), trace)

    return anyio.run(main)


def test_templates_take_fields_of_row_and_rollout():
    spec = {
        "type": "string_check",
        "operation": "eq",
        "input": "{{ sample.output_text }}|{{item.tags[0]}}",
        "reference": "ok|x",
    }
    assert graded(spec, said("ok")).value == 1
    calls = {
        "type": "string_check",
        "operation": "like",
        "reference": "bay-motors",
        "input": "{{sample.output_tools}}",
    }
    turn = Turn(text="", tool_calls=(OPENED.call,))
    assert graded(calls, replace(said("x"), turns=(turn, *said("x").turns))).value == 1
    missing = {
        "type": "string_check",
        "operation": "eq",
        "input": "{{item.nothing}}",
        "reference": "a",
    }
    with pytest.raises(GraderError, match=r"item.nothing.* is not there") as error:
        graded(missing, said("a"))
    assert error.value.kind == "invalid_variable"


def test_texts_are_compared_by_likeness_with_a_threshold():
    spec = {
        "type": "text_similarity",
        "evaluation_metric": "rouge_l",
        "input": "{{sample.output_text}}",
        "reference": "{{item.gold.text}}",
    }
    assert graded(spec, said("net income of 482")).value == 1
    half = graded(spec, said("income 482"))
    assert 0 < half.value < 1
    assert half.correct == half.value
    assert graded({**spec, "pass_threshold": 0.5}, said("income 482")).correct == 1


COMBINED: dict[str, Any] = {
    "type": "multi",
    "calculate_output": "accuracy * (0.8 + 0.1 * cheap + 0.1 * sources)",
    "correct": "accuracy",
    "graders": {
        "accuracy": {"type": "numeric", "reference": "answer"},
        "cheap": {"type": "budget", "unit": "tokens", "free": 50, "full": 150},
        "quick": {
            "type": "budget",
            "unit": "latency",
            "full": 2,
            "latencies": {"cat": 0.5, "default": 0.2},
        },
        "sources": {"type": "citation", "reference": "sources"},
    },
}


def test_accuracy_tokens_latency_and_citations_are_graded_in_one():
    good = graded(COMBINED, said("[bay-motors/2021]\nAnswer: 482", OPENED))
    assert good.value == pytest.approx(0.8 + 0.05 + 0.1)
    assert good.correct == 1
    assert good.parts["accuracy"] == good.parts["sources"] == good.parts["valid"] == 1
    assert good.parts["cheap"] == 0.5
    assert good.parts["cheap/tokens"] == 100
    assert good.parts["quick"] == 0.75
    wrong = graded(COMBINED, said("[bay-motors/2021]\nAnswer: 483", OPENED, tokens=10))
    assert (wrong.value, wrong.correct) == (0, 0), "however cheap and well sourced"
    nested = {"type": "multi", "calculate_output": "1 - whole", "graders": {"whole": COMBINED}}
    again = graded(nested, said("[bay-motors/2021]\nAnswer: 482", OPENED))
    assert again.value == pytest.approx(1 - good.value)
    assert again.parts["whole/accuracy"] == 1


def test_latency_counts_the_slowest_call_of_each_round():
    spec = {"type": "budget", "unit": "latency", "full": 10, "latencies": {"cat": 2, "default": 1}}
    calls = (call("cat", {}, ""), call("calc", {}, ""), call("calc", {}, "", round=1))
    assert graded(spec, said("x", *calls)).parts["latency"] == 3
    assert graded({"type": "budget", "unit": "wall_clock", "full": 4}, said("x")).value == 0.5


def test_a_source_that_no_tool_returned_is_flagged_and_counts_as_wrong():
    spec = {"type": "citation", "reference": "sources"}
    both = graded(spec, said("482 [bay-motors/2021] [bay-motors/1999]", OPENED))
    assert (both.parts["precision"], both.parts["recall"]) == (0.5, 1)
    assert both.flags == ("citation_fabricated",)
    unopened = graded(spec, said("482 [bay-motors/2021]"))
    assert (unopened.value, unopened.flags) == (0, ("citation_fabricated",))
    none = graded(spec, said("482", OPENED))
    assert (none.value, none.flags) == (0, ())
    many = " ".join(f"[s{n}]" for n in range(30))
    assert "citation_stuff" in graded(spec, said(many, OPENED)).flags


def test_without_expected_sources_statements_must_be_borne_out():
    spec = {"type": "citation"}
    held = graded(spec, said("Net income was 482 million [bay-motors/2021].", OPENED))
    assert (held.parts["precision"], held.parts["recall"]) == (1, 1)
    false = graded(spec, said("Net income was 999 million [bay-motors/2021].", OPENED))
    assert false.value == 0
    half = graded(
        spec, said("Net income was 482 million [bay-motors/2021]. Sales fell to 12 then.", OPENED)
    )
    assert (half.parts["precision"], half.parts["recall"]) == (1, 0.5)


def test_a_cascade_asks_the_next_only_where_one_is_not_content():
    cascade = {
        "type": "cascade",
        "graders": {
            "exact": {
                "type": "string_check",
                "operation": "eq",
                "input": "{{sample.output_text}}",
                "reference": "482",
            },
            "lenient": {
                "type": "string_check",
                "operation": "like",
                "input": "{{sample.output_text}}",
                "reference": "482",
            },
        },
    }
    exact = graded(cascade, said("482"))
    assert (exact.value, "lenient" in exact.parts) == (1, False)
    assert graded(cascade, said("it is 482")).parts["exact"] == 0
    assert graded(cascade, said("it is 482")).value == 1
    assert graded(cascade, said("no")).value == 0


GRADE = """
import re
def grade(sample, item):
    print("noise", 1.0)
    found = re.findall(r"\\d+", sample["output_text"])
    return 1.0 if found and found[-1] == item["answer"] else 0.25
"""


def test_python_graders_run_in_the_sandbox():
    spec = {"type": "python", "source": GRADE}
    assert graded(spec, said("it is 482"), python=True).value == 1
    assert graded(spec, said("it is 481"), python=True).value == 0.25
    assert needs_python(
        {"type": "multi", "graders": {"x": {"type": "cascade", "graders": {"y": spec}}}}
    )
    assert not needs_python(COMBINED)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return 'high'", "returned high, no number"),
        ("return 2", "not a number from 0 to 1"),
        ("return float('nan')", "not a number from 0 to 1"),
        ("return True", "no number"),
        ("return None", "no number"),
        ("raise ValueError('boom')", "boom"),
        ("import socket; socket.create_connection(('1.1.1.1', 53), 1); return 1", "failed"),
        ("open('/etc/shadow').read(); return 1", "No such file"),
        ("import os; os._exit(0)", "no number"),
        ("import sys; sys.exit(3)", "failed"),
    ],
)
def test_what_goes_wrong_in_a_python_grader_is_a_fault_and_no_zero(body: str, words: str):
    with pytest.raises(GraderError) as error:
        graded(
            {"type": "python", "source": f"def grade(sample, item):\n    {body}\n"},
            said("x"),
            python=True,
        )
    assert words in str(error.value)
    assert not error.value.retryable


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "grader: `type` is None, no kind of grader"),
    ({"type": "fuzzy"}, "`type` is 'fuzzy', no kind of grader"),
    ({"type": "numeric", "refrence": "a"}, "`refrence` is no setting of `numeric`"),
    ({"type": "numeric", "abs_tol": "x"}, "grader.abs_tol: is 'x', no number"),
    (
        {"type": "string_check", "operation": "is", "reference": "{{item.a}}"},
        "grader.operation: is `is`",
    ),
    (
        {"type": "string_check", "operation": "eq", "reference": "{{foo.a}}"},
        "`{{foo.a}}` is no variable",
    ),
    (
        {"type": "text_similarity", "reference": "a", "evaluation_metric": "bertscore"},
        "grader.evaluation_metric",
    ),
    ({"type": "multi", "graders": {}, "calculate_output": "1"}, "grader.graders: names no grader"),
    (
        {"type": "multi", "graders": {"a": {"type": "numeric"}}, "calculate_output": "b"},
        "grader.calculate_output: `b`",
    ),
    (
        {"type": "multi", "graders": {"a-b": {"type": "numeric"}}, "calculate_output": "1"},
        "no name that a formula",
    ),
    (
        {
            "type": "multi",
            "graders": {"a": {"type": "numeric"}},
            "calculate_output": "a",
            "correct": "b",
        },
        "grader.correct",
    ),
    (
        {
            "type": "multi",
            "graders": {
                "a": {"type": "multi", "graders": {"c": {"type": "nope"}}, "calculate_output": "c"}
            },
            "calculate_output": "a",
        },
        "grader.graders.a.graders.c",
    ),
    ({"type": "python", "source": "def"}, "is no Python"),
    ({"type": "python", "source": "x = 1"}, "defines no `grade(sample, item)`"),
    ({"type": "python", "source": "def grade(s, i): pass\n#" + "x" * 300_000}, "not under 256 kB"),
    ({"type": "python", "file": "missing.py"}, "grader.file: cannot be read"),
    ({"type": "budget", "free": 5, "full": 5}, "grader.full: must be above `free`"),
    ({"type": "budget", "unit": "latency", "full": 5}, "seconds that each tool takes"),
    ({"type": "score_model", "model": "m", "input": []}, "grader.input: is no list of messages"),
    (
        {"type": "score_model", "model": "m", "input": [{"role": "robot", "content": "x"}]},
        "has the role 'robot'",
    ),
    (
        {
            "type": "score_model",
            "model": "m",
            "input": [{"role": "user", "content": "x"}],
            "range": [1, 0],
        },
        "grader.range",
    ),
    (
        {"type": "score_model", "model": "m", "input": [{"role": "user", "content": "x"}]},
        "OPENAI_API_KEY, which is not set",
    ),
    (
        {
            "type": "label_model",
            "model": "m",
            "input": [{"role": "user", "content": "x"}],
            "labels": ["a"],
            "passing_labels": ["b"],
        },
        "not among `labels`",
    ),
]


@pytest.mark.parametrize(("spec", "words"), WRONG)
def test_a_mistake_in_a_spec_is_one_line_with_its_place(spec: dict[str, Any], words: str):
    with pytest.raises(ConfigError) as error:
        graded(spec, said("x"))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_graders_cannot_be_nested_without_end():
    spec: dict[str, Any] = {"type": "numeric"}
    for _ in range(12):
        spec = {"type": "cascade", "graders": {"inner": spec}}
    with pytest.raises(ConfigError, match="nested deeper"):
        graded(spec, said("x"))


def test_a_version_changes_with_every_setting():
    async def main() -> None:
        async with Outbound() as outbound:
            around = Surroundings(outbound=outbound, environ={}, root=Path())

            def version(**changes: Any) -> str:
                return grader_from({**COMBINED, **changes}, around).version

            inner = {**COMBINED["graders"], "cheap": {**COMBINED["graders"]["cheap"], "full": 151}}
            formula = "accuracy * cheap * sources * quick"
            versions = [
                version(),
                version(graders=inner),
                version(correct=""),
                version(calculate_output=formula),
            ]
            assert len(set(versions)) == 4
            assert version() == versions[0]

    anyio.run(main)
