"""Tables through Iceberg's Java API: commits that Spark's SQL does not write, its own readers, its comparisons."""

from __future__ import annotations

import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, TimestampNanoType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JavaTable:
    """A table as Java has loaded it, with the gateway to that Java."""

    gateway: Any
    table: Any

    @property
    def iceberg(self) -> Any:
        """Java's package of the same name."""
        return self.gateway.jvm.org.apache.iceberg

    def items(self, iterable: Any) -> list[Any]:
        """What a closeable iterable has; py4j's own iterators take every error for the end."""
        found = list(self.iceberg.relocated.com.google.common.collect.Lists.newArrayList(iterable))
        iterable.close()
        return found

    def records(self, *columns: Any) -> tuple[Any, list[Any]]:
        """The schema and the rows of the head, with these metadata columns, by Java's generic reader."""
        schema = self.iceberg.types.TypeUtil.join(self.table.schema(), self.iceberg.Schema(list(columns)))
        return schema, self.items(self.iceberg.data.IcebergGenerics.read(self.table).project(schema).build())


def load_java_table(spark: SparkSession, table: str) -> JavaTable:
    """Load the table by its full name: that of a catalog that Spark knows comes first."""
    # pyspark has no public way to the JVM.
    gateway: Any = spark.sparkContext._gateway
    spark3 = gateway.jvm.org.apache.iceberg.spark.Spark3Util
    return JavaTable(gateway, spark3.loadIcebergTable(spark._jsparkSession, table))


def java_upsert(
    spark: SparkSession,
    table: str,
    key_columns: Sequence[str],
    rows_to_delete: Iterable[Row],
    rows_to_append: Iterable[Row],
    spec_id: int | None = None,
) -> None:
    """Commit equality deletes and new rows, which are not subject to them, as one row delta.

    The deletes hold the key columns only, which are columns of the top level. There is one file of each kind for each
    partition that the rows fall in: a row to delete has the columns that the spec is made of. The spec is the current
    one, or an older one by its id; deletes of an unpartitioned spec apply to the whole table. Columns that a row lacks
    are null. Files are written as the table's properties say.
    """
    java = load_java_table(spark, table)
    schema, kinds = java.table.schema(), java.iceberg.FileFormat
    spec = java.table.spec() if spec_id is None else java.table.specs()[spec_id]
    key_schema = schema.select(list(key_columns))
    key_ids = java.gateway.new_array(java.gateway.jvm.int, len(key_columns))
    for position, name in enumerate(key_columns):
        key_ids[position] = schema.findField(name).fieldId()
    kind = kinds.fromString(java.table.properties().getOrDefault("write.format.default", "parquet"))
    builder = java.iceberg.data.GenericFileWriterFactory.Builder(java.table)
    builder.dataSchema(schema).dataFileFormat(kind).deleteFileFormat(kind)
    factory = builder.equalityFieldIds(key_ids).equalityDeleteRowSchema(key_schema).build()
    files = java.iceberg.io.OutputFileFactory.builderFor(java.table, 0, 0)
    outputs = files.defaultSpec(spec).operationId(str(uuid4())).format(kind).build()

    delta = java.table.newRowDelta()
    for key, group in _by_partition(java, spec, rows_to_delete):
        writer = factory.newEqualityDeleteWriter(outputs.newOutputFile(spec, key), spec, key)
        for row in group:
            writer.write(_record(java, key_schema, {name: row[name] for name in key_columns}))
        writer.close()
        delta.addDeletes(writer.toDeleteFile())
    for key, group in _by_partition(java, spec, rows_to_append):
        writer = factory.newDataWriter(outputs.newOutputFile(spec, key), spec, key)
        for row in group:
            writer.write(_record(java, schema, row))
        writer.close()
        delta.addRows(writer.toDataFile())
    delta.commit()


