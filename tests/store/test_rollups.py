"""Rollups and pages: equal to what a scan would find, and fast however much there is."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sample_run import TRAINED, UNTRAINED, make_tasks, roll_all
from tests.store.rich_trace import rich_trace

from learnloop.config import Config
from learnloop.errors import UsageError
from learnloop.store import RolloutRecord, Store
from learnloop.trace import Failure


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "learnloop.db") as opened:
        yield opened


@pytest.fixture
def run_id(store: Store) -> str:
    """Return a run with three steps, some of its rollouts lost."""
    made = store.create_run(Config(), command="train", seed=0).id
    tasks = make_tasks("train", 20)
    for step, skill in enumerate((UNTRAINED, TRAINED, TRAINED), start=1):
        traces = list(roll_all(tasks, skill, candidate=f"cand_{step}", attempts=3))
        random.Random(step).shuffle(traces)
        for trace in traces:
            store.save_trace(made, "train", step, trace)
    return made


def test_rollups_say_what_a_scan_says(store: Store, run_id: str) -> None:
    rows = store.rows(run_id)
    tools = Counter[tuple[str, int, str]]()
    for row in rows:
        tools.update({(row.stage, row.step, name): n for name, n in row.tools.items()})
    found = store.tool_distribution(run_id)
    assert {(t.stage, t.step, t.tool): t.calls for t in found} == dict(tools)
    assert [(t.step, t.tool) for t in found] == sorted((t.step, t.tool) for t in found)
    for total in store.totals(run_id):
        same = [r for r in rows if (r.step, r.outcome) == (total.step, total.outcome)]
        assert total.rollouts == len(same)
        assert total.scored == sum(r.value is not None for r in same)
        assert total.calls == sum(r.calls for r in same)
        assert total.tokens == sum(r.tokens for r in same)
        assert total.latency_s == pytest.approx(sum(r.latency_s for r in same))
        assert total.value_sum == pytest.approx(sum(r.value or 0 for r in same))
    assert sum(t.rollouts for t in store.totals(run_id)) == len(rows) == 180
    assert any(t.outcome == "infra_fault" and t.scored == 0 for t in store.totals(run_id))


def test_a_lost_rollout_that_is_made_again_is_counted_once(store: Store) -> None:
    run_id = store.create_run(Config(), command="train", seed=0).id
    good = rich_trace()
    failure = Failure(boundary="tool", kind="5xx", message="gone")
    lost = replace(good, outcome="infra_fault", score=None, failure=failure)
    store.save_trace(run_id, "train", 1, lost)
    store.save_trace(run_id, "train", 1, good)
    store.save_trace(run_id, "train", 1, good)
    [total] = store.totals(run_id)
    assert (total.outcome, total.rollouts, total.calls, total.scored) == ("graded", 1, 1, 1)
    assert [t.calls for t in store.tool_distribution(run_id)] == [1]


def pages(store: Store, run_id: str, size: int) -> Iterator[list[RolloutRecord]]:
    after = ""
    while True:
        page = store.page(run_id, after=after, size=size)
        yield list(page.rows)
        if not page.after:
            return
        after = page.after


@pytest.mark.parametrize("size", [7, 60, 180, 1000])
def test_pages_are_all_rows_in_order(store: Store, run_id: str, size: int) -> None:
    other = store.create_run(Config(), command="eval", seed=0).id
    store.save_trace(other, "train", 1, rich_trace())
    found = list(pages(store, run_id, size))
    assert [row for page in found for row in page] == store.rows(run_id)
    assert {len(page) for page in found[:-1]} <= {size}


def test_a_page_after_what_is_not_there_is_a_usage_error(store: Store, run_id: str) -> None:
    other = store.create_run(Config(), command="eval", seed=0).id
    with pytest.raises(UsageError, match="no trace"):
        store.page(run_id, after="trace_none")
    with pytest.raises(UsageError, match="not of run"):
        store.page(other, after=store.rows(run_id)[0].trace_id)
    assert store.page(other).rows == ()
    assert store.page(run_id, "probe").rows == ()


def test_pages_and_charts_read_an_index_and_nothing_else(store: Store, run_id: str) -> None:
    took_s = float("inf")
    for _ in range(3):  # the first look compiles its query
        began_s = time.perf_counter()
        store.page(run_id, after=store.rows(run_id)[90].trace_id, size=5)
        store.tool_distribution(run_id)
        took_s = time.perf_counter() - began_s
    assert took_s < 0.5
    plan = (
        "EXPLAIN QUERY PLAN SELECT trace_id FROM rollouts WHERE run_id = 'r' AND "
        "(stage, step, task_id, attempt, candidate_id, trace_id) > ('t', 1, 't', 0, 'c', 'x') "
        "ORDER BY stage, step, task_id, attempt, candidate_id, trace_id LIMIT 51"
    )
    words = store.reading(
        lambda connection: str([tuple(row) for row in connection.exec_driver_sql(plan)])
    )
    assert "rollouts_by_place" in words
    assert "TEMP B-TREE" not in words
