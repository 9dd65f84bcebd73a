"""One training run from end to end, and every verb that reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.conftest import Done, Small
from tests.e2e.small_project import make_small_project

# A busy machine makes every start of a process slow.
pytestmark = pytest.mark.timeout(400)

Run = tuple[Small, Done]

ARM = {"tasks", "score", "ci", "tool_calls_mean", "tokens_mean", "latency_s_p50"}


def test_train_ends_with_one_json_object_on_stdout(undisturbed: Run):
    small, done = undisturbed
    assert done.code == 0, done.err
    found = done.json
    assert found["optimizer"] == "rft"
    assert found["split"] == "confirm"
    assert found["steps"] == 3
    assert found["rollouts"] == {"planned": 24, "graded": 24, "lost": 0}
    for arm in ("untrained", "baseline", "final"):
        assert found[arm].keys() == ARM
        assert 0 <= found[arm]["ci"][0] <= found[arm]["score"] <= found[arm]["ci"][1] <= 1
    gain = found["final"]["score"] - found["baseline"]["score"]
    assert found["gain"] == pytest.approx(gain)
    assert found["gain_ci"][0] <= found["gain"] <= found["gain_ci"][1]
    assert found["gate"]["outcome"] in {"adopt", "reject", "indecisive", "no_change"}
    assert found["checkpoint"].startswith(f"{found['run']}/step-")
    assert 0 < found["minutes"] < 2
    assert small.record().status == "done"


def test_progress_and_the_next_command_go_to_stderr(undisturbed: Run):
    _, done = undisturbed
    lines = done.err.splitlines()
    assert any(line.startswith("step: 3, reward") for line in lines)
    assert lines[-1].startswith(f"next: learnloop report {done.json['run']} --open-test --project")


def test_the_report_is_one_page_with_json_and_markdown_beside_it(undisturbed: Run):
    _, done = undisturbed
    page = Path(done.json["report"])
    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert "after warm-up" in html
    assert 'http-equiv="refresh"' not in html, "a finished report does not reload itself"
    report = json.loads(page.with_suffix(".json").read_text())
    assert report["finished"] is True
    assert len(report["training"]["steps"]) == 3
    assert [look["step"] for look in report["training"]["evaluations"]] == [0, 2, 3]
    assert report["probe_before"]["attempts"] == report["probe_after"]["attempts"] == 2
    assert report["gate"]["outcome"] == done.json["gate"]["outcome"]
    assert page.with_suffix(".md").read_text().startswith("# tiny: run ")


def test_the_report_says_where_the_run_comes_from_and_names_no_machine(undisturbed: Run):
    small, done = undisturbed
    page = Path(done.json["report"])
    meta = json.loads(page.with_suffix(".json").read_text())["meta"]
    assert {"learnloop", "torch", "transformers", "python", "machine"} <= meta.keys()
    for name in ("dataset", "demonstrations", "system prompt", "model", "tool schemas"):
        assert "sha256 " in meta[name]
    for path in (page, page.with_suffix(".json"), page.with_suffix(".md")):
        assert str(small.root) not in path.read_text()


def test_a_finished_run_is_not_run_again(undisturbed: Run):
    small, done = undisturbed
    again = small.read("train", "--resume", "latest", "--json")
    assert again.code == 0
    assert "is done already" in again.err
    assert again.json == done.json


def test_a_changed_setting_or_prompt_is_refused_by_name(undisturbed: Run):
    small, _ = undisturbed
    done = small.run("train", "--resume", "latest", "--seed", "5", LEARNLOOP_GATE__ALPHA="0.2")
    assert done.code == 4
    assert done.out == ""
    assert "`gate.alpha`, `train.seed`" in done.err
    prompt = small.root / "prompts" / "system.md"
    before = prompt.read_text()
    prompt.write_text("Answer with two numbers.\n")
    changed = small.read("train", "--resume", "latest")
    prompt.write_text(before)
    assert changed.code == 4
    assert "the system prompt" in changed.err


def test_what_does_not_change_results_may_be_changed(undisturbed: Run):
    small, done = undisturbed
    again = small.run(
        "train", "--resume", "latest", "--json", LEARNLOOP_MODEL__THREADS="2",
        LEARNLOOP_TRAIN__MAX_CONCURRENCY="3", LEARNLOOP_BUDGET__MINUTES="90",
    )  # fmt: skip
    assert again.code == 0, again.err
    assert again.json["run"] == done.json["run"]


def test_the_sealed_test_is_opened_once_and_counted(copied: Run):
    small, done = copied
    closed = small.read("report", "latest", "--json")
    assert closed.json["split"] == "confirm"
    opened = small.run("report", "latest", "--open-test", "--json")
    assert opened.code == 0, opened.err
    assert opened.json["split"] == "test"
    assert "points" in opened.json["verdict"]
    again = small.read("report", done.json["run"], "--open-test")
    assert again.code == 0
    assert "stage started" not in again.err, "what is stored is not measured again"
    assert "The sealed test has been opened by 1 run." in again.out
    assert again.out.splitlines()[0] == opened.json["verdict"]
    query = "select count(*) from events where kind = 'seal_opened'"
    assert small.rows(query) == [(1,)]


def test_a_rival_that_does_not_exist_leaves_the_test_sealed(copied: Run):
    small, done = copied
    wrong = small.read("report", done.json["run"], "--open-test", "--rival", "nonsense")
    assert wrong.code == 2
    assert small.rows("select count(*) from events where kind = 'seal_opened'") == [(0,)]


def test_compare_pairs_two_arms_on_the_split_both_have(undisturbed: Run):
    small, done = undisturbed
    data = small.read("compare", "latest:warm", "latest", "--json").json
    assert (data["a"], data["b"]) == (f"{done.json['run']}:warm", f"{done.json['run']}:final")
    assert data["gain"] == pytest.approx(data["after"]["score"] - data["before"]["score"])
    same = small.read("compare", "latest:final", "latest:final", "--json").json
    assert same["gain"] == 0
    table = small.read("compare", "latest:untrained", "latest")
    assert "Accuracy" in table.out
    wrong = small.read("compare", "latest:best", "latest")
    assert (wrong.code, wrong.out) == (2, "")
    assert "no arm `best`" in wrong.err


def test_eval_measures_a_checkpoint_in_a_run_of_its_own(copied: Run):
    small, done = copied
    words = ("--tasks", "3", "--candidate", "latest", "--split", "confirm")
    data = small.run("eval", *words, "--json").json
    assert small.rows(
        f"select json_extract(meta_json, '$.command') from runs where id = '{data['run']}'"
    ) == [
        (f"learnloop eval --tasks 3 --candidate {data['candidate']} --split confirm --attempts 1",)
    ]
    assert data["candidate"] == done.json["checkpoint"]
    assert data["tasks"] == 3
    assert data["rollouts"] == {"planned": 3, "graded": 3, "lost": 0}
    compared = small.read("compare", data["run"], f"{done.json['run']}:final", "--json").json
    # Greedy and fp32: the same checkpoint does the same thing twice.
    assert compared["gain"] == 0
    held = ("--rival", data["run"])
    against = small.read(
        "compare", "latest:warm", f"{done.json['run']}:final", *held, "--json"
    ).json
    assert against["rivals"][data["run"]]["gain"] == 0
    words = small.read("compare", "latest:warm", f"{done.json['run']}:final", *held).out
    assert f"Held against {data['run']}, " in words
    page = small.root / "rival.html"
    assert small.read("report", done.json["run"], *held, "-o", str(page)).code == 0
    report = json.loads(page.with_suffix(".json").read_text())
    [rival] = [r for s in report["splits"] for r in s["rivals"] if data["run"] in r["name"]]
    assert rival["beyond"]["value"] == 0
    assert f"run {data['run']}" in page.read_text()
    alone = small.run("eval", "--tasks", "2", "--split", "screen", "--json").json
    refused = small.read("report", done.json["run"], "--rival", alone["run"])
    assert (refused.code, "has no rollouts on test or confirm" in refused.err) == (2, True)
    wrong = small.read("eval", "--candidate", "latest/step-9")
    assert wrong.code == 2
    assert "no checkpoint `step-9` was kept. There are: step-2, step-3, warm." in wrong.err


def test_an_a_a_run_shows_noise_before_training_and_on_request(copied: Run):
    small, done = copied
    report = json.loads(Path(done.json["report"]).with_suffix(".json").read_text())
    assert report["noise"]["pairs"] == 3
    assert report["detectable"]["cap"] <= 8
    assert "A/A run before training" in Path(done.json["report"]).read_text()
    words = ("eval", "--aa", "--tasks", "3", "--attempts", "2")
    found = small.run(*words, "--json").json
    assert (found["noise"]["pairs"], found["noise"]["tasks"]) == (6, 3)
    assert found["noise"]["share"] == 0, "greedy and fp32"
    # A deterministic agent is tried once on each of the four confirm tasks.
    assert found["detectable"]["cap"] == 4
    assert "each confirm task once: the agent answers alike each time" in small.run(*words).out


def test_flags_tells_what_guards_found(copied: Run):
    small, done = copied
    data = small.read("flags", done.json["run"], "--json").json
    assert data["rollouts"] > 0
    assert data["blocked"] <= len(data["flagged"])
    assert set(data["guards"]) == {name for row in data["flagged"] for name in row["flags"]}
    text = small.read("flags", done.json["run"])
    assert text.out.startswith(f"{len(data['flagged'])} of {data['rollouts']} graded rollouts")
    watched = small.rows("select count(*) from events where kind = 'watch'")
    assert watched == [(3,)]
    report = json.loads(Path(done.json["report"]).with_suffix(".json").read_text())
    assert "Guards" in dict(report["method"])


def test_probe_puts_every_task_in_one_bucket(copied: Run):
    small, _ = copied
    done = small.run("probe", "--attempts", "3", "--tasks", "4", "--json")
    assert done.code == 0, done.err
    assert done.json["tasks"] == 4
    assert sum(done.json["buckets"].values()) == 4
    assert done.json["rollouts"] == {"planned": 12, "graded": 12, "lost": 0}
    assert done.json["expected_signal"].keys() >= {"4", "8", "16"}
    assert done.json["gate"].keys() == {"discordant_share", "detectable"}


def test_without_a_warm_up_the_baseline_is_the_untrained_model(tmp_path: Path):
    small = Small(make_small_project(tmp_path / "small", warmup=False))
    done = small.run("train", "--steps", "1", "--json")
    assert done.code == 0, done.err
    assert done.json["steps"] == 1
    assert done.json["baseline"] == done.json["untrained"]
    assert "after warm-up" not in Path(done.json["report"]).read_text()
    assert small.rows("select count(*) from rollouts where stage = 'screen' and step < 0") == [(0,)]
