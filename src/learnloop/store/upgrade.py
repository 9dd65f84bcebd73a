"""Upgrades: brings the tables of an older file to the newest version, after a backup.

Alembic is imported here only, and this module only when there is something to upgrade: it takes
longer to load than most commands take to run.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from learnloop.store.adoption import adopt
from learnloop.store.backup import back_up, backup_file, keep_last

MIGRATIONS = Path(__file__).parent / "migrations"
AUTOMATIC = "before-upgrade-v"


def upgrade(connection: Connection, path: Path, version: int) -> Path:
    """Back the file up and run the missing migrations; return the backup.

    The caller holds the right to write, so nothing is written between backup and upgrade, and
    commits: an upgrade that is killed has not begun.
    """
    made = back_up(path, backup_file(path, f"{AUTOMATIC}{version}"))
    config = _config(connection)
    if version == 1:
        # Files of the first version were made without Alembic.
        command.stamp(config, "0001")
    command.upgrade(config, "head")
    if version < 2:
        adopt(connection)
    keep_last(path, AUTOMATIC)
    return made


def migrate_new(connection: Connection) -> None:
    """Make the tables of an empty database by its migrations alone."""
    command.upgrade(_config(connection), "head")


def missing(version: int) -> list[str]:
    """Return in words what an upgrade from a version would do."""
    revisions = reversed(list(ScriptDirectory(str(MIGRATIONS)).walk_revisions()))
    return [
        f"{revision.revision}: {revision.doc.splitlines()[0]}"
        for revision in revisions
        if int(revision.revision) > version
    ]


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
