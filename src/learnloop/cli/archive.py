"""`learnloop ledger export` and its relatives: a signed archive for auditors, and sign-offs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from learnloop.archive import Exported, fingerprint, pack, unpack
from learnloop.cli.ledger import existing_store
from learnloop.cli.options import Common, InProject
from learnloop.cli.output import printable, shown_path
from learnloop.errors import GateNotMet, UsageError, writing
from learnloop.event import Event
from learnloop.signing import key_path, make_key, read_key

_MOST_WORDS = 2_000
"""Characters of a name or note."""


def export(
    run: str | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))],
    common: InProject | None = None,
) -> None:
    """Write one signed archive for auditors: what runs decided, and the ledger that proves it.

    No text of a rollout is in it. The ledger is in it as a whole, or its chain would prove nothing.

    Args:
        run: the run: an id, its beginning, `latest` or `latest~1`; all when left out.
        output: the file.
        common: how to print, and which project.
    """
    common = common or InProject()
    key = read_key(key_path())
    with existing_store(common.folder(None)) as store:
        broken = store.audit().broken
        if broken is not None:
            what = f"ledger entry {broken.seq} ({broken.kind}): {broken.what}"
            raise GateNotMet(what, fix="`learnloop ledger verify` must hold before an export.")
        wanted = store.run(run).id if run is not None else None
        rows = [row for row in store.run_rows() if wanted in (None, row["id"])]
        data = pack(rows, store.ledger(), key)
    with writing(output):
        output.write_bytes(data)
    signed = fingerprint(key.public_key())
    if common.output.json:
        common.output.data({"file": str(output), "runs": len(rows), "fingerprint": signed})
    else:
        common.output.text(f"{shown_path(output)}: {len(rows)} runs, {len(data)} bytes")
        common.output.text(f"signed by {signed}")
        common.output.text("Tell the auditor this fingerprint by another way than the file.")


def check_export(
    file: Path, /, *, expect_key: str | None = None, common: Common | None = None
) -> None:
    """Verify an archive of `ledger export`: signature, members, chain, runs and decisions.

    Ends with exit code 3, and names what does not hold.

    Args:
        file: the archive.
        expect_key: the fingerprint of who must have signed it, known from elsewhere.
        common: how to print.
    """
    common = common or Common()
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(file)) from None
    try:
        found = unpack(data, expect=expect_key or "")
    except GateNotMet as error:
        place = f"{file}: {error.where}" if error.where else str(file)
        raise GateNotMet(printable(error.what), where=place) from None
    if common.output.json:
        common.output.data({"ok": True, "expected_key": expect_key, **asdict(found)})
    else:
        _print(common, found, expected=expect_key is not None)


def _print(common: Common, found: Exported, *, expected: bool) -> None:
    common.output.text(
        f"The archive holds: {len(found.runs)} runs, {found.decisions} decisions, "
        f"{found.entries} ledger entries. Head {found.head}."
    )
    common.output.text(f"signed by {found.fingerprint}")
    if not expected:
        common.output.text(
            "Compare this fingerprint with one from elsewhere, or name that with --expect-key: by itself "
            "the archive proves only that it is as somebody signed it."
        )


def keygen(*, common: Common | None = None) -> None:
    """Make the key that signs archives, in the user's configuration folder.

    Args:
        common: how to print.
    """
    common = common or Common()
    made = fingerprint(make_key(key_path()).public_key())
    if common.output.json:
        common.output.data({"file": str(key_path()), "fingerprint": made})
    else:
        common.output.text(f"{shown_path(key_path())}: keep it to yourself")
        common.output.text(f"fingerprint {made}")


def sign_off(run: str, /, *, name: str, note: str = "", common: InProject | None = None) -> None:
    """Record in the ledger that somebody accepts what a run made; the report shows it.

    Args:
        run: the run: an id, its beginning, `latest` or `latest~1`.
        name: who signs off.
        note: what there is to say about it.
        common: how to print, and which project.
    """
    common = common or InProject()
    for words, flag in ((name, "--name"), (note, "--note")):
        if len(words) > _MOST_WORDS:
            raise UsageError(f"is longer than {_MOST_WORDS} characters", where=flag)
    if not name.strip():
        raise UsageError("nobody is named", where="--name")
    with existing_store(common.folder(None)) as store:
        record = store.run(run)
        data = {"name": name.strip(), "note": note.strip()}
        store.append_event(Event(kind="signed_off", run_id=record.id, data=data))
    common.output.text(f"run {record.id} is signed off by {printable(name.strip())}")
    common.output.next(common.command(f"report {record.id}"))
