"""Tables through Iceberg's Java API: commits that Spark's SQL does not write, its own readers, its comparisons."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .session import SharedCatalog

Row = Mapping[str, Any]
_Nanoseconds = TimestampNanoType | TimestamptzNanoType


@dataclass(frozen=True, slots=True)
class JavaTable:
    """A table as Java has loaded it, with the gateway to that Java."""

    gateway: Any
    table: Any

    @property
    def iceberg(self) -> Any:
        """Java's package of the same name."""
        return self.gateway.jvm.org.apache.iceberg


def java_upsert(
    spark: SparkSession,
    catalog: str,
    identifier: str,
    key_columns: Sequence[str],
    rows_to_delete: Iterable[Row],
    rows_to_append: Iterable[Row],
    partition: Row | None = None,
    spec_id: int | None = None,
) -> int:
    """Commit equality deletes and new rows as one row delta and return its snapshot's id.

    The deletes hold the key columns only, which are columns of the top level; the new rows are not subject to them.
    There is one file of each kind for each partition that the rows fall in. A row to delete names its partition by
    the columns that the spec is made of: its own or, where they are no keys, those of `partition`. The spec is the
    current one, or an older one by its id; deletes of an unpartitioned spec apply to the whole table.
    Columns that a new row lacks are null. Files are written as the table's properties say.

    Raises ValueError for a column that the table does not have, a row to delete without a column of the spec, a
    value that has no Java counterpart here (times inside structs, lists and maps).
    """
    java = load_java_table(spark, catalog, identifier)
    schema = java.table.schema()
    spec = java.table.spec() if spec_id is None else java.table.specs()[spec_id]
    key_schema = schema.select(_java_list(java, key_columns))
    factory = _writer_factory(java, schema, key_schema, [schema.findField(name).fieldId() for name in key_columns])
    outputs = _output_files(java, spec)
    delta = java.table.newRowDelta()

    deletes = [{**(partition or {}), **row} for row in rows_to_delete]
    _refuse_without_partition(schema, spec, deletes)
    for key, group in _by_partition(java, spec, schema, deletes):
        writer = factory.newEqualityDeleteWriter(outputs.newOutputFile(spec, key), spec, key)
        for row in group:
            writer.write(record(java, key_schema, {name: row[name] for name in key_columns}))
        writer.close()
        delta.addDeletes(writer.toDeleteFile())
    for key, group in _by_partition(java, spec, schema, rows_to_append):
        writer = factory.newDataWriter(outputs.newOutputFile(spec, key), spec, key)
        for row in group:
            writer.write(record(java, schema, row))
        writer.close()
        delta.addRows(writer.toDataFile())
    delta.commit()
    java.table.refresh()
    return int(java.table.currentSnapshot().snapshotId())


def load_java_table(spark: SparkSession, catalog: str, identifier: str) -> JavaTable:
    """Load the table of a catalog that Spark knows."""
    # pyspark has no public way to the JVM.
    gateway: Any = spark.sparkContext._gateway
    spark3 = gateway.jvm.org.apache.iceberg.spark.Spark3Util
    return JavaTable(gateway, spark3.loadIcebergTable(spark._jsparkSession, f"{catalog}.{identifier}"))


def record(java: JavaTable, java_schema: Any, row: Row) -> Any:
    """Return a generic record of the schema with the row's values; columns that the row lacks are null."""
    schema = Schema.model_validate_json(java.iceberg.SchemaParser.toJson(java_schema))
    if unknown := row.keys() - {field.name for field in schema.fields}:
        raise ValueError(f"the table has no columns {sorted(unknown)}")
    given = [(field, row[field.name]) for field in schema.fields if row.get(field.name) is not None]
    # py4j sends small ints as Integer and floats as Double; Iceberg's parser makes the class that the type wants.
    plain = {
        str(field.field_id): _json_value(field.field_type, value)
        for field, value in given
        if not _is_set_directly(field, value)
    }
    made = java.iceberg.SingleValueParser.fromJson(java_schema.asStruct(), json.dumps(plain))
    for field, value in given:
        if _is_set_directly(field, value):
            made.setField(field.name, _java_value(java, value))
    return made


def _is_set_directly(field: NestedField, value: Any) -> bool:
    """Whether JSON can't say the value, or the parser gives another class than the writers of generic records take."""
    if isinstance(field.field_type, DoubleType):
        return not math.isfinite(value)
    return isinstance(field.field_type, FixedType | _Nanoseconds) or isinstance(value, date | time)


