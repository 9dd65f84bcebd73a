"""Confines itself, then becomes the job: the program that `landlock.py` starts. Standard library only.

    python -I -S confine.py SETTINGS PROGRAM ARGUMENTS...

SETTINGS is JSON: {"level", "reads": folders, "box": folder, "env", "limits": {name: number},
"rules": hex, "word"}.
Ends with code 125 and one line when it cannot confine itself as wanted; it never goes on without.
"""

# Runs in a fresh interpreter without our package.
from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from typing import Any

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS, SET_SECCOMP, FILTER_MODE = 38, 22, 2
READ_FILES = 1 << 0 | 1 << 2 | 1 << 3
"""Execute, read a file, list a folder."""
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights over files, by the version from which the kernel knows them."""
SCOPED = 6
"""The version from which abstract sockets and signals are confined too."""


def main() -> None:
    """Confine this process and start the job in its place."""
    settings: dict[str, Any] = json.loads(sys.argv[1])
    try:
        confine(settings)
        os.chdir(settings["box"])
    except OSError as error:
        # The job does not know the word, so it cannot say that it was not confined.
        sys.stderr.write(f"{settings['word']} {error}\n")
        sys.exit(125)
    try:
        os.execve(sys.argv[2], sys.argv[2:], settings["env"])
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(127)


def confine(settings: dict[str, Any]) -> None:
    """Set limits, then landlock and seccomp where they are wanted."""
    for name, most in settings["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
    if settings["level"] != "landlock":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    landlock(libc, settings["reads"], settings["box"])
    rules = bytes.fromhex(settings["rules"])
    kept = ctypes.create_string_buffer(rules, len(rules))
    program = Program(len(rules) // 8, ctypes.cast(kept, ctypes.c_void_p))
    _checked(libc.prctl(SET_SECCOMP, FILTER_MODE, ctypes.byref(program), 0, 0), "seccomp")


class Program(ctypes.Structure):
    """A filter as the kernel takes it."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Ruleset(ctypes.Structure):
    """What a set of rules handles; nothing of it is allowed unless a rule says so."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class Beneath(ctypes.Structure):
    """A rule: what is allowed below a folder."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock(libc: Any, reads: list[str], box: str) -> None:
    """Allow reading of some folders and everything in the box; nothing else can be opened."""
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    _checked(version, "landlock")
    every = FILE_RIGHTS[max(v for v in FILE_RIGHTS if v <= version)]
    wanted = Ruleset(every, 3 if version >= 4 else 0, 3 if version >= SCOPED else 0)
    size = 24 if version >= SCOPED else 16 if version >= 4 else 8
    rules = libc.syscall(CREATE_RULESET, ctypes.byref(wanted), size, 0)
    _checked(rules, "landlock")
    for place in reads:
        _allow(libc, rules, place, READ_FILES)
    _allow(libc, rules, box, every)
    _allow(libc, rules, "/dev/null", 1 << 1 | 1 << 2 | (1 << 14 if version >= 3 else 0))
    _allow(libc, rules, "/dev/urandom", 1 << 2)
    _checked(libc.syscall(RESTRICT_SELF, rules, 0), "landlock")
    os.close(rules)


def _allow(libc: Any, rules: int, place: str, rights: int) -> None:
    try:
        parent = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(place):  # noqa: PTH112 (every import costs time here)
        rights &= 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
    rule = Beneath(rights, parent)
    _checked(libc.syscall(ADD_RULE, rules, 1, ctypes.byref(rule), 0), place)
    os.close(parent)


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
