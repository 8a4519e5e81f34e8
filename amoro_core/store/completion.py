"""Names that a shell completes, read by the bare driver: the store's modules take half a second to import."""

import json
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from amoro_core.model.tables import TableIdentifier

_BUSY_SECONDS = 0.1
_QUERIES = {
    "table": "SELECT catalog_name, namespace_json, table_name FROM table_identifier ORDER BY 1, 2, 3",
    "catalog": "SELECT catalog_name FROM catalog_metadata UNION SELECT catalog_name FROM table_identifier",
    "process": "SELECT process_id FROM table_process ORDER BY process_id DESC LIMIT 50",
    "optimizer": "SELECT optimizer_id FROM optimizer ORDER BY 1",
    "group": "SELECT group_name FROM resource_group ORDER BY 1",
}


def names_in(home: Path, kind: str) -> list[str]:
    """The names of that kind (table, catalog, process, optimizer, group); none where no state can be read at once."""
    with suppress(sqlite3.Error, ValueError):
        uri = f"{(home / 'amoro.db').absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as db:
            rows = db.execute(_QUERIES[kind]).fetchall()
        if kind == "table":
            return [str(TableIdentifier(catalog, tuple(json.loads(space)), name)) for catalog, space, name in rows]
        return [name for (name,) in rows]
    return []
