"""Exporting: the signed archive of a project's runs, gathered from its store and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from learnloop.archive import RunFacts, Weights, archive_members, pack
from learnloop.archive.contents import MANIFEST, SIGNATURE
from learnloop.errors import GateNotMet, UsageError
from learnloop.event import Event
from learnloop.models.manifest import file_sha256
from learnloop.project import Project
from learnloop.provenance import words_of
from learnloop.report.build import masked
from learnloop.signing import SigningKey
from learnloop.store import RunRecord, Store

SIGNED_OFF = "signed_off"
LONGEST_NAME = 100
LONGEST_NOTE = 500
_DECIDED = ("checkpoint", "gate")
"""Events that name weights."""


def export(project: Project, store: Store, runs: Iterable[RunRecord], key: SigningKey) -> bytes:
    """Return the archive of some runs: the same bytes for the same store and key.

    Raises:
        GateNotMet: what is stored does not agree with the ledger, so there is nothing to vouch for.
    """
    broken = store.audit().broken
    if broken is not None:
        raise GateNotMet(
            f"altered: {broken.what}",
            where=f"ledger entry {broken.seq} ({broken.kind})",
            fix="Nothing was exported; compare with a backup.",
        )
    facts = [facts_of(project, store, record) for record in runs]
    made_by = f"learnloop {version('learnloop')}"
    members = archive_members(store.ledger(), facts, public_pem=key.public_pem, made_by=made_by)
    return pack({**members, SIGNATURE: key.sign(members[MANIFEST])})


def facts_of(project: Project, store: Store, record: RunRecord) -> RunFacts:
    """Return what an archive tells of a run beside the ledger."""
    stored = json.loads(record.config_json)
    config = masked(stored)
    # What masking changes stands in the command and the given settings too.
    is_plain = config == stored
    words = words_of(record.meta)
    return RunFacts(
        id=record.id,
        created_at=record.created_at,
        command=record.command,
        status=record.status,
        seed=record.seed,
        config=config,
        versions=words if is_plain else {k: v for k, v in words.items() if k != "command"},
        recorded=_recorded(record) if is_plain else None,
        weights=_weights(project, store, record.id),
    )


def sign_off(store: Store, record: RunRecord, name: str, note: str = "") -> int:
    """Record that somebody accepts a run as it stands, and return the number of the entry.

    Raises:
        UsageError: the run still goes on, or the words are empty or too long.
    """
    if record.status == "running":
        fix = "Sign off when it has ended."
        raise UsageError(f"run {record.id} has not ended", fix=fix)
    data = {
        "name": _words(name, "--name", LONGEST_NAME),
        "note": _words(note, "--note", LONGEST_NOTE) if note.strip() else "",
    }
    event = store.append_event(Event(kind=SIGNED_OFF, run_id=record.id, data=data))
    own = (e for e in reversed(store.ledger()) if e.data.get("event") == event)
    return next(own).seq


def _words(text: str, option: str, longest: int) -> str:
    """Return words on one line."""
    plain = " ".join(text.split())
    if not plain.isprintable() or not 0 < len(plain) <= longest:
        raise UsageError(f"needs 1 to {longest} printable characters", where=option)
    return plain


def _recorded(record: RunRecord) -> dict[str, Any]:
    """Return the texts that the ledger's hash of the run is made over."""
    return {
        "command": record.command,
        "config_json": record.config_json,
        "config_hash": record.config_hash,
        "seed": record.seed,
        "meta_json": json.dumps(dict(record.meta)),
    }


def _weights(project: Project, store: Store, run_id: str) -> tuple[Weights, ...]:
    """Return the weights that decisions of a run name, with the hashes of their files."""
    told = (e.data.get("weights") for e in store.events(run_id) if e.kind in _DECIDED)
    names = sorted({name for name in told if isinstance(name, str)})
    return tuple(Weights(name=n, files=_hashes(project.run_folder(n))) for n in names if n)


def _hashes(folder: Path) -> dict[str, str]:
    found: Sequence[Path] = sorted(folder.glob("*.safetensors"))
    return {path.name: file_sha256(path) for path in found}
