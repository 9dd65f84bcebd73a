"""The container: a zip file that is the same for the same members, and is opened with suspicion."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

from learnloop.errors import GateNotMet, UsageError

MOST_BYTES = 256 * 1024 * 1024
"""Largest archive that is made and opened."""
MOST_MEMBERS = 20_000
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_TIME = (1980, 1, 1, 0, 0, 0)
"""When members were made, as far as the zip tells: equal content, equal bytes."""
_LOCAL, _CENTRAL, _END = 30, 46, 22
"""Bytes of a zip's headers: before each member, in the list of members, and at the end."""


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a zip file of members; nothing is compressed, since compressors differ in their bytes.

    Raises:
        UsageError: it would be larger than `unpack` opens.
    """
    if sum(map(len, members.values())) + _overhead(list(members)) > MOST_BYTES:
        what = f"the archive would be larger than {MOST_BYTES >> 20} MiB"
        raise UsageError(what, fix="Export one run at a time.")
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _TIME)
            info.create_system = 3
            info.external_attr = 0o100644 << 16
            archive.writestr(info, members[name])
    return made.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Return the members of a zip file, none of which is ever written to the disk.

    Raises:
        UsageError: the file cannot be read.
        GateNotMet: it is not what `pack` makes.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise refused(f"the file is larger than {MOST_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror})", where=str(path)) from None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _look_over(archive, len(data))
            return {info.filename: archive.read(info) for info in archive.infolist()}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError, struct.error):
        raise refused("the file is no whole zip file: it was cut short or damaged") from None


def refused(what: str, member: str = "") -> GateNotMet:
    """Return the error that names what does not hold, and in which member."""
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in member)[:120]
    return GateNotMet(what, where=shown)


def _look_over(archive: zipfile.ZipFile, size: int) -> None:
    """Refuse what would fill the memory, lie outside, or hide, before any member is read."""
    found, seen = archive.infolist(), set[str]()
    if len(found) > MOST_MEMBERS:
        raise refused(f"the file has more than {MOST_MEMBERS} members")
    for info in found:
        name = info.orig_filename
        if not _SAFE_NAME.fullmatch(name) or info.filename != name:
            raise refused("the name of a member is not plain", name)
        if name.lower() in seen:
            raise refused("there are two members of this name", name)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise refused("the member is compressed, which an export never is", name)
        if info.file_size > size:
            raise refused("the member claims to be larger than the archive", name)
        seen.add(name.lower())
    told = sum(info.file_size for info in found) + _overhead([i.orig_filename for i in found])
    if told != size:
        raise refused("the file holds bytes that belong to no member, or lacks some")


def _overhead(names: list[str]) -> int:
    """Return the bytes of a plain zip that are no content."""
    return _END + sum(_LOCAL + _CENTRAL + 2 * len(name) for name in names)
