"""What became of each thing that an import found: taken, approximated, ignored or not mapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fate = Literal["taken", "approximated", "ignored", "unmapped"]


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """One thing of the imported files and what became of it.

    Attributes:
        source: where it stood, such as `hyperparameters.batch_size`.
        value: its value as it may be shown; secrets are never part of it.
        fate: unmapped means that something which matters is missing from the project.
        target: the setting it became; empty when it became none.
        why: what a reader must know, such as what is different here.
    """

    source: str
    fate: Fate
    value: str = ""
    target: str = ""
    why: str = ""
