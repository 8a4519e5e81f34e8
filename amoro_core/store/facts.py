"""What is known of the state database as a file."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from amoro_core.model.state_facts import AppliedMigration, StateFacts
from amoro_core.store.connection import ENGINE_VERSION, Connection
from amoro_core.store.opening import current_epoch, open_reader, ours
from amoro_core.store.rows import from_ms_or_none


def facts_of(path: Path) -> StateFacts:
    """The file as it is, whatever version has written it. Raises StoreFailed."""
    home = path.parent
    free = shutil.disk_usage(home).free if home.exists() else 0
    epoch, migrations = 0, tuple[AppliedMigration, ...]()
    if path.exists():
        try:
            with closing(open_reader(path)) as db:
                epoch, migrations = current_epoch(db), _migrations(db)
        except sqlite3.Error as error:
            raise ours(error) from error
    log = path.with_name(f"{path.name}-wal")
    engine = ".".join(map(str, ENGINE_VERSION))
    return StateFacts(str(path), _size(path), _size(log), free, epoch, migrations, engine)


def _migrations(db: Connection) -> tuple[AppliedMigration, ...]:
    rows = db.select("SELECT * FROM schema_migration ORDER BY number")
    times = [from_ms_or_none(row.get("applied_at_ms")) for row in rows]  # an earlier version's have no such column
    return tuple(AppliedMigration(row["number"], row["name"], at) for row, at in zip(rows, times, strict=True))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
