"""The command line as a whole: help, exit codes, one line for each mistake."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import PROGRAM, Learnloop

from learnloop.cli import main

HEAVY = (
    "torch transformers numpy scipy pydantic httpx2 anyio sqlalchemy jsonschema jinja2 starlette"
)


def test_help_names_every_verb_and_loads_nothing_heavy():
    script = (
        "import sys\nfrom learnloop.cli import main\ncode = main(['--help'])\n"
        f"print([m for m in '{HEAVY}'.split() if m in sys.modules], file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stderr == "[]\n"
    for verb in ("init", "models", "doctor", "check", "config", "runs", "show"):
        assert verb in done.stdout


def test_help_takes_less_than_three_tenths_of_a_second_of_processor_time():
    command = [sys.executable, "-c", PROGRAM, "--help"]

    def cost_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    cost_s()  # the first run may compile files
    assert min(cost_s() for _ in range(3)) < 0.3


def test_the_version_is_that_of_the_package(learnloop: Learnloop):
    done = learnloop("--version")
    assert done.code == 0
    assert done.out.strip()[0].isdigit()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["chek"], 'Did you mean "check"?'),
        (["check", "--jsn"], "Did you mean --json?"),
        (["models", "pull"], "requires"),
        (["check", "a", "--project", "b"], "the project is named twice"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    learnloop: Learnloop, words: list[str], line: str
):
    done = learnloop(*words)
    assert (done.code, done.out) == (2, "")
    assert line in done.line


def test_a_missing_project_is_one_line(learnloop: Learnloop):
    done = learnloop("check")
    assert done.code == 4
    assert done.line.startswith("error: ")
    assert done.line.endswith("`learnloop init DIR` makes a project; `--project DIR` names one.")


def test_verbose_adds_the_traceback(learnloop: Learnloop):
    done = learnloop("check", "--verbose")
    assert done.code == 4
    assert done.err.startswith("Traceback")


def test_main_runs_in_process_too(root: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["config", "show", str(root), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert 'project.name = "tiny"' in captured.out
    assert captured.err == ""


def test_a_folder_that_cannot_be_made_is_one_line_with_exit_code_1(
    learnloop: Learnloop, tmp_path: Path
):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = learnloop("init", blocked / "project")
    assert done.code == 1
    assert done.line.startswith("error: ")
    assert list(tmp_path.iterdir()) == [blocked]


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path):
    def no_file_over_a_kilobyte() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM, "init", "mine"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=no_file_over_a_kilobyte,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_stops_its_services_and_says_so_by_its_exit_code(
    root: Path, number: signal.Signals, code: int
):
    server = (root / "server.py").read_text()
    mark = 'import os; open("server.pid", "w").write(str(os.getpid()))\n'
    (root / "server.py").write_text(mark + "import time; time.sleep(600)\n" + server)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "check", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid_file = root / "server.pid"
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (code, "")
    assert err == "interrupted; what was finished is kept\n"
    assert not Path(f"/proc/{pid_file.read_text()}").exists()
