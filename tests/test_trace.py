"""What a trace counts, and what older stored traces still say."""

from __future__ import annotations

from dataclasses import replace

from learnloop.codec import trace_from_json, trace_to_json
from learnloop.message import ToolCall
from learnloop.trace import CallRecord, Trace

CALL = CallRecord(call=ToolCall(id="c", name="cat", arguments="{}"), round=0, output="")
REFUSED = replace(CALL, round=1, is_error=True, ran=False)
TRACE = Trace(id="x", task_id="t", candidate_id="c", attempt=0, seed=0)


def test_only_calls_that_ran_make_a_round() -> None:
    trace = replace(TRACE, calls=(CALL, CALL, replace(CALL, round=2), REFUSED))
    assert (len(trace.calls), len(trace.calls_run), trace.rounds) == (4, 3, 2)


def test_a_stored_trace_tells_whether_calls_ran_and_an_older_one_takes_them_as_run() -> None:
    trace = replace(TRACE, calls=(CALL, REFUSED))
    text = trace_to_json(trace)
    assert trace_from_json(text) == trace
    older = text.replace(',"ran":false', "")
    assert older != text
    assert [c.ran for c in trace_from_json(older).calls] == [True, True]
