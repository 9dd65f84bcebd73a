"""`ledger keygen`, `export`, `check-export` and `sign-off`, as an auditor and an owner type them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Learnloop

from learnloop.event import Event
from learnloop.project import Project


@pytest.fixture
def run_id(root: Path) -> str:
    """Return a run that has ended."""
    project = Project.open(root)
    with project.open_store() as store:
        made = store.create_run(project.config, command="eval", seed=0).id
        store.append_event(Event(kind="run_started", run_id=made))
        store.append_event(Event(kind="run_ended", run_id=made, data={"status": "done"}))
        store.set_status(made, "done")
    return made


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a folder for settings of its own."""
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "settings")}


def test_from_a_key_to_an_archive_that_holds(
    learnloop: Learnloop, root: Path, run_id: str, settings: dict[str, str], tmp_path: Path
):
    done = learnloop("ledger", "export", "-o", "a.zip", cwd=root, **settings)
    assert (done.code, "keygen` makes one" in done.line) == (4, True)
    done = learnloop("ledger", "keygen", **settings)
    assert done.code == 0, done.err
    fingerprint = done.out.strip()
    assert re.fullmatch("sha256:[0-9a-f]{64}", fingerprint)
    assert learnloop("ledger", "keygen", **settings).code == 2
    words = ("--name", "A. Reviewer", "--note", "for the pilot")
    done = learnloop("ledger", "sign-off", run_id, *words, cwd=root)
    assert done.out == f"Run {run_id} is signed off by A. Reviewer (entry 3).\n"
    shown = learnloop("ledger", "show", cwd=root)
    assert "name A. Reviewer, note for the pilot" in shown.out
    done = learnloop("ledger", "export", run_id[:15], "-o", "a.zip", cwd=root, **settings)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1] == f"signed with {fingerprint}"
    assert [p.name for p in root.glob("*a.zip*")] == ["a.zip"]
    again = learnloop("ledger", "export", "-o", "a.zip", cwd=root, **settings)
    assert (again.code, "is there already" in again.line) == (2, True)
    check = ("ledger", "check-export", root / "a.zip")
    done = learnloop(*check, "--expect-key", fingerprint, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.startswith("The archive is whole: 1 run, 3 ledger entries. Head ")
    done = learnloop(*check)
    assert (done.code, "compare the fingerprint" in done.line) == (0, True)
    data = learnloop(*check, "--json").json
    assert (data["fingerprint"], data["is_key_expected"]) == (fingerprint, False)
    assert learnloop("ledger", "verify", cwd=root).code == 0


def test_what_does_not_hold_is_one_line_and_exit_code_3(
    learnloop: Learnloop, root: Path, run_id: str, settings: dict[str, str]
):
    learnloop("ledger", "keygen", **settings)
    learnloop("ledger", "export", "-o", "a.zip", cwd=root, **settings)
    file = root / "a.zip"
    done = learnloop("ledger", "check-export", file, "--expect-key", "0" * 64)
    assert (done.code, "signed with another key" in done.line) == (3, True)
    assert learnloop("ledger", "check-export", file, "--expect-key", "abc").code == 2
    file.write_bytes(
        file.read_bytes().replace(b'"outcome"', b'"OUTCOME"').replace(b"done", b"gone")
    )
    done = learnloop("ledger", "check-export", file)
    assert done.code == 3
    assert "zip" in done.line or "altered" in done.line
    assert learnloop("ledger", "check-export", root / "no.zip").code == 2
    assert learnloop("ledger", "export", "-o", "a.tar", cwd=root, **settings).code == 2