def _java_value(java: JavaTable, value: Any) -> Any:
    times = java.gateway.jvm.java.time
    match value:
        case str():  # of nanoseconds, for which Python has no type
            return (times.OffsetDateTime if value.endswith("+00:00") else times.LocalDateTime).parse(value)
        case datetime() if value.tzinfo is not None:
            return times.OffsetDateTime.parse(value.isoformat())
        case datetime():
            return times.LocalDateTime.parse(value.isoformat())
        case date():
            return times.LocalDate.parse(value.isoformat())
        case time():
            return times.LocalTime.parse(value.isoformat())
        case _:
            return value


def _json_value(kind: IcebergType, value: Any) -> Any:
    """The value in the single-value JSON form of the Iceberg specification."""
    match kind, value:
        case _, None:
            return None
        case StructType(), _:
            return {str(field.field_id): _json_value(field.field_type, value[field.name]) for field in kind.fields}
        case ListType(), _:
            return [_json_value(kind.element_type, part) for part in value]
        case MapType(), _:
            return {
                "keys": [_json_value(kind.key_type, key) for key in value],
                "values": [_json_value(kind.value_type, part) for part in value.values()],
            }
        case DecimalType(), _:
            return str(Decimal(value).quantize(Decimal(1).scaleb(-kind.scale)))
        case _, bytes():
            return value.hex().upper()
        case _, bool() | int() | str():
            return value
        case _, float() if math.isfinite(value):
            return value
        case _:
            raise ValueError(f"{value!r} of type {kind} can't be written here")


def _refuse_without_partition(schema: Any, spec: Any, rows: Iterable[Row]) -> None:
    """Raise ValueError for a row that lacks a column of the spec: it would silently count as null."""
    sources = [schema.findColumnName(field.sourceId()) for field in spec.fields()]
    for row in rows:
        if absent := [name for name in sources if name not in row]:
            raise ValueError(f"the row to delete {dict(row)} does not say its partition: {absent}")


def _by_partition(java: JavaTable, spec: Any, schema: Any, rows: Iterable[Row]) -> list[tuple[Any, list[Row]]]:
    """Group the rows by Java's partition key, in the order in which the partitions come first."""
    wrapper = java.iceberg.data.InternalRecordWrapper(schema.asStruct())
    groups: dict[str, tuple[Any, list[Row]]] = {}
    for row in rows:
        key = java.iceberg.PartitionKey(spec, schema)
        key.partition(wrapper.wrap(record(java, schema, row)))
        groups.setdefault(key.toPath(), (key, []))[1].append(row)
    return list(groups.values())


def _writer_factory(java: JavaTable, schema: Any, key_schema: Any, key_ids: Sequence[int]) -> Any:
    ids = java.gateway.new_array(java.gateway.jvm.int, len(key_ids))
    for position, field_id in enumerate(key_ids):
        ids[position] = field_id
    kind = _file_format(java)
    builder = java.iceberg.data.GenericFileWriterFactory.Builder(java.table)
    builder.dataSchema(schema).dataFileFormat(kind).deleteFileFormat(kind)
    return builder.equalityFieldIds(ids).equalityDeleteRowSchema(key_schema).build()


def _output_files(java: JavaTable, spec: Any) -> Any:
    builder = java.iceberg.io.OutputFileFactory.builderFor(java.table, 0, 0)
    return builder.defaultSpec(spec).operationId(str(uuid4())).format(_file_format(java)).build()


def _file_format(java: JavaTable) -> Any:
    return java.iceberg.FileFormat.fromString(java.table.properties().getOrDefault("write.format.default", "parquet"))


def _java_list(java: JavaTable, names: Sequence[str]) -> Any:
    values = java.gateway.jvm.java.util.ArrayList()
    for name in names:
        values.add(name)
    return values


def evolved(catalog: SharedCatalog, *columns: tuple[str | None, str, str, Any]) -> None:
    """Add columns through Java's library: the struct that has it, its name, the type as Java names it, its default."""
    java = load_java_table(catalog.spark, catalog.name, "db.t")
    change = java.table.updateSchema()
    for parent, name, kind, default in columns:
        made = java.iceberg.types.Types.fromPrimitiveString(kind)
        literal = None if default is None else java.iceberg.expressions.Literal.of(default).to(made)
        if parent is None:
            change = change.addColumn(name, made, literal) if default is not None else change.addColumn(name, made)
        else:
            change = change.addColumn(parent, name, made, None, literal)
    change.commit()


#: A row, its id and its last update, by its key.
Lineage = dict[int, tuple[Hashable, int | None, int | None]]


