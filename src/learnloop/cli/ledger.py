"""`learnloop ledger`: the record of what runs did, and the proof that nothing was altered."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from learnloop.cli.options import InProject
from learnloop.cli.output import Output, printable
from learnloop.errors import GateNotMet, UsageError
from learnloop.ledger import GENESIS, Audit, Entry, Erasure, Expected, find_head
from learnloop.project import Project
from learnloop.store import Store

_SHOWN = 12
"""Digits of a hash that a table shows."""


def show(
    folder: Path | None = None,
    /,
    *,
    run: str | None = None,
    common: InProject | None = None,
) -> None:
    """List the entries of the ledger, the first one first.

    Args:
        folder: the project's folder.
        run: only entries of this run: an id, its beginning, `latest` or `latest~1`.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    with existing_store(common.folder(folder)) as store:
        wanted = store.run(run).id if run is not None else None
        found = [e for e in store.ledger() if wanted in (None, e.run_id)]
    if output.json:
        output.data({"entries": [entry_fields(entry) for entry in found]})
    elif found:
        rows = [
            (
                str(e.seq),
                e.time[:19].replace("T", " "),
                e.kind,
                e.run_id or "-",
                _about(e),
                e.hash[:_SHOWN],
            )
            for e in found
        ]
        output.table(("entry", "time (UTC)", "kind", "run", "about", "hash"), rows)
    else:
        output.note("the ledger is empty")
    output.next(common.command("ledger verify", folder))


def verify(
    folder: Path | None = None,
    /,
    *,
    expect: str | None = None,
    common: InProject | None = None,
) -> None:
    """Prove that the ledger is whole and that what is stored agrees with it.

    Ends with exit code 3, and names the first entry that does not hold, when something was altered.
    A ledger that was made anew as a whole is only found out by a head that was noted before.

    Args:
        folder: the project's folder; in a folder of several projects all of them when left out.
        expect: a head that was noted earlier; it must be one of this ledger's.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    noted = None if expect is None else _whole_hash(expect)
    projects = Project.open_all(common.folder(folder))
    if len(projects) > 1 and noted:
        raise UsageError(
            f"there are {len(projects)} projects here, and a head is of one",
            where="--expect",
            fix="Name the project with --project.",
        )
    looks: list[tuple[str, Audit, Expected | None]] = []
    for project in projects:
        found, chain = _audited(project)
        name = project.root.name if len(projects) > 1 else ""
        looks.append((name, found, None if noted is None else find_head(chain, noted)))
    if output.json:
        told = [audit_fields(found, expected) for _, found, expected in looks]
        named = [
            {"project": p.root.name} | fields for p, fields in zip(projects, told, strict=True)
        ]
        output.data(
            told[0] if len(told) == 1 else {"ok": all(t["ok"] for t in told), "ledgers": named}
        )
    for name, found, expected in looks:
        _refuse(name, found, expected)
        if not output.json:
            _print(output, name, found, expected)


def _whole_hash(noted: str) -> str:
    """Return a noted hash as the ledger writes it; part of one would prove less."""
    plain = noted.strip().lower()
    if not re.fullmatch(r"[0-9a-f]{64}", plain):
        what = "is no head: it has 64 digits, 0 to 9 and a to f"
        fix = "`learnloop ledger verify` prints the one of now."
        raise UsageError(what, where=f"--expect {printable(noted)[:80]}", fix=fix)
    return plain


def _audited(project: Project) -> tuple[Audit, list[Entry]]:
    """Return what a look at a project's ledger found, and its entries; looking makes no database."""
    if not project.database.exists():
        return Audit(entries=0, rollouts=0, pending=0, head=GENESIS), []
    with project.open_store() as store:
        return store.audit(), store.ledger()


def _refuse(name: str, found: Audit, expected: Expected | None) -> None:
    """Raise what an auditor must see, if there is such a thing."""
    if found.broken is not None:
        broken = found.broken
        raise GateNotMet(
            f"altered: {broken.what}",
            where=f"{_of(name)}ledger entry {broken.seq} ({broken.kind})",
            fix="Compare with a backup; entries before this one hold.",
        )
    if expected is not None and expected.entry is None:
        raise GateNotMet(
            f"the ledger does not hold the expected head {expected.hash}: it was cut short, made anew, "
            "or is another project's",
            fix="Compare with a backup, and with where the head was noted.",
        )


@contextmanager
def existing_store(folder: Path | None) -> Generator[Store]:
    """Open the store of a project that has one; looking does not make a database."""
    project = Project.open(folder)
    if not project.database.exists():
        raise UsageError("this project has no runs yet", fix="`learnloop train` makes one.")
    with project.open_store() as store:
        yield store


def entry_fields(entry: Entry) -> dict[str, object]:
    """Return what JSON output tells of an entry."""
    fields = asdict(entry)
    fields["data"] = entry.data
    return fields


def audit_fields(found: Audit, expected: Expected | None = None) -> dict[str, object]:
    """Return what JSON output tells of a look at the whole ledger."""
    is_held = expected is None or expected.entry is not None
    told = asdict(expected) if expected else None
    return {"ok": found.broken is None and is_held, **asdict(found), "expected": told}


def _of(name: str) -> str:
    """Return what a line about one of several projects begins with."""
    return f"{printable(name)}: " if name else ""


def _print(output: Output, name: str, found: Audit, expected: Expected | None) -> None:
    if not found.entries and not found.rollouts:
        output.text(
            f"{_of(name)}No runs are recorded here: the ledger has no entries. Head {found.head}."
        )
        return
    output.text(
        f"{_of(name)}The ledger is whole: {found.entries} entries, and {found.rollouts} rollouts as they were "
        f"stored. Head {found.head}."
    )
    if found.pending:
        output.text(f"{found.pending} of them wait for the entry that ends their stage.")
    if expected is not None:
        place = f"that of entry {expected.entry}" if expected.entry else "that of an empty ledger"
        output.text(f"The expected head is {place}; {expected.since} entries follow it.")
    for one in found.erased:
        output.text(_words(one))


def _words(one: Erasure) -> str:
    when = one.time[:19].replace("T", " ")
    return (
        f"Erased on {when} UTC: texts of {one.rollouts} rollouts of run {one.run_id}, "
        f"reason: {printable(one.reason)} (entry {one.seq})."
    )


def _about(entry: Entry) -> str:
    """Return the gist of an entry in a few words."""
    data = entry.data
    told = {**data.get("data", {}), **data}
    names = ("stage", "step", "rollouts", "outcome", "weights", "accuracy", "content", "reason")
    if entry.kind == "signed_off":
        names = ("name", "note")
    words = [f"{name} {_cell(told[name])}" for name in names if told.get(name) not in (None, "")]
    return printable(", ".join(words))[:80] or "-"


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
