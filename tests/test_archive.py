"""The archive for auditors: whole as it was signed, and refused after every kind of change."""

from __future__ import annotations

import io
import json
import sqlite3
import warnings
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.store.rich_trace import SAID, rich_trace
from tests.tiny_project import make_project

from learnloop.archive import check_archive, pack, unpack
from learnloop.archive.contents import archive_members, digest, json_bytes, ledger_lines
from learnloop.errors import ConfigError, GateNotMet, UsageError
from learnloop.event import Event
from learnloop.exporting import export, facts_of, sign_off
from learnloop.ledger import make_entry
from learnloop.project import Project
from learnloop.signing import SigningKey, load_key, make_key
from learnloop.store import RunRecord

Members = dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Made:
    """A project with a run that was exported."""

    root: Path
    run: str
    key: SigningKey
    data: bytes
    """The archive."""

    @property
    def members(self) -> Members:
        """Return the archive's members."""
        return members_of(self.data)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    root, key = make_project(tmp_path / "tiny"), make_key(tmp_path / "key.pem")
    project = Project.open(root)
    with project.open_store() as store:
        meta = {"learnloop": "0.1.0", "dataset": "sha256 5b1f", "settings": {"train.steps": 3}}
        run = store.create_run(project.config, command="train", seed=3, meta=meta).id
        tell = {"run_started": {}, "seal_opened": {"tasks": 3}, "step": {"loss": float("nan")}}
        for kind, data in tell.items():
            store.append_event(Event(kind=kind, run_id=run, data=data))
        store.save_trace(run, "train", 1, rich_trace())
        gate = {"outcome": "adopt", "weights": f"{run}/step-1", "wins": 9}
        store.append_event(Event(kind="gate", run_id=run, data=gate))
        store.append_event(Event(kind="run_ended", run_id=run, data={"status": "done"}))
        store.set_status(run, "done")
        weights = project.run_folder(f"{run}/step-1") / "model.safetensors"
        weights.parent.mkdir(parents=True)
        weights.write_bytes(b"weights")
        sign_off(store, store.run(run), "A. Reviewer", "for the pilot")
        data = export(project, store, store.runs(), key)
    return Made(root=root, run=run, key=key, data=data)


