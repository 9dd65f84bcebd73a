"""A user id of its own for each job that runs at the same time, where we are root and may choose one.

Root inside a user namespace is still root to the files and limits outside of it: a job of uid 0 reads
what only root may, and no limit of processes holds it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

FIRST, LAST = 60_001, 64_999
"""Ids that Debian gives to nobody: above those of people, below `nobody`."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Whom a job runs as; None leaves our own user, who is not root."""

    uid: int | None

    @property
    def words(self) -> dict[str, int | list[int]]:
        """Return the arguments that give a new process this identity."""
        if self.uid is None:
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": []}


@dataclass(kw_only=True)
class Identities:
    """Hands out ids; as many jobs run at once as there are ids.

    Two processes of learnloop begin at different places, so that their jobs hardly share an id.
    """

    most: int = 64
    _free: list[int] = field(default_factory=list[int])
    _places: anyio.Semaphore | None = None

    def __post_init__(self) -> None:
        """Lay out the ids."""
        span = LAST - FIRST + 1
        start = os.getpid() * self.most % span
        self._free = [FIRST + (start + i) % span for i in range(self.most)]

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[Identity]:
        """Wait for an id and hold it for the length of a job."""
        if self._places is None:
            self._places = anyio.Semaphore(self.most)
        async with self._places:
            if os.geteuid() != 0:
                yield Identity(uid=None)
                return
            uid = self._free.pop(0)
            try:
                yield Identity(uid=uid)
            finally:
                self._free.append(uid)
