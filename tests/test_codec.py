"""Traces survive JSON to the bit; configuration and datasets name their mistakes."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from learnloop.codec import (
    config_changes,
    config_from_json,
    config_hash,
    config_json,
    load_config,
    load_demos,
    load_tasks,
    message_from_chat,
    message_to_chat,
    read_config,
    schema_from_chat,
    schema_to_chat,
    trace_from_json,
    trace_to_json,
)
from learnloop.codec.tomllines import key_lines
from learnloop.config import Config, GraderConfig, ToolConfig, WarmupConfig, public_url
from learnloop.errors import ConfigError
from learnloop.message import Message, ToolCall
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn

CALL = ToolCall(id="call_1", name="cat", arguments='{"path": "a"}')


def a_trace(attempt: int = 0, tokens: int = 100) -> Trace:
    rng = random.Random(attempt)
    return Trace(
        id=f"trace_{attempt}",
        task_id="a",
        candidate_id="cand_1",
        attempt=attempt,
        seed=2**62 + attempt,
        messages=(
            Message(role="user", content="half a pair \ud800, é, \u2028 and \x00"),
            Message(role="assistant", content="", tool_calls=(CALL,)),
            Message(role="tool", content="x", tool_call_id="call_1", name="cat"),
        ),
        turns=tuple(
            Turn(
                text="x",
                tool_calls=(CALL,),
                finish_reason="tool_calls",
                token_ids=tuple(rng.randrange(50_000) for _ in range(tokens)),
                logprobs=tuple(-rng.random() * 10.0 ** rng.randint(-12, 2) for _ in range(tokens)),
                tokens_out=tokens,
            )
            for _ in range(3)
        ),
        calls=(CallRecord(call=CALL, round=0, output="x", latency_s=0.1, retries=1),),
        score=Score(value=1 / 3, correct=1.0, parts={"valid": 1.0}, flags=("copied",)),
    )


def test_a_trace_comes_back_equal_to_the_last_bit():
    failed = Trace(
        id="t",
        task_id="a",
        candidate_id="c",
        attempt=1,
        seed=0,
        outcome="infra_fault",
        finish_reason="infra",
        failure=Failure(boundary="tool", kind="5xx", message="down"),
    )
    zero = Trace(
        id="z",
        task_id="a",
        candidate_id="c",
        attempt=0,
        seed=0,
        score=Score(value=0.0, correct=0.0),
    )
    for trace in (a_trace(), failed, zero):
        text = trace_to_json(trace)
        assert trace_from_json(text) == trace
        text.encode("ascii")


def test_a_thousand_traces_of_three_hundred_logprobs_take_less_than_a_second_each_way():
    traces = [a_trace(i) for i in range(1000)]
    start = time.process_time()
    texts = [trace_to_json(t) for t in traces]
    back = [trace_from_json(t) for t in texts]
    assert time.process_time() - start < 2.0
    assert back == traces


def test_text_that_is_no_trace_is_refused():
    for text in ("[]", "{}", '{"id": 1, "surprise": 2}', "{"):
        with pytest.raises(ValueError):  # noqa: PT011  (whatever the message)
            trace_from_json(text)


def test_messages_and_schemas_survive_the_chat_form():
    for message in a_trace().messages:
        assert message_from_chat(message_to_chat(message)) == message
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "cat", "description": "d", "parameters": {}},
    }
    schema = schema_from_chat(tool)
    assert schema_from_chat(schema_to_chat(schema)) == schema
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    assert message_from_chat(parts).content == "ab"


# --- configuration -------------------------------------------------------------------------------

GOOD = """\
[project]
name = "demo"

[[tools]]
name = "search"
server_url = "{service:tools}/search"
[tools.headers]
Authorization = "Bearer ${TOKEN}"

[[services]]
name = "tools"
command = [
  "{python}", # a comment
  "server.py",
]

