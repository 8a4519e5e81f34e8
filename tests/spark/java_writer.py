"""Commits through Iceberg's Java API, for what Spark's SQL does not write: equality deletes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
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
