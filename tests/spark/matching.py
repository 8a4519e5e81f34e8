"""Which deletes apply to which data files: Iceberg's Java runtime and our matcher, side by side."""

from __future__ import annotations

from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table

from .catalogs import SharedCatalog
from .java_writer import load_java_table

Deletes = dict[str, frozenset[str]]


def assert_deletes_match_as_in_java(catalog: SharedCatalog, table: str) -> None:
    """Fail unless both sides list the same deletes for each data file of the head.

    Two differences are by design. An equality delete whose keys can't be in the file, by their bounds and null counts,
    is left out by Java; we go by sequence numbers and partitions alone. A position delete that names several files is
    listed by Java for every file of its partition; we leave out those that the bounds of its paths exclude.
    """
    metadata = catalog.load(table)
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()))
    scan = IcebergFormat().load(config, parse_table(table)).scan()
    assert scan is not None
    every = {delete.path: delete for file in scan.files for delete in file.deletes}
    every |= {delete.path: delete for delete in scan.dangling}
    shared = [one for one in every.values() if one.kind is DeleteKind.POSITION and not _names_one_file(one)]
    ours: Deletes = {}
    for file in scan.files:
        listed = {delete.path for delete in file.deletes if _is_listed_by_java(metadata, file.data, delete)}
        listed |= {delete.path for delete in shared if _lies_with(file.data, delete)}
        ours[normalise(file.data.path)] = frozenset(map(normalise, listed))
    assert ours == java_deletes(catalog, table)


def _names_one_file(delete: DeleteFile) -> bool:
    bounds = delete.path_bounds
    return bounds is not None and bounds[0] == bounds[1]


def _lies_with(data: DataFile, delete: DeleteFile) -> bool:
    same_place = (data.spec_id, data.partition) == (delete.spec_id, delete.partition)
    return same_place and data.sequence_number <= delete.sequence_number


def java_deletes(catalog: SharedCatalog, table: str) -> Deletes:
    """For each data file of the head the deletes with which Java would read it."""
    java = load_java_table(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."))
    tasks = java.table.newScan().planFiles()
    found: Deletes = {}
    iterator = tasks.iterator()
    while iterator.hasNext():
        task = iterator.next()
        found[normalise(task.file().location())] = frozenset(normalise(one.location()) for one in task.deletes())
    tasks.close()
    return found


def _is_listed_by_java(table: Table, data: DataFile, delete: DeleteFile) -> bool:
    if delete.kind is DeleteKind.POSITION:
        return True
    return all(_may_meet(table, field_id, data, delete) for field_id in delete.equality_ids)


def _may_meet(table: Table, field_id: int, data: DataFile, delete: DeleteFile) -> bool:
    """Whether the file can hold a value of the key column that the delete holds, by nulls and bounds."""
    of_data, of_delete = data.metrics, delete.metrics
    if _has_nulls(of_data, field_id) and _has_nulls(of_delete, field_id):
        return True
    if _is_all_null(of_data, field_id) or _is_all_null(of_delete, field_id):
        return _has_nulls(of_data, field_id) and _has_nulls(of_delete, field_id)
    held, deleted = _bounds(table, of_data, field_id), _bounds(table, of_delete, field_id)
    if held is None or deleted is None:
        return True
    return bool(held[0] <= deleted[1] and deleted[0] <= held[1])


def _has_nulls(metrics: ColumnMetrics, field_id: int) -> bool:
    return metrics.null_value_counts.get(field_id, 1) > 0


def _is_all_null(metrics: ColumnMetrics, field_id: int) -> bool:
    nulls = metrics.null_value_counts.get(field_id)
    return nulls is not None and nulls == metrics.value_counts.get(field_id)


def _bounds(table: Table, metrics: ColumnMetrics, field_id: int) -> tuple[Any, Any] | None:
    kind = table.schema().find_type(field_id)
    assert isinstance(kind, PrimitiveType)
    low, high = metrics.lower_bounds.get(field_id), metrics.upper_bounds.get(field_id)
    return None if low is None or high is None else (from_bytes(kind, low), from_bytes(kind, high))