def members_of(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check(folder: Path, data: bytes, expected: str | None = None) -> None:
    path = folder / "audit.zip"
    path.write_bytes(data)
    check_archive(unpack(path), expected)


def test_an_archive_holds_what_an_auditor_asks_for_and_no_text(made: Made, tmp_path: Path) -> None:
    check(tmp_path, made.data, made.key.fingerprint)
    members = made.members

    def told(name: str) -> list[dict[str, object]]:
        return json.loads(members[f"runs/{made.run}/{name}"])

    assert [d["kind"] for d in told("decisions.json")] == [
        "run_started",
        "seal_opened",
        "step",
        "gate",
        "run_ended",
        "signed_off",
    ]
    assert told("decisions.json")[2]["data"] == {"loss": None}
    assert [d["data"] for d in told("sealed-test.json")] == [{"tasks": 3}]
    assert [d["data"] for d in told("sign-offs.json")] == [
        {"name": "A. Reviewer", "note": "for the pilot"}
    ]
    changed = json.loads(members[f"runs/{made.run}/changed.json"])
    assert [list(w["files"]) for w in changed["weights"]] == [["model.safetensors"]]
    assert json.loads(members[f"runs/{made.run}/versions.json"])["dataset"] == "sha256 5b1f"
    assert SAID.encode() not in made.data
    assert b"gate: adopt" in members["README.txt"]


def test_the_same_store_and_key_give_the_same_bytes(made: Made) -> None:
    project = Project.open(made.root)
    with project.open_store() as store:
        assert export(project, store, store.runs(), made.key) == made.data


def test_what_was_erased_is_listed_and_the_archive_still_holds(made: Made, tmp_path: Path) -> None:
    project = Project.open(made.root)
    with project.open_store() as store:
        store.erase(reason="asked for", run_id=made.run)
        data = export(project, store, store.runs(), made.key)
    check(tmp_path, data)
    erased = json.loads(members_of(data)[f"runs/{made.run}/erased.json"])
    assert [one["data"]["reason"] for one in erased] == ["asked for"]


def test_one_run_is_exported_with_the_whole_ledger(made: Made, tmp_path: Path) -> None:
    project = Project.open(made.root)
    with project.open_store() as store:
        other = store.create_run(project.config, command="eval", seed=1)
        store.append_event(Event(kind="run_started", run_id=other.id, data={}))
        data = export(project, store, [other], made.key)
    check(tmp_path, data)
    members = members_of(data)
    assert not [name for name in members if made.run in name]
    assert made.run.encode() in members["ledger.jsonl"]


def test_settings_that_hold_what_must_not_leave_are_left_out_and_named(made: Made) -> None:
    project = Project.open(made.root)
    with project.open_store() as store:
        record = store.run(made.run)
        config = json.loads(record.config_json)
        config["model"]["ref"] = "/home/somebody/model"
        facts = facts_of(project, store, replace(record, config_json=json.dumps(config)))
        ledger = store.ledger()
    found = archive_members(ledger, [facts], public_pem=made.key.public_pem, made_by="test")
    assert b"/home/somebody" not in b"".join(found.values())
    signed = {**found, "manifest.sig": made.key.sign(found["manifest.json"])}
    assert check_archive(signed).uncompared == (made.run,)


# --- every alteration --------------------------------------------------------------------------


def refusal(folder: Path, data: bytes, expected: str | None = None) -> str:
    with pytest.raises(GateNotMet) as caught:
        check(folder, data, expected)
    assert caught.value.exit_code == 3
    return caught.value.line()


def test_an_altered_a_removed_and_an_added_member_are_named(made: Made, tmp_path: Path) -> None:
    for name in made.members:
        changed = {**made.members, name: made.members[name][:-1] + b"#"}
        assert refusal(tmp_path, pack(changed)).startswith(
            "manifest.sig" if name == "manifest.json" else name
        )
        without = {n: data for n, data in made.members.items() if n != name}
        assert refusal(tmp_path, pack(without)).startswith(f"{name}: ")
    added = pack({**made.members, "more.txt": b"more"})
    assert "more.txt: the manifest does not list" in refusal(tmp_path, added)


def test_another_key_is_refused_where_the_right_one_is_known(made: Made, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other.pem")
    project = Project.open(made.root)
    with project.open_store() as store:
        data = export(project, store, store.runs(), other)
    check(tmp_path, data)  # whole, but whose?
    assert "signed with another key" in refusal(tmp_path, data, made.key.fingerprint)
    mixed = pack({**made.members, "manifest.sig": members_of(data)["manifest.sig"]})
    assert refusal(tmp_path, mixed).startswith("manifest.sig: the signature is not")


def signed_anew(made: Made, change: Callable[[Members], None]) -> bytes:
    """Return an archive that its owner altered: manifest and signature fit, the content does not."""
    members = made.members
    change(members)
    manifest = json.loads(members["manifest.json"])
    inner = {n: b for n, b in members.items() if not n.startswith("manifest.")}
    manifest["members"] = {n: {"bytes": len(b), "sha256": digest(b)} for n, b in inner.items()}
    text = json_bytes(manifest)
    return pack({**inner, "manifest.json": text, "manifest.sig": made.key.sign(text)})


def put(name: str, old: bytes, new: bytes) -> Callable[[str, Members], None]:
    def change(run: str, members: Members) -> None:
        place = name.replace("RUN", run)
        assert old in members[place]
        members[place] = members[place].replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            put("runs/RUN/decisions.json", b'"adopt"', b'"reject"'),
            "decisions.json: it does not say",
        ),
        (put("runs/RUN/sign-offs.json", b"pilot", b"world"), "sign-offs.json: it does not say"),
        (put("ledger.jsonl", b"pilot", b"world"), "ledger.jsonl: entry 7 (signed_off)"),
        (put("runs/RUN/config.json", b'"steps": ', b'"steps": 1'), "config.json: it is not what"),
        (put("runs/RUN/versions.json", b"5b1f", b"0000"), "versions.json: it is not what"),
        (put("runs/RUN/run.json", b"5b1f", b"0000"), "run.json: the settings of the run are not"),
        (put("runs/RUN/run.json", b"{", b"["), "run.json: the member does not have the form"),
    ],
)
def test_even_the_owner_of_the_key_cannot_tell_another_story_than_the_ledger(
    made: Made, tmp_path: Path, change: Callable[[str, Members], None], words: str
) -> None:
    data = signed_anew(made, lambda members: change(made.run, members))
    assert words in refusal(tmp_path, data)


