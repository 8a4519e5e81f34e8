"""Tables whose snapshots are older than they are: times in the newest metadata file are moved back in place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.table import Table

from tests.engine.parquet_rows import local_path

DAY_MS = 86_400_000


def aged(table: Table, days: Mapping[int, float] | float) -> Table:
    """The table with all of its snapshots so many days older, or each by its id; loaded anew."""
    table.refresh()
    path = Path(local_path(table.metadata_location))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    for one in (*metadata["snapshots"], *metadata.get("snapshot-log", ())):
        more = days if isinstance(days, int | float) else days.get(one["snapshot-id"], 0)
        one["timestamp-ms"] -= round(more * DAY_MS)
    path.write_text(json.dumps(metadata), encoding="utf-8")
    return table.refresh()
