"""The upgrade of a table's format: to format 3, by one update that adds no snapshot."""

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.table import Table

from amoro_core.iceberg import features
from amoro_core.iceberg.features import format_version_refused, refuse_table
from amoro_core.iceberg.format3 import UPGRADED


def refuse_upgrade(table: Table, defaults: Mapping[str, str]) -> None:
    """Raise TableRefused for a table of an earlier format that is not handled, or while format 3 is not."""
    refuse_table(table.metadata, defaults)
    if UPGRADED not in features.FORMATS:
        raise format_version_refused(str(UPGRADED))


def stage_upgrade(table: Table, *, own_metadata: bool) -> bytes:
    """The payload that upgrades the table as just loaded; `own_metadata` as in `stage_expiry`."""
    request: dict[str, Any] = {
        "requirements": [{"type": "assert-table-uuid", "uuid": str(table.metadata.table_uuid)}],
        "updates": [{"action": "upgrade-format-version", "format-version": UPGRADED}],
    }
    if own_metadata:
        request["metadata-location"] = table.metadata_location
    return json.dumps(request, separators=(",", ":")).encode()