[train]
steps = 3
[train.rft]
learning_rate = 1e-4
"""


def config_of(folder: Path, text: str = GOOD, **layers: Mapping[str, Any]) -> Config:
    path = folder / "learnloop.toml"
    path.write_text(text)
    return load_config(path, **layers)


def mistake(folder: Path, text: str, **layers: Mapping[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(folder, text, **layers)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.line()
    return caught.value.line()


MISTAKES = [
    (
        "steps = 3",
        "stps = 3",
        "learnloop.toml:18: unknown setting `train.stps`. Did you mean `steps`?",
    ),
    ("[train]", "[trian]", "learnloop.toml:17: unknown section `trian`. Did you mean `train`?"),
    (
        "steps = 3",
        'steps = "3"',
        'learnloop.toml:18: `train.steps` must be a whole number, not "3"',
    ),
    (
        "steps = 3",
        "steps = 3.5",
        "learnloop.toml:18: `train.steps` must be a whole number, not 3.5",
    ),
    (
        "steps = 3",
        "steps = true",
        "learnloop.toml:18: `train.steps` must be a whole number, not true",
    ),
    ("steps = 3", "steps = -1", "learnloop.toml:18: `train.steps` is -1, outside 0 to 1e+06"),
    ("1e-4", "nan", "learnloop.toml:20: `train.rft.learning_rate` must be a finite number"),
    ("1e-4", "inf", "learnloop.toml:20: `train.rft.learning_rate` must be a finite number"),
    (
        "steps = 3",
        'optimizer = "rtf"',
        "learnloop.toml:18: `train.optimizer` is `rtf`, not a choice. Did you mean `rft`?",
    ),
    ("steps = 3", "steps =", "learnloop.toml:18: is not valid TOML: Invalid value"),
    ('name = "search"\n', "", "learnloop.toml:4: `tools[0].name` is missing"),
    ('"search"', '"a b"', "learnloop.toml:5: `tools[0].name` is `a b`, not a valid name."),
    (
        '"server.py"',
        "3",
        "learnloop.toml:12: `services[0].command[1]` must be text in quotes, not 3",
    ),
    (
        "{service:tools}",
        "{service:tols}",
        "learnloop.toml:6: `tools[0].server_url` names a service `tols` that does not exist. "
        "Did you mean `tools`?",
    ),
    (
        "[train]",
        "[splits]\ntrain = 0.9\n[train]",
        "learnloop.toml:17: `splits` adds up to 1.5, not 1",
    ),
    (
        "[train]",
        '[grader]\ntype = "numerical"\n[train]',
        "learnloop.toml:18: `grader.type` is `numerical`, an unknown kind. Did you mean `numeric`?",
    ),
    ("[train]", "[train]\nrollouts = 8", "learnloop.toml:18: `train.rollouts` is 8, fewer than"),
    (
        "[train]",
        "[train]\nrollouts = 40",
        "learnloop.toml:18: `train.rollouts` is 40, no multiple of `train.group_size`, which is 16. "
        "Use 32 or 48",
    ),
    (
        "[train]",
        '[grader]\ntype = "endpoint"\nurl = "http://x.example"\ncost_weight = 0.1\n[train]',
        "learnloop.toml:20: `grader.cost_weight` is above 0 with a grader of type `endpoint`, whose partial",
    ),
]


@pytest.mark.parametrize(("old", "new", "line"), MISTAKES)
def test_a_wrong_setting_is_one_line_with_place_and_fix(
    tmp_path: Path, old: str, new: str, line: str
):
    assert mistake(tmp_path, GOOD.replace(old, new)).startswith(line)


def test_several_mistakes_are_counted(tmp_path: Path):
    line = mistake(tmp_path, GOOD.replace("steps = 3", "stps = 3\nsed = 1"))
    assert "(1 more problem in this file)" in line


def test_a_secret_header_is_never_in_an_error_nor_in_what_is_stored(tmp_path: Path):
    line = mistake(tmp_path, GOOD.replace('"Bearer ${TOKEN}"', "31415926"))
    assert "31415926" not in line
    config = config_of(tmp_path, GOOD.replace("Bearer ${TOKEN}", "Bearer sk-31415926"))
    assert "31415926" not in config_json(config)
    assert config.tools[0].headers["Authorization"] == "Bearer sk-31415926"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@host:8/a@b?key=k1&k2#k3", "https://***@host:8/a@b?key=***&***"),
        ("https://pw@host", "https://***@host"),
        ("{service:tools}/call?key=", "{service:tools}/call?key=***"),
        ("http://127.0.0.1:{port}/health", "http://127.0.0.1:{port}/health"),
        ("http://host/a@b", "http://host/a@b"),
    ],
)
def test_secrets_of_an_address_are_masked_and_the_rest_stays(url: str, shown: str):
    assert public_url(url) == shown


def test_secrets_in_addresses_are_not_stored(tmp_path: Path):
    text = GOOD.replace('"{service:tools}', '"https://me:sk-314@x.example')
    assert text != GOOD
    environ = {"LEARNLOOP_GRADER__URL": "https://x.example/?key=sk-314"}
    config = config_of(tmp_path, text, environ=environ)
    assert "sk-314" in config.tools[0].server_url
    assert "sk-314" not in config_json(config)


def test_references_to_the_environment_are_stored_as_references(tmp_path: Path):
    config = config_of(tmp_path, environ={"TOKEN": "hush-hush"})
    assert "Bearer ${TOKEN}" in config_json(config)
    assert "hush-hush" not in config_json(config)


def test_environment_overrides_the_file_and_flags_override_both(tmp_path: Path):
    environ = {"LEARNLOOP_TRAIN__STEPS": "7", "LEARNLOOP_TRAIN__RFT__LORA_RANK": "4"}
    environ |= {"LEARNLOOP_PROJECT__NAME": "12", "LEARNLOOP_REQUIRE": "chromium", "PATH": "/x"}
    (tmp_path / "learnloop.toml").write_text(GOOD)
    loaded = read_config(tmp_path / "learnloop.toml", environ=environ, flags={"train.rollouts": 32})
    config = loaded.config
    assert (config.train.steps, config.train.rft.lora_rank, config.train.rollouts) == (7, 4, 32)
    assert config.project.name == "12"
    assert loaded.origins["train.steps"] == "LEARNLOOP_TRAIN__STEPS"
    assert loaded.origins["train.rollouts"] == "--rollouts"
    assert loaded.origins["train.rft.learning_rate"] == "learnloop.toml:20"
    assert "train.seed" not in loaded.origins


def test_a_wrong_variable_is_named(tmp_path: Path):
    line = mistake(tmp_path, GOOD, environ={"LEARNLOOP_TRAIN__STPS": "7"})
    assert line == "LEARNLOOP_TRAIN__STPS: unknown setting `train.stps`. Did you mean `steps`?"
    line = mistake(tmp_path, GOOD, environ={"LEARNLOOP_TRAIN__STEPS": "many"})
    assert line == 'LEARNLOOP_TRAIN__STEPS: `train.steps` must be a whole number, not "many"'
    line = mistake(tmp_path, GOOD, environ={"LEARNLOOP_TOOLS__NAME": "x"})
    assert line.startswith("LEARNLOOP_TOOLS__NAME: ")


def test_a_file_that_is_missing_or_no_text_is_one_line(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "learnloop.toml")
    (tmp_path / "learnloop.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "learnloop.toml")


def test_a_byte_order_mark_as_windows_writes_it_is_no_mistake(tmp_path: Path):
    (tmp_path / "learnloop.toml").write_bytes(b'\xef\xbb\xbf[project]\nname = "mine"\n')
    assert load_config(tmp_path / "learnloop.toml").project.name == "mine"


def test_a_configuration_survives_its_json_and_changes_are_named(tmp_path: Path):
    config = config_of(tmp_path)
    text = config_json(config)
    assert config_from_json(text) == config
    assert config_hash(config) == config_hash(config_of(tmp_path))
    other = config_of(tmp_path, GOOD.replace("steps = 3", "steps = 4"))
    assert config_hash(other) != config_hash(config)
    assert config_changes(text, config_json(other)) == ["train.steps"]


def test_lines_are_found_through_comments_multiline_values_and_repeated_tables():
    text = """\
