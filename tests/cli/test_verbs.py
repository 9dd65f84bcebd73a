"""Each verb on real files and servers; every bad input is one line with the right exit code."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Learnloop
from tests.tiny_project import a_row, edit, make_project, write_rows


def state_of(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# --- init ----------------------------------------------------------------------------------------


def test_init_makes_a_project_and_never_overwrites(learnloop: Learnloop, tmp_path: Path):
    done = learnloop("init", "mine")
    assert done.code == 0
    assert done.out == "mine\n"
    assert done.err.endswith("next: learnloop check mine\n")
    assert {"learnloop.toml", "AGENTS.md"} <= {p.name for p in (tmp_path / "mine").iterdir()}
    assert not (tmp_path / "mine" / "data").exists()
    before = state_of(tmp_path)
    again = learnloop("init", "mine")
    assert again.code == 2
    assert again.line.startswith("error: mine/")
    assert again.line.endswith("is there already and is never overwritten. Name another folder.")
    assert state_of(tmp_path) == before


def test_init_joins_a_folder_with_other_files(learnloop: Learnloop, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep me")
    done = learnloop("init", "mine", "--json")
    assert done.code == 0
    assert done.json["schema_version"] == 1
    assert (tmp_path / "mine" / "learnloop.toml").is_file()
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep me"
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_init_names_the_templates_it_knows(learnloop: Learnloop, tmp_path: Path):
    done = learnloop("init", "mine", "--template", "report")
    assert done.code == 2
    assert done.line == "error: template `report` is unknown. Did you mean `reports`?"
    assert list(tmp_path.iterdir()) == []


# --- models, doctor, config ----------------------------------------------------------------------


def test_models_list_tells_state_and_next_command(learnloop: Learnloop):
    done = learnloop("models", "list", "--json")
    assert done.code == 0
    assert done.json["models"][0]["name"] == "smollm2-135m"
    assert done.json["models"][0]["state"] == "missing"
    assert done.line == "next: learnloop models pull smollm2-135m"
    assert "smollm2-135m" in learnloop("models", "list").out


def test_pulling_an_unknown_model_is_one_line(learnloop: Learnloop):
    done = learnloop("models", "pull", "smollm3")
    assert done.code == 4
    assert done.line.startswith("error: smollm3: ")


def test_pulling_from_a_file_that_is_no_model_leaves_nothing(learnloop: Learnloop, tmp_path: Path):
    (tmp_path / "junk.gguf").write_text("junk")
    done = learnloop("models", "pull", "smollm2-135m", "--from", "junk.gguf")
    assert done.code == 4
    assert done.err.splitlines()[-1].startswith("error: ")
    cache = tmp_path / "cache"
    assert not any(p.suffix in {".gguf", ".safetensors"} for p in cache.rglob("*"))


def test_doctor_looks_over_the_machine(learnloop: Learnloop):
    done = learnloop("doctor", "--json")
    names = [f["name"] for f in done.json["findings"]]
    assert "python" in names
    assert done.code == (0 if done.json["ok"] else 4)
    assert learnloop("doctor").out.count("\n") == len(names)


def test_config_show_tells_values_and_where_they_were_set(learnloop: Learnloop, root: Path):
    done = learnloop("config", "show", root, "--origin", LEARNLOOP_TRAIN__STEPS="7")
    assert done.code == 0
    assert "train.steps = 7  # LEARNLOOP_TRAIN__STEPS" in done.out
    assert 'project.name = "tiny"  # learnloop.toml:2' in done.out
    assert "train.seed = 0  # default" in done.out
    data = learnloop("config", "show", "--project", root, "--json").json
    assert data["settings"]["model.ref"] == "model"
    assert data["hash"].startswith("cfg_")


def test_config_show_masks_secrets(learnloop: Learnloop, root: Path):
    edit(root, 'description = "Opens."', 'description = "Opens."\nheaders = { X-Key = "sk-31415" }')
    for words in (("config", "show"), ("config", "show", "--json"), ("check",)):
        done = learnloop(*words, cwd=root)
        assert done.code == 0
        assert "31415" not in done.out + done.err


# --- check ---------------------------------------------------------------------------------------


def test_check_passes_a_sound_project_and_names_the_next_command(learnloop: Learnloop, root: Path):
    done = learnloop("check", cwd=root)
    assert done.code == 0
    assert done.line == "next: learnloop train"
    assert done.out.splitlines()[-1].startswith("a run makes 844 rollouts")
    data = learnloop("check", root, "--json").json
    assert data["ok"] is True
    assert data["estimate"]["rollouts"] == 844
    assert {f["level"] for f in data["findings"]} == {"ok", "warning"}


def test_colour_is_only_for_terminals_that_want_it(learnloop: Learnloop, root: Path):
    assert "\x1b[" not in learnloop("check", root).out
    assert "\x1b[" in learnloop("check", root, FORCE_COLOR="1").out
    assert "\x1b[" not in learnloop("check", root, FORCE_COLOR="1", NO_COLOR="1").out


Spoil = Callable[[Path], None]


def config(old: str, new: str) -> Spoil:
    return lambda root: edit(root, old, new)


def server(old: str, new: str) -> Spoil:
    return lambda root: edit(root, old, new, file="server.py")


def rows(**changes: object) -> Spoil:
    return lambda root: write_rows(root, a_row(0), a_row(1, **changes))


def grader_that_returns_text(root: Path) -> None:
    edit(root, "[network]", '[grader]\ntype = "endpoint"\nurl = "{service:box}/grade"\n[network]')
    edit(root, '"exact"\n', '"text"\n', file="server.py")


ASSISTANT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]

BAD_INPUT: dict[str, tuple[Spoil, int, str]] = {
    "missing model": (
        config('ref = "model"', 'ref = "smollm2-135m"'),
        4,
        "model smollm2-135m is not here yet. Run `learnloop models pull smollm2-135m`",
    ),
    "tool server down": (
        config('{service:box}/call"\ndescription = "Opens."', 'http://127.0.0.1:9/"'),
        5,
        "tool `cat`: ",
    ),
    "server ends early": (
        server("import json, sys\n", "raise SystemExit('no index')\n"),
        5,
        "service `box`: ended with code 1 before it was ready; it last wrote: no index",
    ),
    "names differ": (
        server('("search", "cat")', '("find", "cat")'),
        5,
        "tool `search`: its server does not know this tool: unknown tool search. Names must",
    ),
    "row names another tool": (
        rows(tools=[{"type": "function", "function": {"name": "serach"}}]),
        4,
        "data/tasks.jsonl:2: names a tool `serach` that the project does not have. "
        "Did you mean `search`?",
    ),
    "empty id": (rows(id=""), 4, "data/tasks.jsonl:2: `id` is empty. Fill it in or leave it out."),
    "duplicate id": (rows(id="task-0"), 4, "data/tasks.jsonl:2: id `task-0` is already used on"),
    "last message": (
        rows(messages=ASSISTANT),
        4,
        "data/tasks.jsonl:2: the last message is from `assistant`, not `user`. End `messages`",
    ),
    "grader returns text": (
        grader_that_returns_text,
        5,
        "grader on `task-0`: answered a score that is no number from 0 to 1: 'great'. A grader answers",
    ),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_its_exit_code(learnloop: Learnloop, root: Path, name: str):
    spoil, code, text = BAD_INPUT[name]
    spoil(root)
    before = state_of(root)
    done = learnloop("check", root)
    errors = [x for x in done.out.splitlines() if x.startswith("error")]
    assert done.code == code
    assert len(errors) == 1
    assert text in errors[0]
    assert done.line == f"next: learnloop check --project {root}"
    assert state_of(root) == before


def test_a_taken_port_is_one_line_and_exit_code_1(learnloop: Learnloop, root: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        edit(root, '"{port}"]', f'"{port}"]\nready_url = "http://127.0.0.1:{port}/"')
        done = learnloop("check", root)
    assert done.code == 1
    assert f"service `box`: port {port} is already taken. Stop what holds it" in done.out


def test_a_typo_in_the_configuration_is_one_line_on_stderr(learnloop: Learnloop, root: Path):
    edit(root, 'name = "tiny"', 'nane = "tiny"')
    done = learnloop("check", root)
    assert (done.code, done.out) == (4, "")
    assert (
        done.line == "error: learnloop.toml:2: unknown setting `project.nane`. Did you mean `name`?"
    )


def test_an_unready_folder_name_with_spaces_can_be_pasted(learnloop: Learnloop, tmp_path: Path):
    make_project(tmp_path / "my project")
    done = learnloop("check", "my project")
    assert done.line == "next: learnloop train --project 'my project'"
