"""Which deletes apply to which data files: Iceberg's Java runtime and our matcher, side by side."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField, PrimitiveType, UUIDType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import parse_table

from .java import load_java_table
from .session import SharedCatalog

_ICEBERG = "org.apache.iceberg"
_GUAVA = f"{_ICEBERG}.relocated.com.google.common"


@dataclass(frozen=True, slots=True)
class JavaPlans:
    """Functions over scan tasks, made in the JVM of method handles, since py4j can't send code."""

    gateway: Any
    path: Any  # of a task: the location of its data file
    deletes: Any  # of a task: the locations of its delete files

    def deletes_by_file(self, table: Any) -> dict[str, frozenset[str]]:
        """For each data file of the head of a Java table the deletes with which Java would read it, by location.

        Locations have no line breaks, commas or brackets in these tests.
        """
        guava = self.gateway.jvm.org.apache.iceberg.relocated.com.google.common
        planned = table.newScan().planFiles()
        tasks = guava.collect.Lists.newArrayList(planned)
        planned.close()
        join = guava.base.Joiner.on("\n").join
        paths, deletes = (str(join(guava.collect.Lists.transform(tasks, of))) for of in (self.path, self.deletes))
        lists = (line.strip("[]").split(", ") for line in deletes.split("\n"))
        return {
            path: frozenset(filter(None, here)) for path, here in zip(paths.split("\n"), lists, strict=True) if path
        }


def java_plans(gateway: Any) -> JavaPlans:
    """Make the functions in the gateway's JVM."""
    invoke = gateway.jvm.java.lang.invoke
    lookup, handles, signature = invoke.MethodHandles.publicLookup(), invoke.MethodHandles, invoke.MethodType.methodType
    loader = gateway.jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def named(name: str) -> Any:
        return gateway.jvm.java.lang.Class.forName(name, True, loader)

    def getter(owner: str, name: str, kind: str) -> Any:
        return lookup.findVirtual(named(f"{_ICEBERG}.{owner}"), name, signature(named(kind)))

    def as_function(handle: Any) -> Any:
        return invoke.MethodHandleProxies.asInterfaceInstance(function, handle)

    function = named(f"{_GUAVA}.base.Function")
    location = getter("ContentFile", "location", "java.lang.String")
    given = gateway.new_array(gateway.jvm.java.lang.Object, 1)
    given[0] = as_function(location)
    listing = signature(named("java.util.List"), gateway.jvm.java.util.List.of(named("java.util.List"), function))
    transform = lookup.findStatic(named(f"{_GUAVA}.collect.Lists"), "transform", listing)
    locations = handles.insertArguments(transform, 1, given)
    return JavaPlans(
        gateway,
        as_function(handles.filterReturnValue(getter("ContentScanTask", "file", f"{_ICEBERG}.ContentFile"), location)),
        as_function(handles.filterReturnValue(getter("FileScanTask", "deletes", "java.util.List"), locations)),
    )


Deletes = dict[str, frozenset[str]]

#: The random tables' required column of an optional struct.
INNER = 12


def assert_deletes_match_as_in_java(catalog: SharedCatalog, table: str) -> None:
    """Fail unless both sides list the same deletes for each data file of the head, as `as_java_lists` says."""
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()))
    scan = IcebergFormat().load(config, parse_table(table)).scan()
    assert scan is not None
    assert as_java_lists(catalog.load(table).metadata, scan) == java_deletes(catalog, table)


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
        here = {delete.path for delete in file.deletes if _is_listed_by_java(metadata, file.data, delete)}
        if not any(delete.is_vector for delete in file.deletes):
            here |= {delete.path for delete in shared if _is_left_out_by_paths(file.data, delete)}
        listed[normalise(file.data.path)] = frozenset(map(normalise, here))
    return listed


def java_deletes(catalog: SharedCatalog, table: str) -> Deletes:
    """For each data file of the head the deletes with which Java would read it."""
    java = load_java_table(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."))
    return planned_deletes(java_plans(java.gateway), java.table)


def planned_deletes(plans: JavaPlans, table: Any) -> Deletes:
    """The same of a Java table, with paths in their one spelling."""
    planned = plans.deletes_by_file(table)
    return {normalise(path): frozenset(map(normalise, here)) for path, here in planned.items()}


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


def _is_listed_by_java(metadata: TableMetadata, data: DataFile, delete: DeleteFile) -> bool:
    return delete.kind is DeleteKind.POSITION or may_meet(metadata.schema(), data, delete, as_java=True)


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