# [train]
a.b = 1
text = \"\"\"
[x]
y = 2
\"\"\"
[[t]]
n = [
  [1],
]
[[t]]
n = 2
[t.sub]
"quoted.key" = {inner = 1}
"""
    lines = key_lines(text)
    assert lines["a", "b"] == 2
    assert ("x",) not in lines
    assert (lines["t", 0], lines["t", 0, "n"], lines["t", 1], lines["t", 1, "n"]) == (7, 8, 11, 12)
    assert lines["t", 1, "sub", "quoted.key", "inner"] == 14


# --- datasets ------------------------------------------------------------------------------------

SCHEMA = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
CONFIG = Config(
    tools=(
        ToolConfig(name="search", server_url="http://x/search", description="Finds."),
        ToolConfig(name="cat", server_url="http://x/cat"),
    ),
    warmup=WarmupConfig(path="data/demos.jsonl"),
)


def row(**changes: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "how many?"}], "answer": 3, **changes}


def rows_file(folder: Path, *rows: dict[str, Any] | str) -> Path:
    path = folder / "tasks.jsonl"
    lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def bad_rows(folder: Path, *rows: dict[str, Any] | str, config: Config = CONFIG) -> str:
    with pytest.raises(ConfigError) as caught:
        load_tasks(rows_file(folder, *rows), config)
    assert caught.value.exit_code == 4
    assert "\n" not in caught.value.line()
    return caught.value.line()


def assistant_last() -> dict[str, Any]:
    return row(messages=[{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])


BAD_ROWS: list[tuple[dict[str, Any] | str, str]] = [
    ("{", "is not valid JSON"),
    ("[1]", "must be a JSON object"),
    ("[" * 100_000, "is nested too deeply"),
    ('{"answer": NaN}', "is not valid JSON: NaN is no JSON number"),
    (row(id=""), "`id` is empty"),
    (row(id="  "), "`id` is empty"),
    (row(id=[1]), "`id` must be text"),
    (row(id="first"), "id `first` is already used on line 1"),
    (assistant_last(), "the last message is from `assistant`, not `user`"),
    (row(messages=[]), "has no `messages`"),
    (row(messages=[{"role": "usr", "content": "x"}]), "role `usr` is unknown; there are system,"),
    (row(messages=[{"role": "user", "content": 3}]), "`content` of a message must be text"),
    (row(split="tain"), "split `tain` is unknown. Did you mean `train`?"),
    (
        row(tools=[{"function": {"name": "serach"}}]),
        "names a tool `serach` that the project does not",
    ),
    (row(tools=[SCHEMA, SCHEMA]), "names a tool twice"),
    (row(tools={}), "`tools` must be a list"),
    (row(answer=None), "has no `answer`, which the numeric grader needs"),
    (row(answer="many"), "`answer` is not a number"),
    (row(answer=True), "`answer` is not a number"),
]


@pytest.mark.parametrize(("bad", "what"), BAD_ROWS)
def test_a_bad_row_is_named_with_file_and_line(
    tmp_path: Path, bad: dict[str, Any] | str, what: str
):
    line = bad_rows(tmp_path, row(id="first", split="train"), bad)
    assert line.startswith(f"data/tasks.jsonl:2: {what}")


def test_all_bad_rows_are_counted(tmp_path: Path):
    line = bad_rows(tmp_path, row(id="a"), assistant_last(), "{", row(id="a"))
    assert line.startswith("data/tasks.jsonl:2: ")
    assert "(2 more bad rows)" in line


def test_an_empty_or_missing_dataset_is_an_error(tmp_path: Path):
    assert bad_rows(tmp_path, "") == "data/tasks.jsonl: holds no tasks"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tasks(tmp_path / "none.jsonl", CONFIG)


def test_a_row_without_split_among_rows_with_one_is_an_error(tmp_path: Path):
    line = bad_rows(tmp_path, row(id="a", split="test"), row(id="b"))
    assert line == "data/tasks.jsonl:2: has no `split` though other rows do"


def test_rows_without_ids_are_named_by_content_and_equal_ones_are_refused(tmp_path: Path):
    first = load_tasks(rows_file(tmp_path, row(), row(answer=4)), CONFIG)
    again = load_tasks(rows_file(tmp_path, row(answer=4), row()), CONFIG)
    assert {t.id for t in first} == {t.id for t in again}
    assert "is already used on line 1" in bad_rows(tmp_path, row(), row())


def test_splits_are_assigned_by_group_when_rows_bring_none(tmp_path: Path):
    rows = [row(id=f"{g}-{i}", group=f"g{g}") for g in range(200) for i in range(2)]
    tasks = load_tasks(rows_file(tmp_path, *rows), CONFIG)
    splits = {t.group: t.split for t in tasks}
    assert all(splits[t.group] == t.split for t in tasks)
    assert set(splits.values()) == {"train", "screen", "confirm", "test"}
    train = sum(s == "train" for s in splits.values()) / len(splits)
    assert math.isclose(train, 0.4, abs_tol=0.15)


def test_messages_start_with_the_system_prompt_unless_the_row_has_its_own(tmp_path: Path):
    own = row(messages=[{"role": "developer", "content": "mine"}, {"role": "user", "content": "x"}])
    tasks = load_tasks(rows_file(tmp_path, row(), own), CONFIG, system_prompt="yours")
    assert [t.messages[0].content for t in tasks] == ["yours", "mine"]
    assert all(t.messages[0].role == "system" and t.messages[-1].role == "user" for t in tasks)


def test_a_row_offers_its_own_tools_or_those_the_project_describes(tmp_path: Path):
    tasks = load_tasks(rows_file(tmp_path, row(), row(tools=[SCHEMA], answer=1)), CONFIG)
    assert [[t.name for t in task.tools] for task in tasks] == [["search"], ["search"]]
    assert tasks[0].tools[0].description == "Finds."
    assert tasks[1].tools[0].parameters_json == '{"type":"object"}'


def test_the_item_is_the_whole_row(tmp_path: Path):
    data = row(id=7, kind="lookup", company="A", tools=[SCHEMA])
    task = load_tasks(rows_file(tmp_path, data), CONFIG)[0]
    assert (task.id, task.kind, task.group) == ("7", "lookup", "7")
    assert task.item == data


def test_an_endpoint_grader_needs_no_answer_in_the_rows(tmp_path: Path):
    config = Config(grader=GraderConfig(type="endpoint", url="http://x/grade"))
    data = row(id="a")
    del data["answer"]
    assert len(load_tasks(rows_file(tmp_path, data), config)) == 1


def test_demonstrations_end_with_the_assistant_and_are_limited(tmp_path: Path):
    demo = {
        "task_id": "a",
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "Answer: 3"},
        ],
    }
    more = [{**demo, "id": str(i)} for i in range(300)]
    demos = load_demos(rows_file(tmp_path, demo, *more), CONFIG, system_prompt="p")
    assert len(demos) == 200
    assert demos[0].task_id == "a"
    assert [m.role for m in demos[0].messages] == ["system", "user", "assistant"]
    with pytest.raises(ConfigError, match="not `assistant`"):
        load_demos(rows_file(tmp_path, row()), CONFIG)


def test_tool_calls_that_are_no_list_are_a_bad_row(tmp_path: Path):
    row = {"messages": [{"role": "assistant", "content": "", "tool_calls": 5}], "answer": 1}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"tasks\.jsonl:1: `tool_calls` of a message must be a"):
        load_tasks(tmp_path / "tasks.jsonl", Config())


def test_a_setting_that_is_newer_than_a_run_counts_as_its_default() -> None:
    tree = json.loads(config_json(Config()))
    del tree["train"]["rft"]["updates_per_step"]
    before = json.dumps(tree)
    assert config_changes(before, config_json(Config())) == []
    rft = replace(Config().train.rft, updates_per_step=2)
    changed = replace(Config(), train=replace(Config().train, rft=rft))
    assert config_changes(before, config_json(changed)) == ["train.rft.updates_per_step"]
