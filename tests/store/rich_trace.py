"""A rollout whose every kind of text is long enough to be shared and has something to mask."""

from __future__ import annotations

from learnloop.message import Message, ToolCall
from learnloop.trace import CallRecord, Score, Trace, Turn, trace_id

SECRETS = (
    "ada.lovelace@example.org",
    "+44 20 7946 0958",
    "4111 1111 1111 1111",
    "sk-live-4f9a8b7c6d5e4f3a2b1c",
)
SYSTEM = "You answer questions about filings, and call tools where you need them. " * 4
SAID = f"Write to {SECRETS[0]}, call {SECRETS[1]}, charge {SECRETS[2]} with key {SECRETS[3]}. " * 2
ODD = "a broken \ud83d half, \x00 and na\u00efve " * 5


def rich_trace(number: int = 0, *, said: str = SAID, candidate: str = "cand_1") -> Trace:
    call = ToolCall(id=f"call_{number}", name="search", arguments=f'{{"query": "{said}"}}')
    output = f"Result for everybody. {ODD}{said}"
    return Trace(
        id=trace_id("run", candidate, f"task-{number}", 0),
        task_id=f"task-{number}",
        candidate_id=candidate,
        attempt=0,
        seed=number,
        messages=(
            Message(role="system", content=SYSTEM),
            Message(role="user", content=f"{said} {number}"),
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content=output, tool_call_id=call.id, name="search"),
            Message(role="assistant", content=f"It is 42, {said}"),
        ),
        turns=(
            Turn(
                text="",
                tool_calls=(call,),
                finish_reason="tool_calls",
                token_ids=(5, 6, 7),
                logprobs=(-0.1, -1e-17, -0.0),
                tokens_in=40,
                tokens_out=3,
            ),
            Turn(
                text=f"It is 42, {said}",
                malformed=f"CALL {said}",
                token_ids=(8,),
                logprobs=(-1 / 3,),
                tokens_in=60,
                tokens_out=1,
                latency_s=0.1 + 0.2,
            ),
        ),
        calls=(CallRecord(call=call, round=0, output=output, latency_s=0.25),),
        score=Score(value=0.9, correct=1.0, parts={"valid": 1.0}, explanation=f"because {said}"),
        latency_s=1 / 3,
    )
