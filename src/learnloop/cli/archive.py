"""`learnloop ledger export` and what belongs to it: the key, the check of an archive, sign-offs."""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from learnloop.archive import Checked, check_archive, unpack
from learnloop.cli.ledger import existing_store
from learnloop.cli.options import Common, InProject
from learnloop.cli.output import Output, printable, shown_path
from learnloop.errors import UsageError, writing
from learnloop.exporting import export as archive_of
from learnloop.exporting import sign_off as record_sign_off
from learnloop.project import Project
from learnloop.signing import key_path, load_key, make_key, whole_fingerprint


def keygen(*, common: Common | None = None) -> None:
    """Make the Ed25519 key that signs your exports, once; it is never overwritten.

    It is written into your folder for settings, where only you may read it. Give the fingerprint to
    auditors by another way than the archive.

    Args:
        common: how to print.
    """
    common = common or Common()
    output, path = common.output, key_path()
    made = make_key(path)
    if output.json:
        output.data({"fingerprint": made.fingerprint, "key": str(path)})
    else:
        output.text(made.fingerprint)
        output.note(f"written to {path}")
    output.next("learnloop ledger export -o FILE.zip")


def export(
    run: str | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))],
    common: InProject | None = None,
) -> None:
    """Write one signed archive for auditors: settings, hashes, decisions, sign-offs and the ledger.

    It holds no text of any rollout and no secret. The ledger in it is whole, with the entries of
    other runs, because a part of the chain proves less.

    Args:
        run: only this run: an id, its beginning, `latest` or `latest~1`; all of them when left out.
        output: where to write the archive, FILE.zip; a file that is there is not overwritten.
        common: how to print, and which project.
    """
    common = common or InProject()
    if output.suffix != ".zip":
        raise UsageError("the export is a zip file", where=f"-o {output}", fix="Name it FILE.zip.")
    key = load_key(key_path())
    project = Project.open(common.folder(None))
    with existing_store(common.folder(None)) as store:
        runs = store.runs() if run is None else [store.run(run)]
        data = archive_of(project, store, runs, key)
        head = store.ledger()[-1:]
    _write_new(output.absolute(), data)
    file = shown_path(output.absolute())
    told = {
        "file": file,
        "bytes": len(data),
        "runs": sorted(record.id for record in runs),
        "head": head[0].hash if head else "",
        "fingerprint": key.fingerprint,
    }
    if common.json:
        common.output.data(told)
    else:
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        common.output.text(f"{printable(file)}: {count}, {len(data):,} bytes")
        common.output.text(f"signed with {key.fingerprint}")
    common.output.next(
        f"learnloop ledger check-export {shlex.quote(file)} --expect-key {key.fingerprint}"
    )


def check_export(
    file: Path, /, *, expect_key: str | None = None, common: Common | None = None
) -> None:
    """Prove that nothing in an archive was altered since it was signed.

    Ends with exit code 3, and names what does not hold. Without `--expect-key` anybody may have
    signed it: the key in the archive alone proves that it is in one piece, not whose it is.

    Args:
        file: the archive.
        expect_key: the fingerprint of the key that must have signed it, from another source.
        common: how to print.
    """
    common = common or Common()
    try:
        expected = None if expect_key is None else whole_fingerprint(expect_key)
    except ValueError as error:
        where = f"--expect-key {printable(expect_key or '')[:80]}"
        raise UsageError(str(error), where=where, fix="Ask who signed for the whole.") from None
    found = check_archive(unpack(file), expected)
    if common.json:
        common.output.data({"ok": True, "is_key_expected": expected is not None, **asdict(found)})
    else:
        _print(common.output, found, is_expected=expected is not None)


def sign_off(
    run: str,
    /,
    *,
    name: str,
    note: str = "",
    common: InProject | None = None,
) -> None:
    """Record in the ledger that somebody accepts a run; the report and the export show it.

    learnloop does not prove who typed the name: whoever can run this command can sign off.

    Args:
        run: the run: an id, its beginning, `latest` or `latest~1`.
        name: who signs off. It stays in the ledger for ever.
        note: what they say to it. It stays in the ledger for ever.
        common: how to print, and which project.
    """
    common = common or InProject()
    with existing_store(common.folder(None)) as store:
        record = store.run(run)
        seq = record_sign_off(store, record, name, note)
    if common.json:
        common.output.data({"run": record.id, "entry": seq, "name": name})
    else:
        common.output.text(f"Run {record.id} is signed off by {printable(name)} (entry {seq}).")
    common.output.next(common.command(f"report {record.id}"))


def _write_new(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, and never over another.

    Raises:
        UsageError: there is one already.
    """
    staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            staging.write_bytes(data)
            # A link fails where a file is; a rename would replace it.
            os.link(staging, path)
        except FileExistsError:
            fix = "Give another name, or remove it."
            raise UsageError("is there already", where=f"-o {shown_path(path)}", fix=fix) from None
        finally:
            staging.unlink(missing_ok=True)


def _print(output: Output, found: Checked, *, is_expected: bool) -> None:
    runs = "1 run" if len(found.runs) == 1 else f"{len(found.runs)} runs"
    output.text(f"The archive is whole: {runs}, {found.entries} ledger entries. Head {found.head}.")
    if is_expected:
        output.text(f"Signed with the expected key, {found.fingerprint}.")
    else:
        output.text(f"Signed with {found.fingerprint}.")
        output.alert(
            "whose key that is the archive cannot prove: compare the fingerprint with one from "
            "elsewhere, or give it as --expect-key"
        )
    for run in found.uncompared:
        output.text(
            f"Settings of run {printable(run)} held what the archive leaves out; they were not "
            "compared with the ledger."
        )
