"""The report: what it says at each moment of a run, and that its parts add up."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.sample_run import (
    UNTRAINED,
    empty_inputs,
    make_tasks,
    partial_inputs,
    roll_all,
    sample_inputs,
)

from learnloop.gate import CheaperRules, GateRules, PairResult, decide, decide_cheaper
from learnloop.message import ToolCall
from learnloop.report import Report, ReportInputs, Seal, build, report_to_json
from learnloop.report.build import masked
from learnloop.report.cases import SHOWN, differences
from learnloop.summary import points
from learnloop.trace import CallRecord, Trace, Turn


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return sample_inputs()


@pytest.fixture(scope="module")
def report(inputs: ReportInputs) -> Report:
    return build(inputs)


def made(report: Report) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(report_to_json(report))
    return loaded


def test_a_run_that_has_only_started_has_no_verdict_and_says_what_fills_each_part() -> None:
    report = build(empty_inputs())
    assert report.verdict.state == "pending"
    assert report.splits == ()
    assert {"headline", "probe_before", "tools", "mix", "reward", "cases", "test"} <= set(
        report.missing
    )
    assert made(report)["probe_before"] is None


def test_a_run_in_training_shows_steps_and_looks_and_no_held_out_result() -> None:
    report = build(partial_inputs(6))
    assert [s.step for s in report.training.steps] == [1, 2, 3, 4, 5, 6]
    assert [e.step for e in report.training.evaluations] == [0, 5]
    assert "tools" not in report.missing
    assert "headline" in report.missing
    assert not report.finished


def test_the_opened_test_gives_the_verdict_and_confirm_stands_behind_it(report: Report) -> None:
    assert [s.split for s in report.splits] == ["test", "confirm"]
    assert report.verdict.split == "test"
    assert report.verdict.state == "better"
    assert "opened by 1 run." in report.verdict.caveats[0]


def test_without_the_sealed_test_the_verdict_says_that_confirm_may_overstate() -> None:
    report = build(sample_inputs(opened=False))
    assert report.verdict.split == "confirm"
    assert any("may be overstated" in line for line in report.verdict.caveats)
    assert "--open-test" in report.missing["test"]


def test_after_a_warm_up_the_comparison_starts_there_and_the_untrained_arm_stands_beside(
    report: Report,
) -> None:
    split = report.splits[0]
    assert (split.before, split.after, split.beside) == ("after warm-up", "trained", "untrained")
    assert all(row.beside is not None for row in split.measures if row.before is not None)
    assert "after its warm-up" in report.verdict.sentence
    assert split.warmup_gain is not None
    assert any(points(split.warmup_gain.value) in line for line in report.verdict.caveats)


def test_without_a_warm_up_the_comparison_starts_at_the_untrained_agent() -> None:
    split = build(sample_inputs(warm=False, opened=False)).splits[0]
    assert (split.before, split.beside, split.warmup_gain) == ("untrained", "", None)
    assert all(row.beside is None for row in split.measures)


def test_planned_rollouts_are_graded_or_lost_and_lost_ones_are_named(report: Report) -> None:
    for split in report.splits:
        for row in split.counts:
            assert row.planned == row.graded + row.lost == 240
            assert sum(row.lost_by_kind.values()) == row.lost


def test_every_measured_number_has_an_n_and_intervals_stand_around_it(report: Report) -> None:
    for split in report.splits:
        rows = [
            *split.measures,
            *split.format.measures,
            *(m for k in split.kinds for m in k.measures),
        ]
        for estimate in [e for r in rows for e in (r.before, r.after, r.change) if e is not None]:
            assert estimate.n > 0
            if estimate.low is not None and estimate.high is not None:
                assert estimate.low <= estimate.value <= estimate.high


def test_kinds_cover_all_tasks_and_carry_corrected_p_values(report: Report) -> None:
    split = report.splits[0]
    assert sum(kind.tasks for kind in split.kinds) == split.tasks
    assert all(kind.p_holm is not None for kind in split.kinds)


def test_at_most_ten_wins_and_ten_regressions_are_shown_and_the_totals_are_true(
    report: Report,
) -> None:
    cases = report.splits[0].cases
    assert len(cases.wins) == min(SHOWN, cases.wins_total)
    assert len(cases.regressions) == min(SHOWN, cases.regressions_total)
    for case in cases.wins:
        assert case.mean_after > case.mean_before
        assert case.after.correct > case.before.correct
        assert case.differences
    for case in cases.regressions:
        assert case.mean_after < case.mean_before
        assert case.after.correct < case.before.correct


def test_among_equal_wins_the_kinds_take_turns(report: Report) -> None:
    first = [c.kind for c in report.splits[0].cases.wins if c.mean_after - c.mean_before == 1.0][:5]
    assert len(set(first)) == len(first)


def call(name: str, arguments: str, number: int, *, error: bool = False) -> CallRecord:
    asked = ToolCall(id=str(number), name=name, arguments=arguments)
    return CallRecord(call=asked, round=number, output="text", is_error=error)


def rollout(calls: tuple[CallRecord, ...], answer: str, ending: str = "answer") -> Trace:
    return Trace(
        id="trace_x",
        task_id="t",
        candidate_id="c",
        attempt=0,
        seed=0,
        calls=calls,
        turns=(Turn(text=answer),),
        finish_reason=ending,
    )


def test_what_differs_is_said_in_words() -> None:
    again = tuple(call("search", '{"query":"x"}', i) for i in range(3))
    before = rollout((*again, call("list", "{}", 3, error=True)), "12", "calls")
    after = rollout((call("cat", '{"path":"/a"}', 0),), "14")
    assert differences(before, after) == (
        "First tool: search before, cat after.",
        "Calls: 4 before, 1 after.",
        "Calls repeated with the same arguments: 2 before, 0 after.",
        "Calls answered with an error: 1 before, 0 after.",
        "Tools: no longer uses list, search and now uses cat.",
        "Ending: ran out of calls before, gave an answer after.",
        "Answer: “12” before, “14” after.",
    )


def test_rollouts_that_differ_in_nothing_say_so() -> None:
    same = rollout((call("cat", "{}", 0),), "14")
    assert differences(same, same) == ("The answer is the same text.",)


def test_two_calls_in_one_round_are_told_from_two_rounds() -> None:
    both = (call("cat", "1", 0), replace(call("cat", "2", 1), round=0))
    words = differences(rollout((call("cat", "1", 0),), "a"), rollout(both, "a"))
    assert words[0] == "Calls: 1 before, 2 in 1 rounds after."


def test_identical_arms_are_not_decisive() -> None:
    tasks = make_tasks("confirm", 60)
    arm = roll_all(tasks, UNTRAINED, candidate="cand_base")
    same = replace(
        empty_inputs(), tasks={t.id: t for t in tasks}, confirm={"baseline": arm, "final": arm}
    )
    report = build(same)
    assert report.verdict.state == "undecided"
    mix = report.splits[0].tool_mix
    assert mix is not None
    assert not mix.beyond_noise


def test_too_many_lost_rollouts_refuse_the_headline(inputs: ReportInputs) -> None:
    final = tuple(
        replace(t, outcome="infra_fault", score=None) if i % 5 == 0 else t
        for i, t in enumerate(inputs.confirm["final"])
    )
    lossy = replace(inputs, test={}, confirm={**inputs.confirm, "final": final})
    report = build(lossy)
    assert report.verdict.state == "refused"
    assert report.verdict.sentence.startswith("No headline")


def test_header_values_are_masked_and_names_of_variables_are_not(report: Report) -> None:
    text = report_to_json(report)
    assert "s3cret" not in text
    assert report.config["tools"][0]["headers"] == {"Authorization": "(masked)", "X": "${KEY}"}


def test_numbers_that_are_not_finite_become_null(inputs: ReportInputs) -> None:
    step = replace(inputs.steps[0], loss={"kl": float("nan")})
    loaded = made(build(replace(partial_inputs(1), steps=(step,))))
    assert loaded["training"]["steps"][0]["loss"] == {"kl": None}


def test_the_method_box_names_splits_losses_gate_warm_up_and_seals(
    inputs: ReportInputs,
) -> None:
    twice = (*inputs.seals, Seal(run_id="run_other", opened="2026-12-01T08:00:00Z"))
    method = dict(build(replace(inputs, seals=twice)).method)
    assert "confirm 120" in method["Splits"]
    assert "lost" in method["Excluded"]
    assert method["Gate"].startswith("adopt")
    assert "own gain" in method["Warm-up"]
    assert method["Sealed test"].startswith("Opened by 2 runs")


def test_the_method_box_tells_what_a_test_of_graded_scores_and_of_a_saving_saw(
    inputs: ReportInputs,
) -> None:
    pairs = [
        PairResult(
            task_id=f"t{i}",
            incumbent=0.5,
            candidate=0.7 + 0.01 * (i % 7),
            incumbent_cost=900.0 + i % 5,
            candidate_cost=500.0 + i % 3,
        )
        for i in range(400)
    ]
    graded = decide(pairs, GateRules(scores="graded"))
    saving = decide_cheaper(pairs, CheaperRules(scores="graded", margin=0.1))
    for verdict, words in (
        (graded, "of random sign flips 0 did as well"),
        (saving, "needed of both"),
    ):
        assert verdict is not None
        found = build(replace(inputs, gate=verdict))
        assert words in dict(found.method)["Gate"]
        assert made(found)["gate"]["outcome"] == "adopt"


def test_the_same_inputs_give_the_same_report(inputs: ReportInputs, report: Report) -> None:
    assert report_to_json(build(inputs)) == report_to_json(report)


def test_secrets_in_addresses_and_folders_of_this_machine_stay_out() -> None:
    config = {
        "model": {"ref": "/home/me/models/tiny"},
        "grader": {"url": "https://me:s3cret@x.example/?key=s3cret"},
        "services": [{"ready_url": "http://127.0.0.1/?key=s3cret"}],
        "tools": [{"server_url": "https://s3cret@x.example"}],
    }
    found = masked(config)
    assert "s3cret" not in str(found)
    assert found["model"] == {"ref": "tiny"}
    assert found["grader"] == {"url": "https://***@x.example/?key=***"}
