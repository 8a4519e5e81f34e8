"""Tables whose snapshots are older than they are: times in the newest metadata file are moved back in place."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.table import Table

from tests.engine.parquet_rows import local_path

DAY_MS = 86_400_000
#: What a test takes at most from its first snapshot to the time that it sets.
_SETTING_UP = timedelta(minutes=1)


def wait_for_one_day() -> None:
    """Wait until what a test makes now and the time that it sets soon after are of one day, as tags by day need it."""
    while (now := datetime.now(UTC)).date() != (now + _SETTING_UP).date():
        time.sleep(1)


def aged(table: Table, days: Mapping[int, float] | float) -> Table:
    """The table with all of its snapshots so many days older, or each by its id; loaded anew."""
    table.refresh()
    path = Path(local_path(table.metadata_location))
    metadata = json.loads(path.read_text(encoding="utf-8"))
    for one in metadata["snapshots"]:
        more = days if isinstance(days, int | float) else days.get(one["snapshot-id"], 0)
        one["timestamp-ms"] -= round(more * DAY_MS)
    times, latest = {one["snapshot-id"]: one["timestamp-ms"] for one in metadata["snapshots"]}, 0
    for one in metadata.get("snapshot-log", ()):  # in order, also after a rollback
        latest = one["timestamp-ms"] = max(latest, times.get(one["snapshot-id"], latest))
    path.write_text(json.dumps(metadata), encoding="utf-8")
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # Hadoop's
    return table.refresh()