def read_by_java(java: JavaTable) -> Lineage:
    """The rows of the table's head with their ids and last updates; values as Java shows them."""
    java.table.refresh()
    schema, columns = java.table.schema(), java.iceberg.MetadataColumns
    lineage = java.gateway.new_array(java.iceberg.types.Types.NestedField, 2)
    lineage[0], lineage[1] = columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER
    wanted = java.iceberg.types.TypeUtil.join(schema, java.iceberg.Schema(lineage))
    records = java.iceberg.data.IcebergGenerics.read(java.table).project(wanted).build()
    names = [str(column.name()) for column in schema.columns()]
    found, rows, count = {}, records.iterator(), 0
    while rows.hasNext():
        # By name: where rows are deleted by position, some versions add a column.
        row, count = rows.next(), count + 1
        plain = tuple(shown(row.getField(name)) for name in names)
        ids = (row.getField(columns.ROW_ID.name()), row.getField(columns.LAST_UPDATED_SEQUENCE_NUMBER.name()))
        found[row.getField("id")] = (plain, *ids)
    records.close()
    assert len(found) == count
    return found


@contextmanager
def java_with(jar: Path) -> Iterator[Any]:
    """The gateway to a JVM of its own with Iceberg's library in that jar; it ends with the context."""
    # They come with pyspark, which is not part of every installation, and so does Hadoop's client.
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    others = Path(pyspark.__file__).parent / "jars"
    port, token, process = launch_gateway(
        jarpath=str(next(others.glob("py4j-*.jar"))),
        classpath=os.pathsep.join([str(jar), f"{others}/*"]),
        javaopts=["-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait()


def at_metadata(gateway: Any, metadata_location: str) -> JavaTable:
    """The table as that metadata file describes it, without a catalog."""
    iceberg = gateway.jvm.org.apache.iceberg
    io = iceberg.hadoop.HadoopFileIO(gateway.jvm.org.apache.hadoop.conf.Configuration())
    return JavaTable(gateway, iceberg.BaseTable(iceberg.StaticTableOperations(metadata_location, io), "db.t"))


def shown(value: Any) -> str:
    """The value as Java shows it, bytes by their digits."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if type(value).__name__ != "JavaObject":
        return repr(value)
    if value.getClass().getSimpleName() == "HeapByteBuffer":
        return shown(value.array())
    return str(value.toString())


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of the head as Java plans it."""

    sort_order_id: int
    deletes: int  # files of any kind that are applied to it


def planned_files(java: JavaTable) -> dict[str, PlannedFile]:
    """The data files of the head, by location."""
    planned = java.table.newScan().planFiles()
    found, tasks = {}, planned.iterator()
    while tasks.hasNext():
        task = tasks.next()
        order_id = task.file().sortOrderId()
        found[str(task.file().location())] = PlannedFile(0 if order_id is None else int(order_id), len(task.deletes()))
    planned.close()
    return found


class RowsOfFiles:
    """The live rows of the head as Java's generic reader gives them, by file and in the order of their positions."""

    def __init__(self, java: JavaTable) -> None:
        """Reads all rows."""
        self._java = java
        columns = java.iceberg.MetadataColumns
        places = java.gateway.new_array(java.iceberg.types.Types.NestedField, 2)
        places[0], places[1] = columns.FILE_PATH, columns.ROW_POSITION
        self._schema = java.iceberg.types.TypeUtil.join(java.table.schema(), java.iceberg.Schema(places))
        self._files: dict[str, list[tuple[int, Any]]] = {}
        records = java.iceberg.data.IcebergGenerics.read(java.table).project(self._schema).build()
        struct, rows = self._schema.asStruct(), records.iterator()
        while rows.hasNext():
            row = rows.next()
            compared = java.iceberg.data.InternalRecordWrapper(struct).wrap(row)
            self._files.setdefault(str(row.getField("_file")), []).append((int(row.getField("_pos")), compared))
        records.close()

    def of(self, path: str) -> list[Any]:
        """The rows of one file, none for a file whose rows are all deleted."""
        return [row for _, row in sorted(self._files.get(path, []), key=lambda one: one[0])]

    def is_ordered(self, rows: list[Any], order_id: int) -> bool:
        """Whether each row is at most as great as the next in one of the table's sort orders."""
        java = self._java
        order = java.table.sortOrders().get(order_id)
        comparator = java.iceberg.SortOrderComparators.forSchema(self._schema, order)
        ordering = getattr(java.iceberg.relocated.com.google.common.collect.Ordering, "from")(comparator)
        listed = java.gateway.jvm.java.util.ArrayList()
        for row in rows:
            listed.add(row)
        return bool(ordering.isOrdered(listed))
