"""What the loop says while it runs; whoever listens decides what to do with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happened in a run.

    `kind` is one of run_started, stage_started, probe, probe_after, warmup, evaluation, step,
    checkpoint, gate, repeated, abandoned, seal_opened, test, endpoint_down, endpoint_up, paused,
    run_ended, signed_off; `data` is plain JSON values and is documented where the event is emitted
    (`learn.py`). `progress` counts rollouts of a stage; it goes to listeners only and is never stored.
    """

    kind: str
    run_id: str
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
