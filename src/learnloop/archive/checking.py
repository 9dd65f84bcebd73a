"""The check of an archive: signature, manifest, chain, and that its files say what its ledger says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from learnloop.archive.container import refused
from learnloop.archive.contents import (
    FORMAT,
    FORMAT_VERSION,
    LEDGER,
    MANIFEST,
    PUBLIC_KEY,
    RECORDED,
    SIGNATURE,
    digest,
    json_bytes,
    run_members,
)
from learnloop.ledger import GENESIS, Entry, chain_break, run_hash
from learnloop.signing import fingerprint, is_signed

_SHAPE = "the member does not have the form of an export"
_CONFLICT = "it does not say what the ledger in the archive says"


@dataclass(frozen=True, kw_only=True)
class Checked:
    """An archive that holds: whose key signed it, and what is in it.

    `uncompared` are runs whose settings held secrets or folders of the machine: what was left out
    of the archive cannot be compared with the ledger's hash of it.
    """

    fingerprint: str
    entries: int
    head: str
    runs: tuple[str, ...]
    uncompared: tuple[str, ...]


def check_archive(members: Mapping[str, bytes], expected: str | None = None) -> Checked:
    """Return what an archive holds when everything in it agrees.

    Args:
        members: its files by name.
        expected: the fingerprint of the key that must have signed it.

    Raises:
        GateNotMet: something does not hold; names it.
    """
    signer = _signer(members, expected)
    manifest = _manifest(members)
    entries = _ledger(members, manifest)
    runs = tuple(str(name) for name in manifest["runs"])
    started = {e.run_id: e for e in entries if e.kind == "run_started"}
    uncompared = [name for name in runs if not _run_holds(members, name, entries, started)]
    return Checked(
        fingerprint=signer,
        entries=len(entries),
        head=entries[-1].hash if entries else GENESIS,
        runs=runs,
        uncompared=tuple(uncompared),
    )


def _signer(members: Mapping[str, bytes], expected: str | None) -> str:
    """Return the fingerprint of the key that signed the manifest."""
    for name in (MANIFEST, SIGNATURE, PUBLIC_KEY):
        if name not in members:
            raise refused("the member is missing", name)
    try:
        signer = fingerprint(members[PUBLIC_KEY])
        signed = is_signed(members[PUBLIC_KEY], members[SIGNATURE], members[MANIFEST])
    except ValueError:
        raise refused("is no Ed25519 public key", PUBLIC_KEY) from None
    if expected is not None and signer != expected:
        raise refused(f"the archive was signed with another key: {signer}", PUBLIC_KEY)
    if not signed:
        raise refused(
            "the signature is not that of the manifest by the key in the archive", SIGNATURE
        )
    return signer


def _manifest(members: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the manifest, to which the other members are compared."""
    manifest = _mapping(members, MANIFEST)
    if manifest.get("format") != FORMAT or manifest.get("format_version") != FORMAT_VERSION:
        raise refused(f"is not of version {FORMAT_VERSION} of {FORMAT}", MANIFEST)
    listed, runs = manifest.get("members"), manifest.get("runs")
    if not isinstance(listed, dict) or not isinstance(runs, list):
        raise refused(_SHAPE, MANIFEST)
    wanted = cast("dict[str, Any]", listed)
    found = {name: data for name, data in members.items() if name not in (MANIFEST, SIGNATURE)}
    for name in sorted({*wanted, *found}):
        if name not in found:
            raise refused("the manifest lists this member, and it is missing", name)
        if name not in wanted:
            raise refused("the manifest does not list this member", name)
        if wanted[name] != {"bytes": len(found[name]), "sha256": digest(found[name])}:
            raise refused("the member was altered: the manifest has another sha256 of it", name)
    return manifest


def _ledger(members: Mapping[str, bytes], manifest: Mapping[str, Any]) -> list[Entry]:
    """Return the entries of the archive's ledger, a whole chain."""
    if LEDGER not in members:
        raise refused("the member is missing", LEDGER)
    try:
        entries = [_entry(line) for line in members[LEDGER].splitlines()]
        broken = chain_break(entries)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise refused(_SHAPE, LEDGER) from None
    if broken is not None:
        raise refused(f"entry {broken.seq} ({broken.kind[:40]}): {broken.what}", LEDGER)
    head = entries[-1].hash if entries else GENESIS
    if manifest.get("ledger") != {"entries": len(entries), "head": head}:
        raise refused("its head or its number of entries is not that of the manifest", LEDGER)
    return entries


def _entry(line: bytes) -> Entry:
    """Return an entry from its line.

    Raises:
        ValueError: it has not the fields of one.
    """
    told: Any = json.loads(line)
    kinds = {field.name: int if field.name == "seq" else str for field in fields(Entry)}
    named = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    if {name: type(value) for name, value in named.items()} != kinds:
        raise ValueError("no entry")
    entry = Entry(**named)
    if not isinstance(json.loads(entry.data_json), dict):
        raise ValueError("no data")
    return entry


def _run_holds(
    members: Mapping[str, bytes],
    run_id: str,
    entries: list[Entry],
    started: Mapping[str, Entry],
) -> bool:
    """Refuse a run whose files differ from the ledger; return whether its settings were compared."""
    folder = f"runs/{run_id}"
    try:
        for name, value in run_members(entries, run_id).items():
            if members.get(f"{folder}/{name}") != json_bytes(value):
                raise refused(_CONFLICT, f"{folder}/{name}")
    except (KeyError, TypeError, AttributeError, ValueError):
        raise refused(_SHAPE, LEDGER) from None
    about = _mapping(members, f"{folder}/run.json")
    recorded = about.get("recorded")
    if recorded is None:
        return False
    _compare_settings(members, folder, recorded, started.get(run_id))
    return True


def _compare_settings(
    members: Mapping[str, bytes], folder: str, recorded: object, started: Entry | None
) -> None:
    """Refuse settings that are not those whose hash the ledger holds."""
    place = f"{folder}/run.json"
    if not isinstance(recorded, dict) or set(cast("dict[str, Any]", recorded)) != set(RECORDED):
        raise refused(_SHAPE, place)
    texts = cast("dict[str, Any]", recorded)
    if started is None or run_hash(texts) != started.data.get("run"):
        raise refused("the settings of the run are not those of its entry in the ledger", place)
    about = _mapping(members, place)
    if any(about.get(name) != texts[name] for name in ("command", "seed")):
        raise refused(_CONFLICT, place)
    try:
        config, meta = json.loads(texts["config_json"]), json.loads(texts["meta_json"])
        told = {name: words for name, words in _items(meta) if isinstance(words, str)}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise refused(_SHAPE, place) from None
    for name, value in (("config.json", config), ("versions.json", told)):
        if _mapping(members, f"{folder}/{name}") != value:
            raise refused("it is not what the run was recorded with", f"{folder}/{name}")


def _mapping(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """Return a member that holds a JSON object."""
    if name not in members:
        raise refused("the member is missing", name)
    try:
        value = json.loads(members[name])
    except (ValueError, RecursionError):
        raise refused(_SHAPE, name) from None
    if not isinstance(value, dict):
        raise refused(_SHAPE, name)
    return cast("dict[str, Any]", value)


def _items(value: object) -> list[tuple[str, Any]]:
    return list(cast("dict[str, Any]", value).items())
