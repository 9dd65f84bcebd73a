"""Sandboxes: where foreign code runs, from the strongest confinement that this machine has.

find.py        the ladder: which confinement this machine offers, and never a weaker one silently
bubblewrap.py  namespaces, seccomp and limits: `full`
landlock.py    landlock, seccomp and limits, or limits only, for machines without user namespaces
confine.py     the program that confines itself for landlock.py; standard library only
process.py     a confined process from start to end: pipes, clock, memory, kill
seccomp.py     the list of refused system calls as a filter
pool.py        interpreters that wait for their job
identity.py    a user id of its own for each job, where we may choose one
selftest.py    attacks that every level is tried with
"""

from __future__ import annotations

from learnloop.sandboxes.find import Ladder, find_sandbox
from learnloop.sandboxes.pool import open_runner

__all__ = ["Ladder", "find_sandbox", "open_runner"]
