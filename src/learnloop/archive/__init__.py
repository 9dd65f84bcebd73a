"""The archive for auditors: what runs did, with the ledger that proves it, signed as a whole.

`contents` says what is in it, `container` packs and opens it, `checking` compares it with itself.
"""

from learnloop.archive.checking import Checked, check_archive
from learnloop.archive.container import pack, unpack
from learnloop.archive.contents import RunFacts, Weights, archive_members

__all__ = [
    "Checked",
    "RunFacts",
    "Weights",
    "archive_members",
    "check_archive",
    "pack",
    "unpack",
]
