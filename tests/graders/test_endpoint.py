"""The grader endpoint: what is sent, what counts as a score, and faults that are never a zero."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest
from tests.loopback import Answer, Loopback, Seen, serving

from learnloop.config import GraderConfig
from learnloop.errors import ConfigError, GraderError
from learnloop.graders import grader_of
from learnloop.message import ToolCall
from learnloop.outbound import Outbound, Retry
from learnloop.task import Task
from learnloop.trace import CallRecord, Score, Trace, Turn

FAST = Retry(retries=3, first_delay_s=0.001)
TASK = Task(
    id="t1", split="train", group="g", messages=(), tools=(), item={"answer": 12, "doc": "\u00e9"}
)
CALLS = tuple(ToolCall(id=f"call_{i}", name="cat", arguments="{}") for i in range(3))
TRACE = Trace(
    id="trace_" + "0" * 32,
    task_id="t1",
    candidate_id="c",
    attempt=0,
    seed=0,
    turns=(
        Turn(text="", tool_calls=CALLS[:2]),
        Turn(text="", tool_calls=CALLS[2:]),
        Turn(text='{"answer": 12}'),
    ),
    calls=tuple(CallRecord(call=c, round=0, output="x") for c in CALLS),
)


async def _grade(server: Loopback, **settings: Any) -> Score:
    config = GraderConfig(type="endpoint", url=server.url, **settings)
    async with Outbound(allow_private=True, retry=FAST) as outbound:
        return await grader_of(config, outbound).grade(TASK, TRACE)


def grade(decide: Callable[[Seen], Answer], **settings: Any) -> tuple[Score, list[Seen]]:
    with serving(decide) as server:
        return anyio.run(partial(_grade, server, **settings)), server.seen


def fault(decide: Callable[[Seen], Answer], **settings: Any) -> tuple[GraderError, int]:
    with serving(decide) as server, pytest.raises(GraderError) as caught:
        anyio.run(partial(_grade, server, **settings))
    return caught.value, len(server.seen)


def test_the_sample_lists_every_call_of_the_rollout() -> None:
    _, (seen,) = grade(lambda _: Answer(body={"score": 0.5}))
    sample = seen.data["sample"]
    assert [t["function"]["name"] for t in sample["output_tools"]] == ["cat"] * 3
    assert sample["output_text"] == '{"answer": 12}'
    assert sample["output_json"] == {"answer": 12}
    assert sample["choices"][0]["message"]["content"] == '{"answer": 12}'
    assert sample["choices"][0]["finish_reason"] == "stop"
    assert seen.data["item"] == {"answer": 12, "doc": "\u00e9"}
    assert seen.data["trace_id"] == TRACE.id == seen.headers["X-Trace-Id"]


def test_a_score_comes_back_with_its_parts() -> None:
    body = {
        "score": 0.5,
        "sub_scores": {"style": 1, "bad": None},
        "metrics": {"seconds": 2.5},
        "explanation": "half",
        "flags": ["late"],
    }
    score, _ = grade(lambda _: Answer(body=body))
    assert (score.value, score.correct, score.explanation) == (0.5, 0.5, "half")
    assert score.parts == {"style": 1.0, "metric/seconds": 2.5}
    assert score.flags == ("late",)


@pytest.mark.parametrize(
    "body",
    [
        b"great answer!",
        b"<html>oops</html>",
        b"",
        {"score": "0.9"},
        {"score": None},
        {"score": True},
        {"score": 3},
        {"score": -0.1},
        {"reward": 1},
        [1],
        b'{"score": NaN}',
    ],
)
def test_a_reply_without_a_usable_score_is_a_fault_after_retries_and_never_a_zero(
    body: object,
) -> None:
    error, tries = fault(lambda _: Answer(body=body))
    assert error.kind == "bad_reply"
    assert str(error).startswith("grader: answered ")
    assert tries == 4


@pytest.mark.parametrize(("status", "kind"), [(500, "5xx"), (404, "4xx"), (302, "redirect")])
def test_every_bad_status_is_a_fault(status: int, kind: str) -> None:
    error, tries = fault(lambda _: Answer(status=status, body={"score": 1}))
    assert (error.kind, tries) == (kind, 4)


def test_a_grader_that_recovers_gives_its_score() -> None:
    answers = iter((Answer(status=503), Answer(body=b"warming up"), Answer(body={"score": 1})))
    score, seen = grade(lambda _: next(answers))
    assert score.value == 1.0
    assert len(seen) == 3


def test_a_reply_over_the_limit_is_a_fault_and_not_repeated() -> None:
    error, tries = fault(lambda _: Answer(body=b" " * 1_000_001))
    assert (error.kind, tries) == ("too_large", 1)


def test_secrets_in_headers_stay_out_of_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_KEY", "sk-very-secret")
    answer = Answer(status=401, body=b"bad key sk-very-secret")
    error, _ = fault(lambda _: answer, headers={"Authorization": "Bearer ${GRADER_KEY}"})
    assert "sk-very-secret" not in str(error)
    assert "[redacted]" in str(error)


def test_cost_shaping_wraps_any_grader() -> None:
    score, _ = grade(lambda _: Answer(body={"score": 1}), cost_weight=0.2, cost_full=3.0)
    assert score.value == 0.8


async def _choose(config: GraderConfig) -> None:
    async with Outbound() as outbound:
        grader_of(config, outbound)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (GraderConfig(type="numerik"), "numerik"),
        (GraderConfig(type="endpoint"), "not a web address"),
        (GraderConfig(type="endpoint", url="http://127.0.0.1:9/"), "allow_private"),
        (GraderConfig(type="endpoint", url="http://169.254.169.254/"), "forbids"),
        (GraderConfig(cost_weight=0.5), "cost_weight"),
    ],
)
def test_a_grader_that_cannot_be_used_is_refused_before_the_run(
    config: GraderConfig, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        anyio.run(_choose, config)
