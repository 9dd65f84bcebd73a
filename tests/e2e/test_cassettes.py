"""Cassettes in runs: what one `eval` recorded, another one answers from."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.conftest import Small
from tests.e2e.small_project import make_small_project
from tests.tiny_project import edit


def test_eval_from_a_cassette_needs_no_server_and_its_command_names_no_place(tmp_path: Path):
    small = Small(make_small_project(tmp_path / "small", warmup=False))
    tape = small.root / "tape.jsonl"
    recorded = small.run("eval", "--tasks", "1", "--record-tools", str(tape), "--json")
    assert recorded.code == 0, recorded.err
    assert '"search"' in tape.read_text()
    for name in ("Finds.", "Opens."):
        there = f'"{{service:box}}/call"\ndescription = "{name}"'
        edit(small.root, there, there.replace("{service:box}", "http://127.0.0.1:9"))
    assert small.run("eval", "--tasks", "1").code == 5
    replayed = small.run("eval", "--tasks", "1", "--replay-tools", str(tape), "--json")
    assert replayed.code == 0, replayed.err
    assert small.rows(
        f"select json_extract(meta_json, '$.command') from runs where id = '{replayed.json['run']}'"
    ) == [("learnloop eval --tasks 1 --replay-tools tape.jsonl --split screen --attempts 1",)]


def test_training_can_be_recorded_and_a_resumed_run_adds_to_the_cassette(tmp_path: Path):
    small = Small(make_small_project(tmp_path / "small", warmup=False))
    tape = small.root / "tape.jsonl"
    poor = small.run(
        "train", "--steps", "1", "--record-tools", str(tape), LEARNLOOP_BUDGET__ROLLOUTS="3"
    )
    assert poor.code == 6, poor.err
    done = small.run(
        "train", "--resume", "latest", "--record-tools", str(tape), LEARNLOOP_BUDGET__ROLLOUTS="0"
    )
    assert done.code == 0, done.err
    entries = [json.loads(line) for line in tape.read_text().splitlines()]
    assert sum("cassette" in entry for entry in entries) == 2
    [(calls,)] = small.rows("select sum(calls) from rollouts")
    assert sum("output" in entry for entry in entries) == calls
