"""The lineage of each live row by the letter of the specification, in plain loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table

from tests.engine import oracle
from tests.engine.parquet_rows import local_path

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
#: Id, and the sequence number of the last update.
Lineage = tuple[int | None, int | None]


def lineage_of(table: Table, snapshot_id: int | None = None, key: str = "id") -> dict[Any, Lineage]:
    """The lineage of each live row by a column whose values are unique; of main's head, or of a snapshot."""
    files = {file.path: file for file in oracle.live_files(table, snapshot_id)}
    stored: dict[str, Mapping[int, list[int | None]]] = {}
    found: dict[Any, Lineage] = {}
    for row in oracle.live_rows_with_positions(table, snapshot_id):
        file = files[row.path]
        if row.path not in stored:
            stored[row.path] = _stored(row.path)
        row_id, updated = (
            stored[row.path][field_id][row.position] if field_id in stored[row.path] else None
            for field_id in (ROW_ID, LAST_UPDATED)
        )
        if row_id is None and file.first_row_id is not None:
            row_id = file.first_row_id + row.position
        if row.record[key] in found:
            raise ValueError(f"two live rows have the key {row.record[key]}")
        found[row.record[key]] = (row_id, file.data_sequence if updated is None else updated)
    return found


def _stored(path: str) -> Mapping[int, list[int | None]]:
    """The columns of lineage that a Parquet file stores, by field id."""
    read = pq.ParquetFile(local_path(path))
    columns = {int((field.metadata or {}).get(b"PARQUET:field_id", 0)): field.name for field in read.schema_arrow}
    chosen = {field_id: columns[field_id] for field_id in (ROW_ID, LAST_UPDATED) if field_id in columns}
    content = read.read(list(chosen.values()))
    return {field_id: content.column(name).to_pylist() for field_id, name in chosen.items()}
