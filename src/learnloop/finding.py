"""One thing that the check looked at: how it is, where, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from learnloop.errors import UserError

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at: how it is, where, and how to mend it.

    `exit_code` is what `learnloop check` ends with when this is the first error.
    """

    level: Level
    what: str
    where: str = ""
    fix: str = ""
    exit_code: int = 0

    @classmethod
    def of(cls, error: UserError) -> Self:
        """Return what an exception says as a finding."""
        return cls(
            level="error",
            what=error.what,
            where=error.where,
            fix=error.fix,
            exit_code=error.exit_code,
        )

    def line(self) -> str:
        """Return the finding as one line: `where: what. fix`."""
        return UserError(self.what, where=self.where, fix=self.fix).line()
