"""The error policy: one table that says what follows from each thing that can go wrong.

Routes, tools, graders, the agent, the runner and the documentation all read it, so that no two of
them decide differently. `docs/faults.md` is made from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from learnloop.trace import Outcome

Source = Literal["tool", "grader", "model", "sandbox", "runner", "agent"]
"""Whose doing it was: a part outside the agent, or the agent itself."""

OTHER = "other"
"""The row of a source that stands for every kind without a row of its own."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What follows from one kind of event.

    Attributes:
        source: whose doing it was.
        kind: its name, as in `failure.kind` of a trace and in reports.
        event: what happened, in words.
        outcome: what the rollout counts as if nothing else happens to it: `graded` goes on and is
            scored; `agent_fault` is scored too and counted apart; `infra_fault` has no score.
        repeats_request: whether the same request is sent again, with growing waits.
        repeats_rollout: whether a rollout that is lost to it is made once more.
        shown: whether the model is told of it and may react.
        trips: whether it counts towards the circuit breaker of its endpoint.
    """

    source: Source
    kind: str
    event: str
    outcome: Outcome
    repeats_request: bool = False
    repeats_rollout: bool = False
    shown: bool = False
    trips: bool = False

    @property
    def graded(self) -> bool:
        """Return whether the rollout gets a score."""
        return self.outcome != "infra_fault"


def _endpoint(source: Source, kind: str, event: str) -> Rule:
    """Return the rule of a passing fault of an endpoint: asked again, then the rollout is lost."""
    return Rule(
        source=source,
        kind=kind,
        event=event,
        outcome="infra_fault",
        repeats_request=True,
        repeats_rollout=True,
        trips=True,
    )


def _answered(source: Source, kind: str, event: str) -> Rule:
    """Return the rule of a fault of an endpoint that is up: asked again, and no reason to wait."""
    return replace(_endpoint(source, kind, event), trips=False)


def _lost(source: Source, kind: str, event: str, *, again: bool = True) -> Rule:
    """Return the rule of a fault that loses the rollout and is not asked again."""
    return Rule(source=source, kind=kind, event=event, outcome="infra_fault", repeats_rollout=again)


def _told(source: Source, kind: str, event: str) -> Rule:
    """Return the rule of what the model is told and the rollout survives."""
    return Rule(source=source, kind=kind, event=event, outcome="graded", shown=True)


def _limit(kind: str, event: str) -> Rule:
    """Return the rule of a limit: graded when the model answered in its last turn."""
    return Rule(source="agent", kind=kind, event=event, outcome="agent_fault")


_SHARED = (
    ("timeout", "no whole reply within `timeout_s`"),
    ("connect", "no connection, a reset, or a reply that breaks off"),
    ("tls", "the certificate or the handshake is refused"),
    ("redirect", "3xx: redirects are not followed"),
    ("5xx", "500 or above"),
    ("429", "too many requests: `Retry-After` is waited for, at most 120 s"),
)

RULES: tuple[Rule, ...] = (
    *(_endpoint("tool", kind, event) for kind, event in _SHARED),
    _answered("tool", "bad_reply", "a 200 that is no JSON object with `output`, an HTML page too"),
    _answered("tool", "call_id", "a reply to another call"),
    _told("tool", "4xx", "400 to 499: `output`, else the error's text, is shown"),
    _told("tool", "too_large", "request or reply over 1 MB: a 413 text is shown"),
    _lost("tool", "refused_address", "its address is one the policy forbids", again=False),
    _lost("tool", "wall_time", "`agent.max_wall_s` ends while a tool is waited for"),
    _lost("tool", OTHER, "anything else that a tool raises"),
    *(_endpoint("grader", kind, event) for kind, event in _SHARED),
    _answered("grader", "4xx", "400 to 499: a score that could not be had is no zero"),
    _answered("grader", "bad_reply", "a 200 without a `score` from 0 to 1, an HTML page too"),
    _lost("grader", "too_large", "request or reply over 1 MB"),
    _lost("grader", "refused_address", "its address is one the policy forbids", again=False),
    _lost("grader", "bad_score", "a score that is no number from 0 to 1"),
    _lost("grader", "bad_reference", "the row does not hold what is graded against", again=False),
    _lost("grader", "bad_tolerance", "the row has a tolerance that is none", again=False),
    _lost("grader", OTHER, "anything else that a grader raises"),
    _lost("model", "wall_time", "`agent.max_wall_s` ends while a turn is waited for"),
    _lost("model", "died", "the policy process ended: the run pauses, nothing is counted"),
    _lost("model", OTHER, "anything else that a model raises"),
    _lost("sandbox", OTHER, "the sandbox could not run the code"),
    _lost("runner", OTHER, "a mistake of learnloop itself"),
    _told("agent", "malformed", "text that was meant as a call and is none; it costs a call"),
    _told("agent", "bad_arguments", "arguments that are no JSON or do not fit the schema"),
    _told("agent", "unknown_tool", "no tool of that name: the names are shown"),
    _told(
        "agent", "refused_call", "a call above `max_calls`, or a second one where one is allowed"
    ),
    _limit("calls", "`agent.max_calls` is spent"),
    _limit("rounds", "`agent.max_rounds` is spent"),
    _limit("turns", "`agent.max_turns` is spent"),
    _limit("tokens", "`agent.max_tokens_total` is spent"),
    _limit("wall_time", '`agent.max_wall_s` is spent, with `at_wall_limit = "last_turn"`'),
    _limit("length", "the answer is cut off at `model.max_tokens`"),
    _limit("context", "the conversation does not fit into the model"),
)
"""Every kind of event; the order is that of the documentation."""

_BY_NAME = {(rule.source, rule.kind): rule for rule in RULES}


def rule_of(source: Source, kind: str) -> Rule:
    """Return the rule for an event; kinds without a row of their own have the row `other`."""
    return _BY_NAME.get((source, kind)) or _BY_NAME[source, OTHER]


def outcome_of(finish_reason: str, *, answered: bool) -> Outcome:
    """Return what a rollout counts as that ended without a fault of anything around the agent."""
    if answered or finish_reason == "answer":
        return "graded"
    found = _BY_NAME.get(("agent", finish_reason))
    return found.outcome if found else "agent_fault"


def faults_page() -> str:
    """Return the table as the Markdown page `docs/faults.md`."""
    head = "| source | kind | what happened | request again | rollout again | model is told | counts as |\n"
    lines = [head, "|---|---|---|---|---|---|---|\n"]
    for rule in RULES:
        cells = (
            rule.source,
            f"`{rule.kind}`",
            rule.event,
            "up to 3 times" if rule.repeats_request else "no",
            "once" if rule.repeats_rollout else "no",
            "yes" if rule.shown else "no",
            _COUNTS[rule.outcome],
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return _HEAD + "".join(lines)


_COUNTS: dict[Outcome, str] = {
    "graded": "goes on, graded",
    "agent_fault": "agent fault, graded; plain graded when the last turn answers",
    "infra_fault": "infrastructure fault, no score",
}

_HEAD = """# What follows from each fault

Made from the table in `src/learnloop/faults.py` by `docs/generate.py`: edit that file, not this
one. Three outcomes: **graded** has a score; an **agent fault** has one too and is counted apart; an
**infrastructure fault** has none: it is kept out of learning, counted, shown, and never a zero.
Whatever is asked again also counts towards the circuit breaker of its endpoint
([endpoints](endpoints.md)).

"""
