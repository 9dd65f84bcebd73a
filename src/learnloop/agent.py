"""The agent loop: turn, tool calls, results, next turn, until an answer or a limit."""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio

from learnloop.boundary import boundary
from learnloop.clock import Clock
from learnloop.config import AgentConfig
from learnloop.errors import LearnloopError, ModelError, ToolError
from learnloop.message import Message, ToolCall
from learnloop.model import Session
from learnloop.tools.toolbox import Toolbox
from learnloop.trace import CallRecord, Turn

NO_TOOL = "(malformed)"
"""Stands for the tool's name where text was meant as a call but names none."""

_MALFORMED = "error: this is not a valid tool call, so nothing was run"


@dataclass(kw_only=True)
class Episode:
    """What a rollout has gathered so far.

    It is filled in while the agent runs, so that a fault half-way keeps what came before it.
    `calls_spent` counts calls taken from the budget: refused ones are recorded but cost nothing.
    """

    messages: list[Message]
    turns: list[Turn] = field(default_factory=list[Turn])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    calls_spent: int = 0
    finish_reason: str = ""
    answered: bool = False
    in_tools: bool = False

    @property
    def tokens_out(self) -> int:
        """Return the number of sampled tokens."""
        return sum(t.tokens_out for t in self.turns)

    def spent(self, limits: AgentConfig, wall_s: float) -> str:
        """Return which budget of the rollout is used up, or nothing."""
        used = {
            "tokens": self.tokens_out >= limits.max_tokens_total,
            "calls": self.calls_spent >= limits.max_calls,
            "rounds": len({c.round for c in self.calls}) >= limits.max_rounds,
            "turns": len(self.turns) >= limits.max_turns,
            "wall_time": limits.at_wall_limit == "last_turn" and wall_s >= limits.max_wall_s,
        }
        return next((name for name, is_spent in used.items() if is_spent), "")


async def run_agent(
    session: Session, toolbox: Toolbox, limits: AgentConfig, episode: Episode
) -> None:
    """Hold the conversation, and leave it with its finish reason in `episode`.

    Raises:
        ModelError, ToolError: a part outside the agent failed. The wall-clock limit is among them:
            it can only end while model or tools are waited for, and that is not the agent's fault.
    """
    limit_s = limits.max_wall_s * (2 if limits.at_wall_limit == "last_turn" else 1)
    clock = Clock(limit_s)
    with clock.running():
        episode.finish_reason = await _converse(session, toolbox, limits, episode, clock)
    if clock.ran_out:
        episode.finish_reason = "wall_time"
        what, fault = ("tool result", ToolError) if episode.in_tools else ("turn", ModelError)
        raise fault(f"no {what} within {limit_s:g} s", kind="wall_time")


async def _converse(
    session: Session, toolbox: Toolbox, limits: AgentConfig, episode: Episode, clock: Clock
) -> str:
    """Take turns until something ends the rollout; return what did."""
    while True:
        spent = episode.spent(limits, clock.spent_s)
        if spent in {"tokens", "turns"} and ends_at(limits, spent):
            return spent
        turn = await _take_turn(session, episode, tools_allowed=not spent)
        if ending := _ending(turn, spent, limits, episode):
            return ending
        results = await _run_round(toolbox, limits, episode, turn)
        spent = episode.spent(limits, clock.spent_s)
        if spent and ends_at(limits, spent):
            return spent
        with boundary("model"):
            await session.append(results)


def ends_at(limits: AgentConfig, spent: str) -> bool:
    """Return whether a rollout ends at once when that budget is spent, without a last turn."""
    choice = {
        "calls": limits.at_call_limit,
        "rounds": limits.at_call_limit,
        "turns": limits.at_turn_limit,
        "tokens": limits.at_token_limit,
        "wall_time": limits.at_wall_limit,
    }
    return choice[spent] == "end"


