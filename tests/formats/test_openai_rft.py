"""The files of a hosted job become a project; what cannot be carried over is named."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.hosted_job import (
    ENDPOINT,
    SEARCH,
    SECRET,
    STRING_CHECK,
    a_row,
    a_tool,
    lines,
    write_job,
)

from learnloop.codec import load_config
from learnloop.errors import ConfigError, UsageError, UserError
from learnloop.formats.openai_rft import Imported, Sources, read_job_files
from learnloop.formats.openai_rft.grader import Grading
from learnloop.formats.openai_rft.settings import Settings


def rows_of(imported: Imported) -> list[dict[str, Any]]:
    return [json.loads(line) for line in imported.files["data/tasks.jsonl"].splitlines()]


def settings_of(imported: Imported) -> dict[str, Any]:
    return tomllib.loads(imported.files["learnloop.toml"])


def fates(imported: Imported) -> dict[str, str]:
    return {m.source: m.fate for m in imported.mapped}


def refused(sources: Sources, kind: type[UserError] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        read_job_files(sources)
    return caught.value.line()


# --- rows ----------------------------------------------------------------------------------------


def test_rows_keep_every_key_and_get_id_group_and_split(tmp_path: Path):
    odd = {"gold": {"a": [1, 2.5, None]}, "Ä key": "\ud83d", "n": 12345678901234567890}
    train = lines([a_row(0, **odd), a_row(1, id="mine", group="g")])
    imported = read_job_files(write_job(tmp_path, train=train))
    first, second, *held_out = rows_of(imported)
    assert {k: first[k] for k in a_row(0, **odd)} == a_row(0, **odd)
    assert first.keys() - a_row(0, **odd).keys() == {"id", "group", "split"}
    assert (second["id"], second["group"], second["split"]) == ("mine", "g", "train")
    assert {row["split"] for row in held_out} <= {"screen", "confirm"}
    assert len({row["id"] for row in rows_of(imported)}) == 14


def test_equal_rows_get_ids_of_their_own_and_one_group(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path, train=lines([a_row(0), a_row(0), a_row(0)])))
    same = rows_of(imported)[:3]
    assert len({row["id"] for row in same}) == 3
    assert len({row["group"] for row in same}) == 1


def test_importing_twice_gives_the_same_files(tmp_path: Path):
    sources = write_job(tmp_path)
    assert read_job_files(sources).files == read_job_files(sources).files


def test_groups_that_are_in_both_files_are_told_and_one_file_for_both_is_refused(tmp_path: Path):
    sources = write_job(
        tmp_path, train=lines([a_row(0, group="g")]), validation=lines([a_row(1, group="g")])
    )
    notes = read_job_files(sources).notes
    assert any(note.startswith("1 groups are in both files") for note in notes)
    told = refused(replace(sources, validation=sources.train), UsageError)
    assert "is the file of --train too" in told


@pytest.mark.parametrize(
    ("field", "words"),
    [("meta", "`meta`, which --group names, is neither text"), ("author", "names, is missing")],
)
def test_a_group_field_that_cannot_be_one_is_told(tmp_path: Path, field: str, words: str):
    sources = write_job(tmp_path, train=lines([a_row(0, meta={"a": 1})]))
    assert words in refused(replace(sources, group_by=field))


def test_a_validation_file_of_a_hundred_groups_gets_a_sealed_test(tmp_path: Path):
    rows = [a_row(n, document=f"d{n // 3}") for n in range(1000, 1000 + 3 * 400)]
    sources = write_job(tmp_path, train=lines([a_row(0, document="x")]), validation=lines(rows))
    imported = read_job_files(replace(sources, group_by="document"))
    splits = {row["group"]: row["split"] for row in rows_of(imported)[1:]}
    shares = {
        s: list(splits.values()).count(s) / len(splits) for s in ("screen", "confirm", "test")
    }
    assert shares["screen"] == pytest.approx(0.2, abs=0.06)
    assert shares["confirm"] == pytest.approx(0.5, abs=0.06)
    assert shares["test"] == pytest.approx(0.3, abs=0.06)
    assert len({(r["group"], r["split"]) for r in rows_of(imported)}) == len(splits) + 1


def test_fewer_than_a_hundred_groups_get_no_test_and_it_is_said(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path))
    assert "test" not in {row["split"] for row in rows_of(imported)}
    assert any("no sealed test" in note and "12 groups" in note for note in imported.notes)


def test_rows_without_tools_are_warned_of(tmp_path: Path):
    rows = [a_row(n) for n in range(6)]
    for row in rows[:4]:
        del row["tools"]
    imported = read_job_files(write_job(tmp_path, train=lines(rows)))
    assert any(note.startswith("warning: 4 of 18 rows have no `tools`") for note in imported.notes)


def test_a_split_of_the_row_is_kept_under_another_name(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path, train=lines([a_row(0, split="val")])))
    row = rows_of(imported)[0]
    assert (row["split"], row["imported_split"]) == ("train", "val")
    assert any("`imported_split`" in note for note in imported.notes)


def test_bom_crlf_and_blank_lines_are_read(tmp_path: Path):
    text = "\ufeff" + lines([a_row(0), a_row(1)]).replace("\n", "\r\n") + "\r\n  \r\n"
    imported = read_job_files(write_job(tmp_path, train=text))
    assert sum(row["split"] == "train" for row in rows_of(imported)) == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 0, "holds no rows"),
        ("\ufeff\r\n\n", 0, "holds no rows"),
        ("{not json}\n", 1, "is not valid JSON"),
        (lines([a_row(0)]) + "[1]\n", 2, "must be a JSON object"),
        (lines([a_row(0), a_row(1, id="x"), a_row(2, id="x")]), 3, "id `x` is already used on"),
        (lines([a_row(0, messages=[])]), 1, "has no `messages`"),
        (
            lines([a_row(0), a_row(1, messages=[{"role": "assistant", "content": "Hi"}])]),
            2,
            "the last message is from `assistant`, not `user`. End `messages` with what the user",
        ),
        (lines([a_row(0, messages=[{"role": "judge", "content": ""}])]), 1, "role `judge`"),
        (lines([a_row(0, tools={})]), 1, "`tools` must be a list"),
        (lines([a_row(0, tools=[SEARCH, SEARCH])]), 1, "names a tool twice"),
        (lines([a_row(0, id=["a"])]), 1, "`id` must be text"),
        (lines([a_row(0, tools=[{"type": "function", "name": "x"}])]), 1, "write it as {"),
        (
            lines([a_row(0, messages=[{"role": "user", "content": [{"type": "image_url"}]}])]),
            1,
            "content of type `image_url` is not supported, only `text`",
        ),
        ('{"messages": [{"role": "user", "content": "Q"}], "n": 1e999}\n', 1, "too large for JSON"),
        ('{"messages": NaN}\n', 1, "NaN is no JSON number"),
        ('{"a": "' + "x" * 1_000_000 + '"}\n' + lines([a_row(0)]), 1, "longer than 1000000 bytes"),
        (b"\xff\xfe{\x00}\x00", 1, "is not UTF-8 text"),
        ("[" * 100_000 + "\n", 1, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_row_is_one_line_with_its_place(
    tmp_path: Path, text: str | bytes, line: int, words: str
):
    sources = write_job(tmp_path, train=text)
    told = refused(sources)
    place = f"{sources.train}:{line}: " if line else f"{sources.train}: "
    assert told.startswith(place)
    assert words in told
    assert "\n" not in told


def test_a_tool_of_another_name_in_a_row_is_caught_with_the_right_name(tmp_path: Path):
    serach = {"type": "function", "function": {"name": "serach"}}
    told = refused(write_job(tmp_path, train=lines([a_row(0), a_row(1, tools=[serach])])))
    assert told.endswith(
        "train.jsonl:2: names a tool `serach` that the tools list does not have. "
        "Did you mean `search`?"
    )


def test_an_id_in_both_files_is_caught(tmp_path: Path):
    told = refused(
        write_job(
            tmp_path, train=lines([a_row(0, id="same")]), validation=lines([a_row(1, id="same")])
        )
    )
    assert "validation.jsonl:1: id `same` is already used on" in told


def test_a_file_that_is_missing_is_one_line(tmp_path: Path):
    sources = write_job(tmp_path)
    sources.train.unlink()
    assert refused(sources) == f"{sources.train}: cannot be read (No such file or directory)"


# --- tools and secrets ---------------------------------------------------------------------------


def test_secrets_become_references_and_equal_ones_share_a_variable(tmp_path: Path):
    headers = {"Authorization": f"Bearer {SECRET}", "X-Team": "blue ${TEAM}"}
    tools = [a_tool(headers=headers), a_tool(name="cat", headers={"X-Key": SECRET})]
    grader = {**ENDPOINT, "headers": {"Authorization": "Bearer ${GRADER_KEY}"}}
    imported = read_job_files(write_job(tmp_path, tools=tools, grader=grader))
    assert SECRET not in repr(imported)
    settings = settings_of(imported)
    search, cat = settings["tools"]
    assert search["headers"]["Authorization"] == "Bearer ${SEARCH_AUTHORIZATION}"
    assert search["headers"]["X-Team"] == "${SEARCH_X_TEAM}"
    assert cat["headers"] == {"X-Key": "${SEARCH_AUTHORIZATION}"}
    assert settings["grader"]["headers"] == {"Authorization": "Bearer ${GRADER_KEY}"}
    assert imported.variables == {
        "SEARCH_AUTHORIZATION": ("header Authorization of search", "header X-Key of cat"),
        "SEARCH_X_TEAM": ("header X-Team of search",),
        "GRADER_KEY": ("header Authorization of grader",),
    }


def test_a_secret_in_an_address_is_left_out_and_named(tmp_path: Path):
    tools = [a_tool(server_url=f"https://me:{SECRET}@tools.example/search?code={SECRET}#x")]
    imported = read_job_files(write_job(tmp_path, tools=tools))
    assert SECRET not in repr(imported)
    assert settings_of(imported)["tools"][0]["server_url"] == "https://tools.example/search"
    (lost,) = imported.unmapped
    assert lost.source == "search: the user and the query of its address"


@pytest.mark.parametrize(
    ("tools", "words"),
    [
        ({"search": 1}, "must be a list of tools"),
        ([{"server_url": "https://x.example"}], "tool 1: has no usable `name`"),
        ([{"name": "a b", "server_url": "https://x.example"}], "tool 1: has no usable `name`"),
        ([{"name": "search"}], "tool 1: has no `server_url`"),
        ([a_tool(), a_tool()], "tool 2: `search` is named twice"),
        ([a_tool(server_url="ftp://x")], "`server_url` is not an http address"),
        ([a_tool(server_url="http://[::1")], "`server_url` is not a web address"),
        ([a_tool(headers={"Authorization": [SECRET]})], "header `Authorization` is not a text"),
        ([a_tool(headers=SECRET)], "headers: must be a JSON object"),
    ],
)
def test_a_tools_list_that_cannot_be_used_is_one_line_without_its_values(
    tmp_path: Path, tools: Any, words: str
):
    told = refused(write_job(tmp_path, tools=tools))
    assert told.startswith(str(tmp_path / "tools.json"))
    assert words in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("http://localhost:8000/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:80/x", True),
        ("http://10.0.0.7/x", True),
        ("https://tools.example/x", False),
        ("https://8.8.8.8/x", False),
    ],
)
def test_private_addresses_are_allowed_only_where_the_job_has_them(
    tmp_path: Path, *, url: str, private: bool
):
    imported = read_job_files(write_job(tmp_path, tools=[a_tool(server_url=url)]))
    assert ("network" in settings_of(imported)) is private


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_name_is_a_valid_toml_text(name: str):
    settings = Settings(job={"project.name": name}, tools=(), grading=Grading())
    read = tomllib.loads(settings.toml())["project"]["name"]
    assert read == name.encode("utf-8", "replace").decode()


# --- graders -------------------------------------------------------------------------------------


def test_a_string_check_becomes_one_of_ours(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path, grader=STRING_CHECK))
    want = {"type": "string_check", "reference": "answer", "operation": "ilike"}
    assert settings_of(imported)["grader"] == want
    assert imported.unmapped == ()
    assert fates(imported)["grader: name"] == "ignored"


def test_a_string_check_may_compare_with_a_field_inside_another(tmp_path: Path):
    grader = {**STRING_CHECK, "reference": "{{ item.gold.text }}"}
    inner = lines([a_row(0, gold={"text": "Oslo"})])
    imported = read_job_files(write_job(tmp_path, train=inner, validation=inner, grader=grader))
    assert settings_of(imported)["grader"]["reference"] == "gold.text"
    told = refused(write_job(tmp_path, train=lines([a_row(0, gold={"text": 1})]), grader=grader))
    assert "has no text `gold.text`" in told


def test_a_string_check_needs_its_text_in_every_row(tmp_path: Path):
    rows = lines([a_row(0), a_row(1, answer=7)])
    told = refused(write_job(tmp_path, train=rows, grader=STRING_CHECK))
    assert "train.jsonl:2: has no text `answer`, which the grader compares with" in told


@pytest.mark.parametrize(
    "change",
    [{"reference": "always this"}, {"reference": "{{item.a[0]}}"}, {"input": "{{item.answer}}"}],
)
def test_a_string_check_of_another_shape_is_not_mapped(tmp_path: Path, change: dict[str, str]):
    imported = read_job_files(write_job(tmp_path, grader={**STRING_CHECK, **change}))
    assert [m.source for m in imported.unmapped] == ["grader string_check"]


def test_an_endpoint_keeps_its_address_and_says_what_is_ignored(tmp_path: Path):
    grader = {**ENDPOINT, "name": "mine", "rate_limit": 0, "pass_threshold": 0, "warp": 9}
    imported = read_job_files(write_job(tmp_path, grader=grader))
    assert settings_of(imported)["grader"] == ENDPOINT
    for name in ("name", "rate_limit", "pass_threshold", "warp"):
        assert fates(imported)[f"grader: {name}"] == "ignored"


def test_an_endpoints_pass_mark_and_rate_are_settings_and_the_unit_is_told(tmp_path: Path):
    grader = {**ENDPOINT, "rate_limit": 10, "pass_threshold": 0.5}
    sources = write_job(tmp_path, grader=grader)
    imported = read_job_files(sources)
    assert settings_of(imported)["grader"] == grader
    told = {m.source: m for m in imported.mapped}
    threshold, rate = told["grader: pass_threshold"], told["grader: rate_limit"]
    assert (threshold.fate, threshold.target) == ("taken", "grader.pass_threshold")
    assert (rate.fate, rate.target) == ("approximated", "grader.rate_limit")
    assert rate.why == "taken as requests a second; the hosted service does not document its unit"


@pytest.mark.parametrize("threshold", [5, -0.5])
def test_a_pass_mark_on_another_scale_is_not_mapped(tmp_path: Path, threshold: float):
    grader = {**ENDPOINT, "pass_threshold": threshold}
    imported = read_job_files(write_job(tmp_path, grader=grader))
    assert [m.source for m in imported.unmapped] == ["grader: pass_threshold"]
    assert settings_of(imported)["grader"] == ENDPOINT
    assert imported.gradeable


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pass_threshold": "0.5"}, "`pass_threshold` is not a number"),
        ({"pass_threshold": True}, "`pass_threshold` is not a number"),
        ({"rate_limit": [1]}, "`rate_limit` is not a number"),
        ({"rate_limit": float("inf")}, "is not valid JSON: Infinity is no JSON number"),
        ({"rate_limit": -1}, "`rate_limit` is -1, outside 0 to 1e+06"),
    ],
)
def test_a_limit_that_is_no_number_is_refused(tmp_path: Path, change: dict[str, Any], words: str):
    told = refused(write_job(tmp_path, grader={**ENDPOINT, **change}))
    assert told.startswith(str(tmp_path / "grader.json"))
    assert words in told


def test_graders_that_are_not_here_yet_are_named_one_by_one(tmp_path: Path):
    kinds = ("text_similarity", "score_model", "label_model", "python")
    inner = {kind: {"type": kind} for kind in kinds}
    grader = {"type": "multi", "graders": {**inner, "own": ENDPOINT}, "calculate_output": "own"}
    imported = read_job_files(write_job(tmp_path, grader=grader))
    named = [m.source for m in imported.unmapped]
    assert named == [
        "grader (multi)",
        *(f"grader.{kind} ({kind})" for kind in kinds),
        "grader.own (endpoint)",
    ]
    assert all(m.why for m in imported.unmapped)
    assert not imported.gradeable


@pytest.mark.parametrize("grader", [{}, {"type": "magic"}, {"type": ["endpoint"]}, [1], "x"])
def test_what_is_no_grader_is_refused(tmp_path: Path, grader: Any):
    assert refused(write_job(tmp_path, grader=grader)).startswith(str(tmp_path / "grader.json"))


# --- the job -------------------------------------------------------------------------------------

JOB: dict[str, Any] = {
    "model": "o4-mini-2025-04-16",
    "suffix": "shop",
    "seed": 7,
    "training_file": "file-1",
    "metadata": {},
    "method": {
        "type": "reinforcement",
        "reinforcement": {
            "max_episode_steps": 20,
            "hyperparameters": {
                "batch_size": 4,
                "n_epochs": 3,
                "learning_rate_multiplier": 2.0,
                "compute_multiplier": 0.5,
                "eval_interval": 2,
                "eval_samples": 3,
                "reasoning_effort": "high",
            },
        },
    },
}


def test_arguments_become_settings_and_each_is_told(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path, job=JOB))
    settings = settings_of(imported)
    assert settings["project"]["name"] == "shop"
    # 6 rows x 3 epochs / 4 rows a step, rounded up; 8 rollouts of a row before the multiplier.
    assert settings["train"] == {
        "seed": 7,
        "rollouts": 32,
        "group_size": 8,
        "compute_multiplier": 0.5,
        "steps": 5,
        "eval_every": 2,
        "rft": {"learning_rate": 6e-5},
    }
    assert (settings["agent"]["max_rounds"], settings["agent"]["max_calls"]) == (20, 20)
    told = fates(imported)
    assert told["batch_size"] == told["n_epochs"] == told["seed"] == told["suffix"] == "taken"
    assert told["compute_multiplier"] == told["learning_rate_multiplier"] == "approximated"
    assert told["model"] == told["eval_samples"] == told["reasoning_effort"] == "ignored"
    assert all(m.why for m in imported.mapped if m.fate in {"approximated", "ignored"})


def test_the_settings_are_valid_and_make_as_many_rollouts_as_is_told(tmp_path: Path):
    imported = read_job_files(write_job(tmp_path, job=JOB, grader={**ENDPOINT, "rate_limit": 10}))
    (tmp_path / "learnloop.toml").write_text(imported.files["learnloop.toml"])
    config = load_config(tmp_path / "learnloop.toml")
    assert (config.train.tasks_per_step, config.train.per_task) == (4, 4)
    why = {m.source: m.why for m in imported.mapped}
    assert why["batch_size"] == "4 rows a step, 4 rollouts each"
    assert why["compute_multiplier"].startswith("4 rollouts of a row: 1 means 8 here, 32 on")


def test_auto_leaves_the_defaults_and_an_unknown_argument_is_told(tmp_path: Path):
    job = {"hyperparameters": {"batch_size": "auto", "n_epochs": "auto", "warp": 9}}
    imported = read_job_files(write_job(tmp_path, job=job))
    assert settings_of(imported)["train"] == {"rollouts": 48, "group_size": 8}  # only 6 rows
    assert fates(imported)["warp"] == "ignored"
    assert fates(imported)["n_epochs"] == "taken"


def test_values_that_may_be_secret_are_not_shown(tmp_path: Path):
    own = {"x_api_key": SECRET, "metadata": {"k": SECRET}}
    job = {"integrations": [{"wandb": {"key": SECRET}}], **own}
    imported = read_job_files(write_job(tmp_path, job=job))
    assert SECRET not in repr(imported)
    assert fates(imported)["integrations"] == fates(imported)["x_api_key"] == "ignored"


def test_grader_and_tools_may_stand_in_the_job(tmp_path: Path):
    own = {"grader": STRING_CHECK, "tools": [a_tool(headers={"X-Key": SECRET})]}
    job = {"method": {"type": "reinforcement", "reinforcement": own}}
    sources = write_job(tmp_path, job=job)
    imported = read_job_files(replace(sources, grader=None, tools=None))
    assert settings_of(imported)["grader"]["type"] == "string_check"
    assert settings_of(imported)["tools"][0]["name"] == "search"
    assert SECRET not in repr(imported)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"hyperparameters": {"batch_size": 0}}, "`batch_size` is 0, not `auto` or a whole"),
        ({"hyperparameters": {"n_epochs": "two"}}, '`n_epochs` is "two"'),
        ({"hyperparameters": {"n_epochs": True}}, "`n_epochs` is true"),
        ({"hyperparameters": {"compute_multiplier": 11}}, "`compute_multiplier` is 11"),
        ({"hyperparameters": {"compute_multiplier": 1e-5}}, "`compute_multiplier` is 1e-05"),
        ({"hyperparameters": {"n_epochs": "3"}}, '`n_epochs` is "3", not `auto` or a whole'),
        ({"hyperparameters": [1]}, "hyperparameters: must be a JSON object"),
        ({"method": {"type": "dpo"}}, "is a job of type `dpo`, not `reinforcement`"),
        ({"suffix": 5}, "`suffix` is not a text"),
        ({"seed": 1.5}, "`seed` is 1.5"),
    ],
)
def test_a_job_that_the_service_would_refuse_is_refused(tmp_path: Path, job: Any, words: str):
    told = refused(write_job(tmp_path, job=job))
    assert told.startswith(str(tmp_path / "job.json"))
    assert words in told
