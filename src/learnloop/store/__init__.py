"""The local state of a project: one SQLite file with its runs, events and rollouts.

Messages are stored inside their traces; sharing equal ones between traces is not done yet.
"""

from learnloop.store.database import Store
from learnloop.store.records import EventRecord, RolloutRecord, RunRecord, RunStatus

__all__ = ["EventRecord", "RolloutRecord", "RunRecord", "RunStatus", "Store"]
