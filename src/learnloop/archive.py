"""The auditor's archive: what runs decided, with the ledger that proves it, in one signed file.

A ZIP of plain members and a manifest of their hashes, signed with Ed25519 (RFC 8032). No texts of rollouts
are in it. Equal input and key give equal bytes. Reading trusts nothing: names, sizes, hashes, the signature,
the chain, and that runs and decisions are those which the chain tells of.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from learnloop.errors import GateNotMet
from learnloop.ledger import Entry, chain_break, run_hash

FORMAT = "learnloop ledger export 1"
MANIFEST, SIGNATURE, KEY = "manifest.json", "manifest.sig", "public_key.hex"
LEDGER, RUNS, DECISIONS, README = "ledger.jsonl", "runs.json", "decisions.json", "README.txt"
_MEMBERS: Final = (DECISIONS, LEDGER, README, RUNS)
_SIGNED: Final = (*_MEMBERS, KEY)
MOST_BYTES = 200_000_000
"""Most bytes of a member, unpacked: more is no ledger."""
_SILENT = {"rollouts_stored", "rollout_replaced", "content_reduced", "endpoint_down", "endpoint_up"}
"""Kinds of entry that decide nothing."""
_EPOCH = (1980, 1, 1, 0, 0, 0)

_README = """\
What learnloop's runs decided, for auditors.

{runs} runs, {entries} ledger entries, head {head}.
Signed by {fingerprint}.

ledger.jsonl    every entry; each holds the hash of the one before
runs.json       each run's configuration without secrets, versions and hashes of its inputs
decisions.json  what the entries say that decide something: probes, evaluations, choices, gates, openings of
                the sealed test, sign-offs, erasures
manifest.json   the SHA-256 of each file; manifest.sig is the Ed25519 signature of it

