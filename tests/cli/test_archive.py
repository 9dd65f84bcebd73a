"""`ledger keygen`, `export`, `check-export` and `sign-off` from the command line."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_line import Done
from tests.tiny_project import make_project

from learnloop.config import Config
from learnloop.event import Event
from learnloop.project import Project

Learnloop = Callable[..., Done]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    root = make_project(tmp_path / "tiny")
    with Project.open(root).open_store() as store:
        for seed in (0, 1):
            run = store.create_run(Config(), command="train", seed=seed).id
            store.append_event(Event(kind="run_started", run_id=run))
    return root


def test_an_archive_is_signed_and_checked(learnloop: Learnloop, root: Path, tmp_path: Path) -> None:
    file = tmp_path / "audit.zip"
    done = learnloop("ledger", "export", "-o", str(file), cwd=root)
    assert done.code == 2
    assert "there is no key to sign with. `learnloop ledger keygen` makes one." in done.err
    made = learnloop("ledger", "keygen", "--json", cwd=root).json
    key = Path(made["file"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = learnloop("ledger", "keygen", cwd=root)
    assert again.code == 2
    assert "there is a key already" in again.err
    done = learnloop(
        "ledger", "sign-off", "latest", "--name", "Ada", "--note", "as agreed", cwd=root
    )
    assert done.code == 0, done.err
    done = learnloop("ledger", "export", "latest", "-o", str(file), "--json", cwd=root)
    assert done.code == 0, done.err
    assert (done.json["runs"], done.json["fingerprint"]) == (1, made["fingerprint"])
    found = learnloop("ledger", "check-export", str(file), "--json", cwd=tmp_path)
    assert (found.json["ok"], found.json["entries"], found.json["decisions"]) == (True, 3, 2)
    good = learnloop("ledger", "check-export", str(file), "--expect-key", made["fingerprint"])
    assert good.code == 0, good.err
    bad = learnloop("ledger", "check-export", str(file), "--expect-key", "ed25519:00")
    assert bad.code == 3
    assert bad.err.startswith(f"error: {file}: it was signed by {made['fingerprint']}, not by")
    key.chmod(0o644)
    open_key = learnloop("ledger", "export", "-o", str(file), cwd=root)
    assert open_key.code == 4
    assert "others may read this key" in open_key.err


def test_what_does_not_hold_is_not_exported_and_names_are_checked(
    learnloop: Learnloop, root: Path, tmp_path: Path
) -> None:
    learnloop("ledger", "keygen", cwd=root)
    assert learnloop("ledger", "sign-off", "latest", "--name", " ", cwd=root).code == 2
    file = tmp_path / "audit.zip"
    file.write_bytes(b"no zip")
    assert learnloop("ledger", "check-export", str(file)).code == 3
    assert learnloop("ledger", "check-export", str(tmp_path / "none.zip")).code == 2
    import sqlite3

    with sqlite3.connect(root / ".learnloop" / "learnloop.db") as raw:
        raw.execute("UPDATE runs SET config_json = '{}'")
    done = learnloop("ledger", "export", "-o", str(file), cwd=root)
    assert done.code == 3
    assert "the settings of run" in done.err
    assert file.read_bytes() == b"no zip"


def test_a_sign_off_is_in_the_report(learnloop: Learnloop, root: Path) -> None:
    learnloop("ledger", "sign-off", "latest", "--name", "Ada <b>", "--note", "as agreed", cwd=root)
    done = learnloop("report", "latest", "--json", cwd=root)
    assert done.code == 0, done.err
    page = Path(done.json["report"])
    assert "<b>Ada &lt;b&gt;</b> signed off at 20" in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text())["sign_offs"][0]["note"] == "as agreed"
