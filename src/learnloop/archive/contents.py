"""What is in an archive: facts of each run, its decisions, and the ledger that they are read from.

Texts of rollouts are in none of it: neither events nor entries of the ledger hold any.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from learnloop.archive.readme import readme
from learnloop.ledger import GENESIS, Entry

FORMAT = "learnloop-ledger-export"
FORMAT_VERSION = 1
MANIFEST, SIGNATURE, PUBLIC_KEY = "manifest.json", "manifest.sig", "public-key.pem"
LEDGER, README = "ledger.jsonl", "README.txt"
RECORDED = ("command", "config_json", "config_hash", "seed", "meta_json")
"""What `ledger.run_hash` is made over."""
ERASURES = ("content_erased", "content_reduced")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights that a decision names: the sha256 of each file; none where they are not kept."""

    name: str
    files: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What an archive tells of a run beside its entries in the ledger.

    `config` is without secrets. `recorded` holds the very texts that the ledger's hash of the
    settings is made over; it is None where they hold what the archive must not.
    """

    id: str
    created_at: str
    command: str
    status: str
    seed: int
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    recorded: Mapping[str, Any] | None
    weights: tuple[Weights, ...] = field(default=())


def archive_members(
    entries: Sequence[Entry], runs: Iterable[RunFacts], *, public_pem: bytes, made_by: str
) -> dict[str, bytes]:
    """Return every member of an archive but the signature, the manifest over all others included.

    The ledger is always whole, since a part of a chain proves less.
    """
    facts = sorted(runs, key=lambda run: run.id)
    members = {LEDGER: ledger_lines(entries), PUBLIC_KEY: public_pem}
    for run in facts:
        members |= {f"runs/{run.id}/{name}": json_bytes(v) for name, v in _run(run).items()}
        told = run_members(entries, run.id)
        members |= {f"runs/{run.id}/{name}": json_bytes(value) for name, value in told.items()}
    members[README] = readme(entries, [run.id for run in facts], made_by).encode("ascii", "replace")
    listed = {n: {"bytes": len(b), "sha256": digest(b)} for n, b in sorted(members.items())}
    head = entries[-1].hash if entries else GENESIS
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "made_by": made_by,
        "ledger": {"entries": len(entries), "head": head},
        "runs": [run.id for run in facts],
        "members": listed,
    }
    return {**members, MANIFEST: json_bytes(manifest)}


def run_members(entries: Sequence[Entry], run_id: str) -> dict[str, object]:
    """Return the files of a run that follow from the ledger alone, so that they can be checked."""
    own = [entry for entry in entries if entry.run_id == run_id]
    decisions = [_told(entry) for entry in own if "event" in entry.data]
    return {
        "decisions.json": decisions,
        "sealed-test.json": [told for told in decisions if told["kind"] == "seal_opened"],
        "sign-offs.json": [told for told in decisions if told["kind"] == "signed_off"],
        "erased.json": [_told(entry) for entry in own if entry.kind in ERASURES],
    }


def ledger_lines(entries: Iterable[Entry]) -> bytes:
    """Return a ledger as JSON lines; `data_json` is a text, because its bytes are what is hashed."""
    return b"".join(json.dumps(asdict(e), sort_keys=True).encode() + b"\n" for e in entries)


def json_bytes(value: object) -> bytes:
    """Return JSON that is equal for equal values, for people to read."""
    return (json.dumps(value, sort_keys=True, indent=2, allow_nan=False) + "\n").encode()


def digest(data: bytes) -> str:
    """Return the sha256 that the manifest holds of a member."""
    return hashlib.sha256(data).hexdigest()


def _run(run: RunFacts) -> dict[str, object]:
    recorded = None if run.recorded is None else dict(run.recorded)
    about = {name: getattr(run, name) for name in ("id", "created_at", "command", "status", "seed")}
    changed = {
        "system_prompt": run.versions.get("system prompt"),
        "weights": [{"name": w.name, "files": dict(w.files)} for w in run.weights],
    }
    return {
        "run.json": {**about, "recorded": recorded},
        "config.json": finite(dict(run.config)),
        "versions.json": dict(run.versions),
        "changed.json": changed,
    }


def _told(entry: Entry) -> dict[str, Any]:
    """Return what an entry says, with the number of the entry that proves it."""
    data = entry.data
    told = {"entry": entry.seq, "time": entry.time, "kind": entry.kind}
    if "event" in data:
        return {**told, "event": data["event"], "data": finite(data["data"])}
    return {**told, "data": finite(data)}


def finite(value: object) -> object:
    """Return plain values with null for a number that is not finite: JSON has none, and it is no zero."""
    if isinstance(value, Mapping):
        inner = cast("Mapping[str, object]", value)
        return {name: finite(one) for name, one in inner.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in cast("Sequence[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
