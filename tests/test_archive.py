"""The auditor's archive: it says who signed it, and every alteration is named."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.store.rich_trace import SAID, rich_trace

from learnloop import archive
from learnloop.archive import (
    DECISIONS,
    KEY,
    LEDGER,
    MANIFEST,
    RUNS,
    SIGNATURE,
    fingerprint,
    pack,
    unpack,
)
from learnloop.config import Config
from learnloop.errors import GateNotMet
from learnloop.event import Event
from learnloop.store import Store

MINE, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
Members = dict[str, bytes]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    with Store.open(tmp_path_factory.mktemp("store") / "learnloop.db") as store:
        for seed in (0, 1):
            run = store.create_run(Config(), command="train", seed=seed, meta={"python": "3"}).id
            store.append_event(Event(kind="run_started", run_id=run, data={"seed": seed}))
            for number in range(2):
                store.save_trace(run, "train", 1, rich_trace(10 * seed + number))
            store.append_event(Event(kind="gate", run_id=run, data={"outcome": "adopt", "p": 0.01}))
            store.append_event(Event(kind="endpoint_down", run_id=run, data={"endpoint": "x"}))
            store.append_event(
                Event(kind="signed_off", run_id=run, data={"name": "Ada", "note": ""})
            )
        assert store.audit().broken is None
        rows, entries = store.run_rows(), store.ledger()
        assert pack(rows, entries, MINE) == pack(rows, entries, MINE), "equal input, equal bytes"
        return pack(rows, entries, MINE)


def opened(data: bytes) -> Members:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def closed(members: Members, *more: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in (*members.items(), *more):
            file.writestr(name, data)
    return out.getvalue()


def signed(members: Members, key: Ed25519PrivateKey) -> Members:
    """Return members with a manifest that fits them, signed by somebody."""
    members = members | {KEY: key.public_key().public_bytes_raw().hex().encode()}
    manifest = json.loads(members[MANIFEST])
    manifest["members"] = archive._hashes({name: members[name] for name in manifest["members"]})
    told = archive._json(manifest)
    return members | {MANIFEST: told, SIGNATURE: key.sign(told).hex().encode()}


def refusal(data: bytes, expect: str = "") -> str:
    with pytest.raises(GateNotMet) as caught:
        unpack(data, expect=expect)
    return caught.value.line()


def test_what_was_packed_is_found_and_no_text_is_in_it(packed: bytes) -> None:
    found = unpack(packed, expect=fingerprint(MINE.public_key()).upper())
    assert (len(found.runs), found.entries) == (2, 10)
    assert found.decisions == 6  # of each run its start, its gate, its sign-off
    assert SAID.encode() not in b"".join(opened(packed).values())
    kinds = [d["kind"] for d in json.loads(opened(packed)[DECISIONS])]
    assert kinds == ["run_started", "gate", "signed_off"] * 2


def test_another_key_is_told_though_all_else_holds(packed: bytes) -> None:
    forged = closed(signed(opened(packed), OTHER))
    assert unpack(forged).fingerprint == fingerprint(OTHER.public_key())
    told = refusal(forged, expect=fingerprint(MINE.public_key()))
    assert told.startswith(f"it was signed by {fingerprint(OTHER.public_key())}, not by")


def bit(name: str) -> Callable[[Members], bytes]:
    """Return what flips the last letter of a member."""

    def work(members: Members) -> bytes:
        data = members[name].rstrip()
        return closed(members | {name: data[:-1] + (b"0" if data[-1:] != b"0" else b"1")})

    return work


def without(name: str) -> Callable[[Members], bytes]:
    return lambda members: closed({n: d for n, d in members.items() if n != name})


def swapped(name: str, old: bytes, new: bytes) -> Callable[[Members], bytes]:
    """Return what alters a member and signs the whole again with the key of somebody else."""

    def work(members: Members) -> bytes:
        assert old in members[name]
        return closed(signed(members | {name: members[name].replace(old, new, 1)}, OTHER))

    return work


ALTERED: dict[str, tuple[Callable[[Members], bytes], str]] = {
    "a decision": (bit(DECISIONS), "decisions.json: it is not the file that was signed"),
    "the ledger": (bit(LEDGER), "ledger.jsonl: it is not the file that was signed"),
    "the signature": (bit(SIGNATURE), "the signature is not one"),
    "the manifest": (bit(MANIFEST), "the signature is not one"),
    "the key": (bit(KEY), "the signature is not one"),
    "a signature that is no hex": (
        lambda members: closed(members | {SIGNATURE: b"xyz"}),
        "the signature is not one",
    ),
    "a member that is gone": (without(RUNS), "`runs.json` is missing"),
    "a manifest that is gone": (without(MANIFEST), "`manifest.json` is missing"),
    "a member too many": (lambda m: closed(m, ("more.txt", b"")), "`more.txt` does not belong"),
    "a way out": (lambda m: closed(m, ("../../evil", b"")), "`../../evil` does not belong"),
    "a name twice": (lambda m: closed(m, (LEDGER, b"")), "`ledger.jsonl` does not belong"),
    "a decision, signed anew": (
        swapped(DECISIONS, b'"adopt"', b'"reject"'),
        "are not those of the ledger",
    ),
    "an entry, signed anew": (swapped(LEDGER, b"adopt", b"admit"), "was altered"),
    "a run, signed anew": (swapped(RUNS, b'"seed": 1', b'"seed": 7'), "was not started with this"),
    "a head, signed anew": (
        lambda m: closed(
            signed(m | {MANIFEST: m[MANIFEST].replace(b'"head": "', b'"head": "0')}, OTHER)
        ),
        "another head",
    ),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ALTERED)
def test_an_alteration_is_named(packed: bytes, name: str) -> None:
    alter, words = ALTERED[name]
    assert words in refusal(alter(opened(packed)))


@pytest.mark.parametrize("length", [0, 10, 500, -1])
def test_a_file_that_is_cut_short_is_refused(packed: bytes, length: int) -> None:
    assert "it is no archive that can be read" in refusal(packed[:length])


def test_a_member_that_unpacks_to_too_much_is_not_read(packed: bytes) -> None:
    with pytest.raises(GateNotMet, match="is over 1000 bytes"):
        unpack(packed, most_bytes=1000)


def test_an_empty_ledger_can_be_packed(tmp_path: Path) -> None:
    found = unpack(pack([], [], MINE))
    assert (found.runs, found.entries, found.decisions, found.head) == ((), 0, 0, "")