async def _take_turn(session: Session, episode: Episode, *, tools_allowed: bool) -> Turn:
    """Sample a turn and note it."""
    with boundary("model"):
        turn = await session.turn(tools_allowed=tools_allowed)
    episode.turns.append(turn)
    episode.messages.append(
        Message(role="assistant", content=turn.text, tool_calls=turn.tool_calls)
    )
    return turn


def _ending(turn: Turn, spent: str, limits: AgentConfig, episode: Episode) -> str:
    """Return why the rollout ends with this turn, or nothing when it goes on.

    A turn without calls is the final answer, unless it was cut off. The last turn after a spent
    budget says so even when it answers; one that asks for tools nevertheless is no answer.
    """
    wants_tools = bool(turn.tool_calls or turn.malformed)
    episode.answered = not wants_tools and turn.finish_reason not in {"length", "context"}
    if turn.finish_reason == "context":
        return "context"
    if wants_tools and not spent:
        over = episode.tokens_out >= limits.max_tokens_total
        return "tokens" if over and ends_at(limits, "tokens") else ""
    if turn.finish_reason == "length" and not wants_tools:
        return "length"
    return spent or "answer"


async def _run_round(
    toolbox: Toolbox, limits: AgentConfig, episode: Episode, turn: Turn
) -> list[Message]:
    """Answer every call of a turn, in call order, and tell the model of text that was no call."""
    round_index = len(episode.turns) - 1
    left = limits.max_calls - episode.calls_spent
    admitted = turn.tool_calls[: left if limits.parallel_calls else min(left, 1)]
    refused = turn.tool_calls[len(admitted) :]
    why = f"only {left} more may be made" if limits.parallel_calls else "one call a turn is allowed"
    episode.calls_spent += len(admitted)
    episode.in_tools = True
    records = await _run_together(toolbox, admitted, round_index, episode)
    episode.in_tools = False
    records += [
        CallRecord(
            call=c, round=round_index, output=f"error: not run: {why}", is_error=True, ran=False
        )
        for c in refused
    ]
    episode.calls += records
    results = [_result(r) for r in records]
    if turn.malformed:
        results.append(_note_malformed(episode, turn, round_index))
    episode.messages += results
    return results


async def _run_together(
    toolbox: Toolbox, calls: tuple[ToolCall, ...], round_index: int, episode: Episode
) -> list[CallRecord]:
    """Run calls at once and return their records in call order.

    The first fault stops the others, because the rollout is lost; finished calls stay recorded.
    """
    records: dict[int, CallRecord] = {}
    faults: list[LearnloopError] = []

    async def run(index: int, call: ToolCall) -> None:
        try:
            records[index] = await toolbox.run(call, round_index)
        except LearnloopError as fault:
            faults.append(fault)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for index, call in enumerate(calls):
            group.start_soon(run, index, call)
    in_order = [records[i] for i in sorted(records)]
    if not faults and len(records) < len(calls):
        # Cancelled from outside, this line is not reached: somebody cancelled what the tool waited for.
        faults.append(ToolError("a call was cancelled from inside the tool", kind="cancelled"))
    if faults:
        episode.calls += in_order
        raise faults[0]
    return in_order


def _note_malformed(episode: Episode, turn: Turn, round_index: int) -> Message:
    """Record text that was meant as a call but is none: it costs a call, or it could go on forever.

    It has no call id to answer, so the model is told by a user message.
    """
    call = ToolCall(id=f"malformed_{round_index}", name=NO_TOOL, arguments=turn.malformed)
    episode.calls.append(
        CallRecord(call=call, round=round_index, output=_MALFORMED, is_error=True, ran=False)
    )
    episode.calls_spent += 1
    return Message(role="user", content=_MALFORMED)


def _result(record: CallRecord) -> Message:
    """Return the message that answers a call."""
    call = record.call
    return Message(role="tool", content=record.output, tool_call_id=call.id, name=call.name)
