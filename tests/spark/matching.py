"""Which deletes apply to which data files: Iceberg's Java runtime and our matcher, side by side."""

from __future__ import annotations

import math
import struct
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, PrimitiveType, UUIDType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.tables import parse_table

from .java import JavaTable, load_java_table, planned_files
from .session import SharedCatalog

Deletes = dict[str, frozenset[str]]

#: The random tables' required column of an optional struct.
INNER = 12


def assert_deletes_match_as_in_java(catalog: SharedCatalog, table: str) -> None:
    """Fail unless both sides list the same deletes for each data file of the head, as `as_java_lists` says."""
    listed = as_java_lists(catalog.load(table).metadata, scan_of(catalog, table))
    assert listed == java_deletes(load_java_table(catalog.spark, table))


def scan_of(catalog: SharedCatalog, table: str) -> TableScan:
    """The head as our services read it."""
    scan = IcebergFormat().load(catalog.config, parse_table(table)).scan()
    assert scan is not None
    return scan


def as_java_lists(metadata: TableMetadata, scan: TableScan) -> Deletes:
    """What Java must list for each data file, given what our scan does.

    Where a vector applies, no side lists a position delete file. Two differences are by design, and exact. An
    equality delete whose keys can't be in the file, by their bounds and null counts as Java understands them, is
    left out by Java; we go by sequence numbers and partitions alone. A position delete that names several files is
    listed by Java for every file of its partition; we leave out those that the bounds of its paths exclude.
    """
    every = {delete.path: delete for file in scan.files for delete in file.deletes}
    every |= {delete.path: delete for delete in scan.dangling}
    shared = [one for one in every.values() if one.kind is DeleteKind.POSITION and not _names_one_file(one)]
    listed: Deletes = {}
    for file in scan.files:
        here = {
            delete.path
            for delete in file.deletes
            if delete.kind is DeleteKind.POSITION or may_meet(metadata.schema(), file.data, delete, as_java=True)
        }
        if not any(delete.is_vector for delete in file.deletes):
            here |= {delete.path for delete in shared if _is_left_out_by_paths(file.data, delete)}
        listed[normalise(file.data.path)] = frozenset(map(normalise, here))
    return listed


def java_deletes(java: JavaTable) -> Deletes:
    """For each data file of the head the deletes with which Java would read it; paths in their one spelling."""
    return {normalise(path): frozenset(map(normalise, deletes)) for path, (_, deletes) in planned_files(java).items()}


def _names_one_file(delete: DeleteFile) -> bool:
    bounds = delete.path_bounds
    return bounds is not None and bounds[0] == bounds[1]


def _is_left_out_by_paths(data: DataFile, delete: DeleteFile) -> bool:
    """Whether the delete applies by partition and number, and its paths all sort before or after the file's."""
    if (data.spec_id, data.partition) != (delete.spec_id, delete.partition):
        return False
    if data.sequence_number > delete.sequence_number or delete.path_bounds is None:
        return False
    low, high = delete.path_bounds
    spelled = ((data.path, low, high), tuple(map(normalise, (data.path, low, high))))
    return all(not low <= path <= high for path, low, high in spelled)


def may_meet(schema: Schema, data: DataFile, delete: DeleteFile, *, as_java: bool) -> bool:
    """Whether the file can hold a row that the equality delete names, by nulls and bounds.

    By the specification UUIDs compare as bytes, and a column may be null where the struct around it may.
    """
    return all(_may_meet(schema, field_id, data, delete, as_java) for field_id in delete.equality_ids)


def _may_meet(schema: Schema, field_id: int, data: DataFile, delete: DeleteFile, as_java: bool) -> bool:
    column = schema.find_field(field_id)
    if not as_java and field_id == INNER:
        column = NestedField(field_id, column.name, column.field_type, required=False)
    of_data, of_delete = data.metrics, delete.metrics
    if _may_be_null(of_data, column) and _may_be_null(of_delete, column):
        return True
    if _is_all_null(of_data, column) or _is_all_null(of_delete, column):
        return False
    held, deleted = _bounds(column, of_data, as_java), _bounds(column, of_delete, as_java)
    if held is None or deleted is None:
        return True
    return held[0] <= deleted[1] and deleted[0] <= held[1]


def _may_be_null(metrics: ColumnMetrics, column: NestedField) -> bool:
    return not column.required and metrics.null_value_counts.get(column.field_id, 1) > 0


def _is_all_null(metrics: ColumnMetrics, column: NestedField) -> bool:
    nulls = metrics.null_value_counts.get(column.field_id)
    return not column.required and nulls is not None and nulls == metrics.value_counts.get(column.field_id)


def _bounds(column: NestedField, metrics: ColumnMetrics, as_java: bool) -> tuple[Any, Any] | None:
    assert isinstance(column.field_type, PrimitiveType)
    low, high = metrics.lower_bounds.get(column.field_id), metrics.upper_bounds.get(column.field_id)
    if low is None or high is None:
        return None
    if as_java and isinstance(column.field_type, UUIDType):
        return struct.unpack(">qq", low), struct.unpack(">qq", high)  # two numbers with sign
    return _in_order(from_bytes(column.field_type, low)), _in_order(from_bytes(column.field_type, high))


def _in_order(value: Any) -> Any:
    """The value as Java's comparators order it: −0.0 is below 0.0."""
    return (value, math.copysign(1.0, value)) if isinstance(value, float) else value
