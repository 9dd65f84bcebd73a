"""What a command of the command line left behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Return the one JSON object of stdout."""
        return json.loads(self.out)

    @property
    def line(self) -> str:
        """Return the one line of stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]
