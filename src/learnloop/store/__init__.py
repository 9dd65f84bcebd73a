"""The local state of a project: one SQLite file with its runs, events, rollouts and ledger.

Texts that several rollouts hold are stored once; the ledger proves that nothing was changed since.
See `docs/store.md`.
"""

from learnloop.store.backup import back_up, backup_file, backups
from learnloop.store.connect import file_version
from learnloop.store.content import told
from learnloop.store.database import Store
from learnloop.store.records import (
    Erased,
    EventRecord,
    Page,
    RolloutRecord,
    RunRecord,
    RunStatus,
    StepTotals,
    ToolCount,
)
from learnloop.store.tables import VERSION

__all__ = [
    "VERSION",
    "Erased",
    "EventRecord",
    "Page",
    "RolloutRecord",
    "RunRecord",
    "RunStatus",
    "StepTotals",
    "Store",
    "ToolCount",
    "back_up",
    "backup_file",
    "backups",
    "file_version",
    "told",
]
