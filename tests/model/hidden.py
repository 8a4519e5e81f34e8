"""What a commit hides in its outputs: rows that others had deleted from its inputs, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from tests.engine import oracle
from tests.engine.oracle import LiveFile
from tests.model.lake import process_of

_ROW_ID = "_row_id"


def require_hidden(table: Table, process_id: str) -> int:
    """Each row that the process's commits hide in their outputs, as it is stored there, was hidden in an input before.

    Every column counts, and from format 3 on the row's id. Returns how many there are.
    """
    metadata, count = table.refresh().metadata, 0
    known = {one.snapshot_id for one in metadata.snapshots}
    for snapshot in metadata.snapshots:
        if process_of(snapshot) != process_id or snapshot.parent_snapshot_id not in known:
            continue
        before = oracle.files_in(metadata, snapshot.parent_snapshot_id)
        after = oracle.files_in(metadata, snapshot.snapshot_id)
        hidden = _hidden(metadata, after, {one.path for one in before})
        gone = _hidden(metadata, before, {one.path for one in after})
        assert hidden <= gone, hidden - gone
        count += hidden.total()
    return count


def _hidden(metadata: TableMetadata, files: Iterable[LiveFile], others: set[str]) -> Counter[tuple[Any, ...]]:
    """The rows of data files, without those at `others`, that deletes by position hide, raw and by column."""
    files = list(files)
    deleted = oracle.positions_in_files(metadata, files)
    for vector in (one for one in files if one.is_vector):
        deleted[vector.referenced or ""] += [(vector.data_sequence, at) for at in oracle.vector_positions(vector)]
    found: Counter[tuple[Any, ...]] = Counter()
    for file in files:
        if file.content != oracle.DATA or file.path in others:
            continue
        positions = sorted({at for number, at in deleted[file.path] if number >= file.data_sequence})
        if not positions:
            continue
        table = pq.read_table(file.path.removeprefix("file://")).take(positions)
        ids = {name: (table.schema.field(name).metadata or {}).get(b"PARQUET:field_id") for name in table.schema.names}
        for position, raw in zip(positions, table.to_pylist(), strict=True):
            row = {ids[name]: value for name, value in raw.items() if not name.startswith("_")}
            stored = raw.get(_ROW_ID)
            implied = None if file.first_row_id is None else file.first_row_id + position
            found[*((key, row[key]) for key in sorted(row, key=str)), stored if stored is not None else implied] += 1
    return found
