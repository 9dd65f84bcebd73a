"""A candidate: an agent that could be served, named by the hash of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model reference, the weights that belong to it, and a map of text files.

    `weights` names a checkpoint (`""` means the model as it was pulled); `files` maps relative
    paths such as `prompts/system.md` to their text.
    """

    model: str
    weights: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    parent: str = ""

    @property
    def id(self) -> str:
        """Return `cand_` and 16 hex digits of the content's hash; the parent does not count."""
        digest = hashlib.sha256()
        for part in (
            self.model,
            self.weights,
            *(x for kv in sorted(self.files.items()) for x in kv),
        ):
            digest.update(len(part).to_bytes(8, "big") + part.encode())
        return "cand_" + digest.hexdigest()[:16]