def _record(java: JavaTable, java_schema: Any, row: Row) -> Any:
    """A generic record of the schema with the row's values."""
    schema = Schema.model_validate_json(java.iceberg.SchemaParser.toJson(java_schema))
    given = [(schema.find_field(name), value) for name, value in row.items() if value is not None]
    times = java.gateway.jvm.java.time
    # py4j sends small ints as Integer; Iceberg's parser makes the class that the type wants, but for days and the like.
    plain, direct = dict[str, Any](), dict[str, Any]()
    for field, value in given:
        match field.field_type:
            case DateType():
                direct[field.name] = times.LocalDate.parse(value.isoformat())
            case TimestampNanoType():  # for which Python has no type
                direct[field.name] = times.LocalDateTime.parse(value)
            case DecimalType(scale=scale):
                plain[str(field.field_id)] = str(value.quantize(Decimal(1).scaleb(-scale)))
            case _:
                plain[str(field.field_id)] = value
    made = java.iceberg.SingleValueParser.fromJson(java_schema.asStruct(), json.dumps(plain))
    for name, value in direct.items():
        made.setField(name, value)
    return made


def _by_partition(java: JavaTable, spec: Any, rows: Iterable[Row]) -> list[tuple[Any, list[Row]]]:
    """Group the rows by Java's partition key, in the order in which the partitions come first."""
    schema = java.table.schema()
    wrapper = java.iceberg.data.InternalRecordWrapper(schema.asStruct())
    groups: dict[str, tuple[Any, list[Row]]] = {}
    for row in rows:
        key = java.iceberg.PartitionKey(spec, schema)
        key.partition(wrapper.wrap(_record(java, schema, row)))
        groups.setdefault(key.toPath(), (key, []))[1].append(row)
    return list(groups.values())


def evolved(spark: SparkSession, table: str, *columns: tuple[str | None, str, str, Any]) -> None:
    """Add columns through Java's library: the struct that has it, its name, the type as Java names it, its default."""
    java = load_java_table(spark, table)
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
    columns = java.iceberg.MetadataColumns
    # By name: where rows are deleted by position, some versions add a column.
    names = [str(column.name()) for column in java.table.schema().columns()]
    _, rows = java.records(columns.ROW_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER)
    found = {}
    for row in rows:
        plain = tuple(_shown(row.getField(name)) for name in names)
        ids = (row.getField(columns.ROW_ID.name()), row.getField(columns.LAST_UPDATED_SEQUENCE_NUMBER.name()))
        found[row.getField("id")] = (plain, *ids)
    assert len(found) == len(rows)
    return found


def _shown(value: Any) -> str:
    """The value as Java shows it, bytes by their digits."""
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if type(value).__name__ != "JavaObject":
        return repr(value)
    if value.getClass().getSimpleName() == "HeapByteBuffer":
        return _shown(value.array())
    return str(value.toString())


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


def planned_files(java: JavaTable) -> dict[str, tuple[int, list[str]]]:
    """The data files of the head as Java plans them, by location: their sort order, the deletes that are applied."""
    found = {}
    for task in java.items(java.table.newScan().planFiles()):
        file = task.file()
        deletes = [str(delete.location()) for delete in task.deletes()]
        found[str(file.location())] = (int(file.sortOrderId() or 0), deletes)
    return found


def require_ordered(java: JavaTable, paths: Iterable[str], order_id: int) -> None:
    """Fail unless the rows of each file are in that sort order of the table, as Java's reader and comparator see it."""
    columns, files = java.iceberg.MetadataColumns, dict[str, list[tuple[int, Any]]]()
    schema, rows = java.records(columns.FILE_PATH, columns.ROW_POSITION)
    for row in rows:
        compared = java.iceberg.data.InternalRecordWrapper(schema.asStruct()).wrap(row)
        files.setdefault(str(row.getField("_file")), []).append((int(row.getField("_pos")), compared))
    comparator = java.iceberg.SortOrderComparators.forSchema(schema, java.table.sortOrders().get(order_id))
    ordering = getattr(java.iceberg.relocated.com.google.common.collect.Ordering, "from")(comparator)
    found = [[row for _, row in sorted(files[path], key=lambda one: one[0])] for path in paths]
    assert all(map(ordering.isOrdered, found))
    assert not ordering.isOrdered(max(found, key=len)[::-1]), "Java can tell"
