"""The version of a grader: it changes whenever the same trace could get another score."""

from __future__ import annotations

import hashlib
import json


def version_of(name: str, code: int, **settings: object) -> str:
    """Return `NAME-<12 hex digits>` from the code's version number and the grader's settings."""
    text = json.dumps([name, code, settings], sort_keys=True, default=str)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
