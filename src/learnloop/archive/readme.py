"""The page that an auditor reads first."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.ledger import GENESIS, Entry

_TEXT = """\
Export of a learnloop ledger
============================

Made by {made_by}. The ledger has {count} entries; the hash of the last one, its head, is
{head}

Runs
----
{runs}

What is here
------------
manifest.json            the sha256 of every other file
manifest.sig             the Ed25519 signature of manifest.json, 64 bytes
public-key.pem           the key that the signature belongs to
ledger.jsonl             every entry of the project's ledger; each holds the hash of the one before
runs/RUN/run.json        what was started and how it stands
runs/RUN/config.json     its settings, without secrets
runs/RUN/versions.json   versions of software, and hashes of data, prompt, grader, tools and model
runs/RUN/decisions.json  what was measured and decided, with the number of the entry that holds it
runs/RUN/changed.json    the sha256 of the weights that decisions name, and of the prompt
runs/RUN/sealed-test.json, sign-offs.json, erased.json
                         openings of the sealed test, who signed off, and what was erased or reduced

Nothing here holds what was said in rollouts. What was erased is not here either: erased.json says
how much, when and why.

How to check
------------
learnloop ledger check-export FILE.zip --expect-key FINGERPRINT

or, of the signature alone and without learnloop:

openssl pkeyutl -verify -pubin -inkey public-key.pem -rawin -in manifest.json -sigfile manifest.sig
openssl pkey -pubin -in public-key.pem -outform DER | sha256sum     # the key's fingerprint

What that proves, and what not
------------------------------
The key lies in this archive. Alone it proves that nothing changed since somebody signed; anybody can
change everything and sign anew with a key of their own. Ask the sender for the fingerprint by another way, and
compare. With it you know that the owner of that key signed this. It does not prove that what was recorded
is true, nor when it was signed, nor that this is the project's only ledger: a head that was noted earlier,
outside of the project, shows that no entry up to it was changed or left out.
"""


def readme(entries: Sequence[Entry], runs: Sequence[str], made_by: str) -> str:
    """Return what the archive is, for somebody who never saw learnloop."""
    lines = [_run(entries, run_id) for run_id in runs] or ["none"]
    head = entries[-1].hash if entries else GENESIS
    return _TEXT.format(made_by=made_by, count=len(entries), head=head, runs="\n".join(lines))


def _run(entries: Sequence[Entry], run_id: str) -> str:
    own = [entry for entry in entries if entry.run_id == run_id]
    kinds = [entry.kind for entry in own]
    gates = [str(e.data["data"].get("outcome", "?")) for e in own if e.kind == "gate"]
    words = [f"gate: {', '.join(gates) or 'not asked'}"]
    words.append(f"openings of the sealed test: {kinds.count('seal_opened')}")
    words.append(f"sign-offs: {kinds.count('signed_off')}")
    words.append(f"erasures: {kinds.count('content_erased')}")
    return f"{run_id}\n    " + "; ".join(words)