def test_a_ledger_that_was_cut_does_not_have_the_head_of_the_manifest(
    made: Made, tmp_path: Path
) -> None:
    def cut(members: Members) -> None:
        lines = members["ledger.jsonl"].splitlines(keepends=True)
        members["ledger.jsonl"] = b"".join(lines[:-1])

    assert "its head or its number of entries" in refusal(tmp_path, signed_anew(made, cut))


def test_a_ledger_of_another_form_is_refused_and_crashes_nothing(
    made: Made, tmp_path: Path
) -> None:
    odd = make_entry(None, time="t", kind="gate", run_id=made.run, data={"event": 1})
    for text in (b"[]\n", b"{}\n", b"\xff\n", b"[" * 100_000, ledger_lines([odd])):
        data = signed_anew(made, lambda m, t=text: m.update({"ledger.jsonl": t}))
        assert refusal(tmp_path, data).startswith("ledger.jsonl: ")


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99, -1])
def test_a_truncated_file_is_refused(made: Made, tmp_path: Path, kept: float) -> None:
    size = int(kept * len(made.data)) if isinstance(kept, float) else kept
    assert "no whole zip file" in refusal(tmp_path, made.data[:size])


def zipped(*named: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    target = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(target, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, data in named:
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return target.getvalue()


def test_a_member_that_unpacks_to_more_is_not_unpacked(tmp_path: Path) -> None:
    bomb = zipped(("manifest.json", bytes(50_000_000)), compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    assert "the member is compressed" in refusal(tmp_path, bomb)
    claims = bytearray(zipped(("manifest.json", b"{}")))
    for place in (claims.find(b"PK\x01\x02") + 20, claims.find(b"PK\x01\x02") + 24):
        claims[place : place + 4] = (2**31).to_bytes(4, "little")
    assert "larger than the archive" in refusal(tmp_path, bytes(claims))


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "runs/../../evil", "C:\\evil", "runs//x", "ä", "d/"]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    line = refusal(tmp_path, zipped((name, b"x")))
    assert "the name of a member is not plain" in line
    assert not list(tmp_path.parent.glob("evil"))


def test_names_that_are_there_twice_are_refused(made: Made, tmp_path: Path) -> None:
    twice = zipped(*made.members.items(), ("README.txt", b"another"))
    assert "README.txt: there are two members" in refusal(tmp_path, twice)
    case = zipped(*made.members.items(), ("readme.TXT", b"another"))
    assert "readme.TXT: there are two members" in refusal(tmp_path, case)


def test_bytes_beside_the_members_are_refused(made: Made, tmp_path: Path) -> None:
    target = io.BytesIO(made.data)
    with zipfile.ZipFile(target, "a") as archive:
        archive.comment = b"hidden"
    for data in (target.getvalue(), b"hidden" + made.data):
        assert "bytes that belong to no member" in refusal(tmp_path, data)


# --- key and sign-off --------------------------------------------------------------------------


def test_a_key_is_its_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "settings" / "key.pem"
    made = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_key(path).fingerprint == made.fingerprint
    with pytest.raises(UsageError, match="not overwritten"):
        make_key(path)
    assert load_key(path).fingerprint == made.fingerprint
    assert [p.name for p in path.parent.iterdir()] == ["key.pem"]
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others than its owner"):
        load_key(path)
    path.write_bytes(made.public_pem)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="no Ed25519 key"):
        load_key(path)


def test_a_run_that_goes_on_and_odd_names_are_not_signed_off(made: Made) -> None:
    with Project.open(made.root).open_store() as store:
        record: RunRecord = store.run(made.run)
        for name, note in (("", ""), ("a\x1b[2J", ""), ("n" * 101, ""), ("n", "x" * 501)):
            with pytest.raises(UsageError):
                sign_off(store, record, name, note)
        with pytest.raises(UsageError, match="has not ended"):
            sign_off(store, replace(record, status="running"), "A. Reviewer")
        assert len(store.events(made.run, "signed_off")) == 1


def test_a_ledger_that_does_not_hold_is_not_exported(made: Made) -> None:
    project = Project.open(made.root)
    with closing(sqlite3.connect(project.database)) as raw:
        raw.execute("UPDATE events SET data_json = '{}' WHERE kind = 'gate'")
        raw.commit()
    with project.open_store() as store, pytest.raises(GateNotMet, match="its event was altered"):
        export(project, store, store.runs(), made.key)
