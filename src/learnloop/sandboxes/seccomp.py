"""A seccomp filter: system calls that no job needs and that widen what it could attack are refused.

A refused call fails with EPERM as if the kernel lacked the right, `clone3` with ENOSYS, because its flags
lie in memory that a filter cannot read and libraries then fall back to `clone`. Numbers and layout are
those of the kernel's headers (linux/audit.h, linux/filter.h, linux/seccomp.h, asm/unistd_64.h).
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping, Sequence

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NEW_USER = 0x10000000

_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Name: number on x86_64, number on aarch64; None where there is no such call.
_CALLS: Mapping[str, tuple[int | None, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18),
    "vhangup": (153, 58),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "modify_ldt": (154, -1),
    "fanotify_init": (300, 262),
    # Memory that belongs to no process, so that no limit counts it.
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
_SOCKETS = {"socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)}


def seccomp_filter(*, sockets: bool, machine: str = "") -> bytes | None:
    """Return the filter for this machine; None where its calls are not known.

    Args:
        sockets: whether sockets may be made: where there is no network namespace they must not.
        machine: as `platform.machine()` says.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        return None
    column = 0 if machine == "x86_64" else 1
    table = dict(_CALLS) if sockets else {**_CALLS, **_SOCKETS}
    refused = [pair[column] for pair in table.values()]
    numbers = sorted(n for n in refused if n is not None and n >= 0)
    return b"".join(_program(_ARCHES[machine], numbers, _CLONE[column], _CLONE3[column]))


def _program(arch: int, refused: Sequence[int], clone: int, clone3: int) -> list[bytes]:
    """Return the instructions: wrong architecture dies, refused calls fail, the rest is allowed."""
    head = [
        _op(_LOAD, _ARCH),
        _op(_EQUAL, arch, yes=1),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        _op(_AT_LEAST, _X32, no=1),
        _op(_RETURN, _ERRNO | errno.ENOSYS),
        _op(_EQUAL, clone3, no=1),
        _op(_RETURN, _ERRNO | errno.ENOSYS),
        _op(_EQUAL, clone, no=4),
        _op(_LOAD, _FIRST_ARGUMENT),
        _op(_ANY_BIT, _NEW_USER, no=1),
        _op(_RETURN, _ERRNO | errno.EPERM),
        _op(_RETURN, _ALLOW),
    ]
    checks = [line for n in refused for line in (_op(_EQUAL, n, no=1), _denied())]
    return [*head, *checks, _op(_RETURN, _ALLOW)]


def _denied() -> bytes:
    return _op(_RETURN, _ERRNO | errno.EPERM)


def _op(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction; `yes` and `no` say how many of the next ones are passed over."""
    return struct.pack("=HBBI", code, yes, no, value)
