"""Content policies in a run: training needs everything until its update is saved, reports do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.idle_run import idle_run
from tests.loopback import Answer, serving
from tests.store.rich_trace import SAID, SECRETS, rich_trace

from learnloop.batch import attempts_on
from learnloop.config import ToolConfig
from learnloop.errors import ConfigError, EndpointError
from learnloop.graders.numeric import NumericGrader
from learnloop.message import Message, ToolSchema
from learnloop.models.policy import PolicyProcess
from learnloop.models.scripted import Played, ScriptedCall, ScriptedModel
from learnloop.outbound import BreakerRules, Outbound, Retry
from learnloop.project import Parts
from learnloop.report.cases import cases, differences, trajectory
from learnloop.run import CURRENT, UNTRAINED, Run
from learnloop.session import Session, recorded
from learnloop.store.content import reduce
from learnloop.task import Task
from learnloop.tools import http_tools
from learnloop.trace import Content, Score, Trace


def trained_on(run: Run) -> list[Trace]:
    """File the rollouts of a training step, and return those the step would be trained on."""
    tasks = run.sample("train", 2)
    batch = run.batch("train", run.base, attempts_on(tasks, 2), step=1)
    stored = [
        replace(
            rich_trace(n), id=f"trace_{n}", task_id=p.task.id, attempt=p.attempt,
            candidate_id=batch.candidate.id,
        )
        for n, p in enumerate(batch.plan)
    ]  # fmt: skip
    for trace in stored:
        run.store.save_trace(run.id, "train", 1, trace)
    return stored


def roll(run: Run) -> list[Trace]:
    batch = run.batch("train", run.base, attempts_on(run.sample("train", 2), 2), step=1)
    [traces] = anyio.run(run.roll, replace(batch, weights=CURRENT, is_trained_on=True))
    return traces


def test_a_resumed_step_is_trained_on_what_was_stored(tmp_path: Path) -> None:
    with idle_run(tmp_path / "p", flags={"store.content": "none"}) as (_, run):
        stored = trained_on(run)
        run.forget_words(0)  # no step is saved yet
        assert roll(run) == stored


def test_a_step_whose_texts_were_erased_is_refused_in_one_line(tmp_path: Path) -> None:
    with idle_run(tmp_path / "p") as (_, run):
        trained_on(run)
        run.store.erase(reason="x", run_id=run.id)
        with pytest.raises(ConfigError, match="texts of training step 1 were erased") as told:
            roll(run)
        assert "Start a new run." in told.value.line()


@pytest.mark.parametrize("content", ["none", "hash", "masked"])
def test_words_are_forgotten_once_the_update_is_saved(tmp_path: Path, content: Content) -> None:
    with idle_run(tmp_path / "p", flags={"store.content": content}) as (_, run):
        trained_on(run)
        run.forget_words(1)
        assert {t.content for t in run.store.traces(run.id)} == {content}


@pytest.mark.parametrize("content", ["none", "hash", "erased"])
def test_a_report_says_what_is_not_kept(content: Content) -> None:
    before, after = (reduce(rich_trace(n), content, b"salt") for n in (0, 1))
    shown = trajectory(after)
    assert shown.answer.startswith("(not kept: " if content != "erased" else "(erased from")
    assert shown.calls[0].result == shown.calls[0].arguments == shown.answer
    assert (shown.score, shown.tokens, shown.calls[0].tool) == (0.9, 61, "search")
    assert not any("Answer:" in words for words in differences(before, after))


def test_a_report_of_masked_texts_shows_them_masked() -> None:
    shown = trajectory(reduce(rich_trace(), "masked", b"salt"))
    assert "[email]" in shown.answer
    assert SECRETS[0] not in repr(shown)


@pytest.mark.parametrize("content", ["masked", "hash", "none", "erased"])
def test_questions_and_expected_answers_in_a_report_follow_the_policy_too(content: Content) -> None:
    row = rich_trace()
    task = Task(
        id=row.task_id,
        split="confirm",
        group="g",
        messages=row.messages[:2],
        tools=(),
        item={"answer": SAID},
    )
    wrong = replace(row, score=Score(value=0.0, correct=0.0))
    after = reduce(row, content, b"salt")
    shown = cases({task.id: task}, [wrong], [after])
    assert shown.wins_total == 1
    assert SAID in repr(cases({task.id: task}, [wrong], [row]))
    told = (shown.wins[0].question, shown.wins[0].expected)
    assert not any(secret in repr(told) for secret in SECRETS)
    assert ("[email]" in told[0]) == (content == "masked")


# --- texts in events -----------------------------------------------------------------------------


async def roll_until_it_pauses(session: Session, run: Run, url: str) -> None:
    """Make rollouts whose one tool never answers as it should, between the events of a run."""
    rules = BreakerRules(faults=3, probe_s=0.02, longest_wait_s=0.2)
    retry = Retry(retries=1, first_delay_s=0.001)
    async with Outbound(allow_private=True, retry=retry, breaker=rules) as outbound:
        outbound.on_outage = run.tell_outage
        tools = http_tools([ToolConfig(name="cat", server_url=url)], outbound)
        run.parts = Parts(tools=tools, grader=NumericGrader(), outbound=outbound)
        run.policy = cast("PolicyProcess", CallingPolicy())

        async def work(run: Run) -> None:
            tasks = [replace(task, tools=()) for task in run.sample("train", 6)]
            await run.roll(run.batch("train", UNTRAINED, attempts_on(tasks)))

        await recorded(session, run, work)


def call(messages: Sequence[Message], tools: Sequence[ToolSchema], seed: int) -> Played:
    return [ScriptedCall(name="cat", arguments={})]


class CallingPolicy:
    """Stands where the policy process stands: its model calls the tool."""

    def model(self, weights: str) -> ScriptedModel:
        return ScriptedModel(call)


@pytest.mark.parametrize(
    ("content", "told"),
    [("full", "HTTP 503"), ("masked", "HTTP 503"), ("hash", ""), ("none", "")],
)
def test_texts_in_events_follow_the_content_policy(
    tmp_path: Path, content: Content, told: str
) -> None:
    """Events cannot be erased: of a fault they tell what happened, not what the endpoint answered."""
    answer = Answer(status=503, body={"error": f"no row of {SECRETS[0]}"})
    with (
        serving(lambda _: answer) as server,
        idle_run(tmp_path / "p", flags={"store.content": content}) as (session, run),
    ):
        with pytest.raises(EndpointError, match="HTTP 503"):
            anyio.run(roll_until_it_pauses, session, run, server.url)
        events = run.store.events(run.id)
        assert [e.kind for e in events] == ["run_started", "endpoint_down", "paused"]
        texts = [str(events[1].data["fault"]), str(events[2].data["reason"])]
        assert all(told in text if told else text == "(not kept)" for text in texts)
        assert "no row of" not in repr([*events, *run.store.ledger()])
        assert events[1].data["endpoint"] == "tool cat"
        assert run.store.audit().broken is None
