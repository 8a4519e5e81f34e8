"""What is known of the state database as a file."""

import json
import shutil
import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from amoro_core.model.metrics import AppliedMigration, StateFacts
from amoro_core.model.tables import TableIdentifier
from amoro_core.store.connect import current_epoch, open_reader, ours
from amoro_core.store.connection import ENGINE_VERSION, Connection
from amoro_core.store.schema import SCHEMA


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
    applied = enumerate(SCHEMA.applied(db.database), 1)
    return tuple(AppliedMigration(number, one.name, datetime.fromisoformat(one.applied_at)) for number, one in applied)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_BUSY_SECONDS = 0.1
_QUERIES = {
    "table": "SELECT catalog_name, namespace_json, table_name FROM table_identifier ORDER BY 1, 2, 3",
    "catalog": "SELECT catalog_name FROM catalog_metadata UNION SELECT catalog_name FROM table_identifier",
    "process": "SELECT process_id FROM table_process ORDER BY process_id DESC LIMIT 50",
    "optimizer": "SELECT optimizer_id FROM optimizer ORDER BY 1",
    "group": "SELECT group_name FROM resource_group ORDER BY 1",
}


def names_in(home: Path, kind: str) -> list[str]:
    """The names of that kind (table, catalog, process, optimizer, group); none where there is no state.

    None, too, where it can't be read at once.
    """
    with suppress(sqlite3.Error, ValueError):
        uri = f"{(home / 'amoro.db').absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as db:
            rows = db.execute(_QUERIES[kind]).fetchall()
        if kind == "table":
            return [str(TableIdentifier(catalog, tuple(json.loads(space)), name)) for catalog, space, name in rows]
        return [name for (name,) in rows]
    return []