No text of any rollout is in here.
`learnloop ledger check-export FILE --expect-key FINGERPRINT` verifies all of it. The key in the file alone
proves only that nothing was altered since somebody signed it: who that was tells a fingerprint that you have
from elsewhere. A signature says nothing about the time.
"""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What a verified archive holds: its head, counts, and who signed it."""

    fingerprint: str
    head: str
    entries: int
    runs: tuple[str, ...]
    decisions: int


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return `ed25519:` and the SHA-256 of a public key."""
    return f"ed25519:{hashlib.sha256(key.public_bytes_raw()).hexdigest()}"


def pack(
    runs: Sequence[Mapping[str, Any]], entries: Sequence[Entry], key: Ed25519PrivateKey
) -> bytes:
    """Return the archive of runs, given as stored rows, and of the whole ledger."""
    public = key.public_key()
    wanted = {run["id"] for run in runs}
    decided = [_decision(e) for e in entries if e.run_id in wanted and e.kind not in _SILENT]
    head = entries[-1].hash if entries else ""
    members = {
        LEDGER: "".join(json.dumps(e.__dict__, sort_keys=True) + "\n" for e in entries).encode(),
        RUNS: _json([dict(run) for run in runs]),
        DECISIONS: _json(decided),
        KEY: public.public_bytes_raw().hex().encode(),
        README: _README.format(
            runs=len(runs), entries=len(entries), head=head, fingerprint=fingerprint(public)
        ).encode(),
    }
    manifest = _json({"format": FORMAT, "head": head, "members": _hashes(members)})
    return _zipped(members | {MANIFEST: manifest, SIGNATURE: key.sign(manifest).hex().encode()})


def unpack(data: bytes, *, expect: str = "", most_bytes: int = MOST_BYTES) -> Exported:
    """Verify an archive and return what it holds.

    Args:
        data: the file.
        expect: the fingerprint that must have signed it; empty takes any.
        most_bytes: largest member, unpacked.

    Raises:
        GateNotMet: something does not hold; says what.
    """
    members = _members(data, most_bytes)
    public = _signer(members)
    signer = fingerprint(public)
    if expect and expect.strip().lower() != signer:
        raise GateNotMet(f"it was signed by {signer}, not by {expect.strip()}")
    manifest = _manifest(members)
    entries = [_entry(line) for line in members[LEDGER].decode().splitlines()]
    if broken := chain_break(entries):
        raise GateNotMet(f"ledger entry {broken.seq} ({broken.kind}): {broken.what}")
    head = entries[-1].hash if entries else ""
    if manifest.get("head") != head:
        raise GateNotMet("the manifest names another head than the ledger has")
    runs = json.loads(members[RUNS])
    _runs_hold(runs, entries)
    decided = json.loads(members[DECISIONS])
    wanted = {run["id"] for run in runs}
    told = [_decision(e) for e in entries if e.run_id in wanted and e.kind not in _SILENT]
    if json.loads(json.dumps(told)) != decided:
        raise GateNotMet("the decisions are not those of the ledger", where=DECISIONS)
    return Exported(
        fingerprint=signer,
        head=head,
        entries=len(entries),
        runs=tuple(sorted(wanted)),
        decisions=len(decided),
    )


def _decision(entry: Entry) -> dict[str, Any]:
    told = {"entry": entry.seq, "time": entry.time, "run": entry.run_id, "kind": entry.kind}
    return {**told, "data": entry.data.get("data", entry.data)}


def _json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()


def _hashes(members: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(members[name]).hexdigest() for name in sorted(members)}


def _zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, members[name])
    return out.getvalue()


def _members(data: bytes, most_bytes: int) -> dict[str, bytes]:
    """Return the members by name: exactly those that an archive has, none of them oversized."""
    wanted = {*_SIGNED, MANIFEST, SIGNATURE}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            names = [info.filename for info in file.infolist()]
            if sorted(names) != sorted(wanted):
                raise GateNotMet(_difference(names, wanted))
            return {name: _read(file, name, most_bytes) for name in names}
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError) as error:
        raise GateNotMet(f"it is no archive that can be read ({error})") from None


def _difference(names: Sequence[str], wanted: Iterable[str]) -> str:
    """Return in words what is missing, or what does not belong."""
    if missing := sorted({*wanted} - {*names}):
        return f"`{missing[0]}` is missing"
    extra = sorted({*names} - {*wanted}) or sorted(n for n in {*names} if names.count(n) > 1)
    return f"`{extra[0][:60]}` does not belong in it"


def _read(file: zipfile.ZipFile, name: str, most_bytes: int) -> bytes:
    with file.open(name) as member:
        data = member.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise GateNotMet(f"`{name}` is over {most_bytes} bytes")
    return data


def _signer(members: Mapping[str, bytes]) -> Ed25519PublicKey:
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(members[KEY].decode()))
        public.verify(bytes.fromhex(members[SIGNATURE].decode()), members[MANIFEST])
    except (InvalidSignature, ValueError):
        raise GateNotMet("the signature is not one of this manifest by this key") from None
    return public


def _manifest(members: Mapping[str, bytes]) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(members[MANIFEST])
    if manifest.get("format") != FORMAT:
        raise GateNotMet("it has a format that this version does not know", where=MANIFEST)
    hashes = _hashes({name: members[name] for name in _SIGNED})
    for name, found in hashes.items():
        if manifest["members"].get(name) != found:
            raise GateNotMet("it is not the file that was signed", where=name)
    return manifest


def _entry(line: str) -> Entry:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        raise GateNotMet("a line is no entry", where=LEDGER) from None


def _runs_hold(runs: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> None:
    """Compare what runs were started with with what the ledger says of them."""
    told = {e.run_id: e.data.get("run") for e in entries if e.kind == "run_started"}
    for run in runs:
        if run["id"] in told and run_hash(run) != told[run["id"]]:
            raise GateNotMet(f"run {run['id']} was not started with this", where=RUNS)
