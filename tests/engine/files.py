"""Files as another engine writes them: data, equality deletes, position deletes, each with its metrics."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, prune_columns, sanitize_column_names
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType, StructType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from tests.engine.parquet_rows import with_whole_nanoseconds
from tests.engine.row_files import fits_orc, write_avro, write_orc
from tests.engine.values import canonical, field_path, path_in_history, schemas_newest_first, value_at

Records = Sequence[Mapping[str, Any]]
POSITION_SCHEMA = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)
#: What the names of all files of this writer begin with.
NAME_PREFIX = "engine-"
#: In the names of files, which are listed by them: the order in which they were written.
_NUMBERS = itertools.count()
FULL_METRICS = {"write.metadata.metrics.default": "full"}


@dataclass(frozen=True, slots=True)
class Layout:
    """How data files are laid out: omitted columns and missing field ids are what imported files look like.

    ORC becomes Avro where a column holds moments, of which pyarrow does not read all from ORC. The codec is Parquet's;
    Avro takes it where it has it. `options` go to pyarrow's Parquet writer.
    """

    file_format: FileFormat = FileFormat.PARQUET
    codec: str = "snappy"
    options: tuple[tuple[str, Any], ...] = ()
    row_group_rows: int = 1024 * 1024
    with_field_ids: bool = True
    omitted_columns: frozenset[str] = frozenset()
    former_names: bool = False  # the columns have other names: only field ids lead to them


PLAIN = Layout()


def to_arrow(schema: Schema, rows: Records | pa.Table) -> pa.Table:
    """The rows as Arrow with the schema's types, uuids as 16 bytes; an Arrow table's columns are found by name."""
    kind = pa.schema([field.with_type(_storage(field.type)) for field in schema_to_pyarrow(schema)])
    if not isinstance(rows, pa.Table):
        names = {field.name for field in schema.fields}
        if unknown := {name for row in rows for name in row} - names:
            raise ValueError(f"the rows name unknown columns {sorted(unknown)}")
        return pa.Table.from_pylist([_with_uuid_bytes(row) for row in rows], schema=kind)
    columns = [
        rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)
        for field in kind
    ]
    return pa.Table.from_arrays(columns, schema=kind)


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type with uuids as 16 bytes, since pyarrow makes no nested extension arrays of Python values."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type
    if pa.types.is_map(kind):
        key, item = (field.with_type(_storage(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_storage(kind.value_type)))
    if pa.types.is_struct(kind):
        fields = (kind.field(position) for position in range(kind.num_fields))
        return pa.struct([field.with_type(_storage(field.type)) for field in fields])
    return kind


def _with_uuid_bytes(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case Mapping():
            return {key: _with_uuid_bytes(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(_with_uuid_bytes(item) for item in value)
        case _:
            return value


def _viewed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column under a type of the same layout; a cast would match nested fields by name and lose renamed ones."""
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def schema_for_spec(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The newest schema, the current one first, that has every source column of the spec."""
    needed = {field.source_id for field in spec.fields if not isinstance(field.transform, VoidTransform)}
    for schema in schemas_newest_first(metadata):
        if all(field_path(schema, field_id) for field_id in needed):
            return schema
    raise ValueError(f"no schema of the table has all source columns of the spec {spec.spec_id}")


def partition_of(metadata: TableMetadata, spec: PartitionSpec, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The row's partition tuple in Iceberg's stored form (days, microseconds, bytes)."""
    values = []
    for field in spec.fields:
        if isinstance(field.transform, VoidTransform):
            values.append(None)
            continue
        path = path_in_history(metadata, field.source_id)
        source = path[-1].field_type
        values.append(field.transform.transform(source)(stored(value_at(row, path))))
    return tuple(values)


def stored(value: Any) -> Any:
    """The value in the form which Iceberg's transforms and partition tuples use."""
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, time):
        return time_to_micros(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return date_to_days(value) if hasattr(value, "toordinal") else value


def stored_partition(metadata: TableMetadata, spec_id: int, partition: Sequence[Any]) -> tuple[Any, ...]:
    """The stored form of a partition tuple that the oracle gave in canonical form."""
    spec = metadata.specs()[spec_id]
    types = (field.field_type for field in spec.partition_type(schema_for_spec(metadata, spec)).fields)
    return tuple(
        float.fromhex(value) if isinstance(kind, FloatType | DoubleType) and value is not None else stored(value)
        for kind, value in zip(types, partition, strict=True)
    )


def split_by_partition(
    metadata: TableMetadata, spec: PartitionSpec, schema: Schema, rows: pa.Table
) -> list[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each partition in their order, partitions in order of first appearance."""
    if not spec.fields:
        return [((), rows)] if len(rows) else []
    tops = {path_in_history(metadata, field.source_id)[0].name for field in spec.fields}
    chosen = rows.select([name for name in rows.column_names if name in tops])
    records = with_whole_nanoseconds(chosen).to_pylist()
    types = [field.field_type for field in spec.partition_type(schema).fields]
    groups: dict[Any, tuple[tuple[Any, ...], list[int]]] = {}
    for at, record in enumerate(records):
        values = partition_of(metadata, spec, record)
        key = tuple(canonical(kind, value) for kind, value in zip(types, values, strict=True))
        groups.setdefault(key, (values, []))[1].append(at)
    return [(values, rows.take(pa.array(indices, pa.int64()))) for values, indices in groups.values()]


def write_data_files(table: Table, rows: Records | pa.Table, files: int = 1, layout: Layout = PLAIN) -> list[DataFile]:
    """Write the rows under the current schema as up to so many data files for each partition they fall into."""
    metadata = table.metadata
    schema, spec = metadata.schema(), table.spec()
    done = []
    for partition, part in split_by_partition(metadata, spec, schema_for_spec(metadata, spec), to_arrow(schema, rows)):
        for piece in _pieces(part, files):
            done.append(_write(table, DataFileContent.DATA, schema, piece, spec, partition, layout=layout))
    return done


def _pieces(rows: pa.Table, count: int) -> Iterable[pa.Table]:
    """The rows in at most `count` consecutive pieces, sizes even to one row, none empty."""
    edges = [len(rows) * at // count for at in range(count + 1)]
    return (rows.slice(low, high - low) for low, high in pairwise(edges) if high > low)


def write_equality_deletes(
    table: Table, field_ids: Sequence[int], rows: Records | pa.Table, partition: tuple[Any, ...] | None, spec_id: int
) -> list[DataFile]:
    """Write one equality delete file for each partition of the spec; a given partition takes all rows.

    Raises ValueError where the partition is not given and does not follow from the columns of the rows.
    """
    metadata, schema = table.metadata, table.schema()
    spec = metadata.specs()[spec_id]
    key_schema = prune_columns(schema, set(field_ids), select_full_types=False)
    if partition is not None or not spec.fields:
        groups = [(partition or (), to_arrow(key_schema, _only(key_schema, rows)))]
    else:
        full = to_arrow(schema, rows)
        _require_sources(metadata, spec, rows)
        groups = [
            (values, to_arrow(key_schema, _only(key_schema, with_whole_nanoseconds(part).to_pylist())))
            for values, part in split_by_partition(metadata, spec, schema_for_spec(metadata, spec), full)
        ]
    content = DataFileContent.EQUALITY_DELETES
    return [
        _write(table, content, key_schema, keys, spec, values, equality_ids=sorted(field_ids))
        for values, keys in groups
        if len(keys)
    ]


def _require_sources(metadata: TableMetadata, spec: PartitionSpec, rows: Records | pa.Table) -> None:
    named = set(rows.column_names) if isinstance(rows, pa.Table) else {name for row in rows for name in row}
    for field in spec.fields:
        source = path_in_history(metadata, field.source_id)[0].name
        if source not in named and not isinstance(field.transform, VoidTransform):
            raise ValueError(f"the keys lack {source}, of which the partition is made: name the partition")


def _only(schema: Schema, rows: Records | pa.Table) -> Records | pa.Table:
    """The rows reduced to the schema's fields, inside structs too."""
    records = rows.to_pylist() if isinstance(rows, pa.Table) else rows
    return [_reduced(schema.as_struct(), record) for record in records]


def _reduced(kind: Any, value: Any) -> Any:
    if value is None or not hasattr(kind, "fields"):
        return value
    return {field.name: _reduced(field.field_type, value.get(field.name)) for field in kind.fields}


def write_position_deletes(
    table: Table,
    spec_id: int,
    partition: tuple[Any, ...],
    deletes: Sequence[tuple[str, int]],
    with_bounds: bool = True,
    rows: Mapping[tuple[str, int], Any] | None = None,
) -> DataFile:
    """Write (path, position) pairs in the given order as one position delete file, with the deleted rows if given."""
    schema, records = POSITION_SCHEMA, [{"file_path": path, "pos": position} for path, position in deletes]
    if rows is not None:
        row = NestedField(2147483544, "row", StructType(*table.schema().fields), required=False)
        schema = Schema(*POSITION_SCHEMA.fields, row)
        records = [{**record, "row": rows[place]} for record, place in zip(records, deletes, strict=True)]
    spec = table.metadata.specs()[spec_id]
    content = DataFileContent.POSITION_DELETES
    arrow = to_arrow(schema, records)
    return _write(table, content, schema, arrow, spec, partition, metrics=FULL_METRICS, with_bounds=with_bounds)


def _write(
    table: Table,
    content: DataFileContent,
    schema: Schema,
    rows: pa.Table,
    spec: PartitionSpec,
    partition: Sequence[Any],
    *,
    equality_ids: list[int] | None = None,
    layout: Layout = PLAIN,
    metrics: Mapping[str, str] | None = None,
    with_bounds: bool = True,
) -> DataFile:
    """Write one file below the table's location and return its entry, spec included.

    Delete files take the format of `write.delete.format.default`.
    """
    if content != DataFileContent.DATA:
        wanted = table.properties.get("write.delete.format.default", "parquet")
        layout = replace(layout, file_format=FileFormat(wanted.upper()))
    kept = {field.field_id for field in schema.fields if field.name not in layout.omitted_columns}
    file_schema = sanitize_column_names(prune_columns(schema, kept) if layout.omitted_columns else schema)
    if layout.former_names:
        former = (field.model_copy(update={"name": f"former_{field.name}"}) for field in file_schema.fields)
        file_schema = Schema(*former)
    if layout.file_format == FileFormat.ORC and not fits_orc(file_schema):
        layout = replace(layout, file_format=FileFormat.AVRO)
    path = _new_path(table.metadata, spec, partition, layout.file_format)
    arrow_schema = schema_to_pyarrow(file_schema, include_field_ids=layout.with_field_ids)
    columns = rows.select([field.name for field in schema.fields if field.field_id in kept]).columns
    viewed = [_viewed(column, field.type) for column, field in zip(columns, arrow_schema, strict=True)]
    rows = pa.Table.from_arrays(viewed, schema=arrow_schema)
    statistics: dict[str, Any] = {"record_count": len(rows), "column_sizes": {}, "split_offsets": None}
    match layout.file_format:
        case FileFormat.AVRO:
            codec = {"gzip": "deflate", "none": "null"}.get(layout.codec, "deflate")
            write_avro(table.io, path, file_schema, rows, with_field_ids=layout.with_field_ids, codec=codec)
        case FileFormat.ORC:
            write_orc(table.io, path, file_schema, rows, with_field_ids=layout.with_field_ids)
        case _:
            footer = _write_parquet(table.io, path, rows, layout)
            properties = table.properties if metrics is None else dict(metrics)
            statistics = file_statistics(footer, file_schema, properties, rows)
    if not with_bounds:
        statistics |= {"lower_bounds": {}, "upper_bounds": {}}
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=layout.file_format,
        partition=Record(*partition),
        file_size_in_bytes=len(table.io.new_input(path)),
        sort_order_id=None,
        equality_ids=equality_ids,
        key_metadata=None,
        **statistics,
    )
    file.spec_id = spec.spec_id
    return file


def _new_path(metadata: TableMetadata, spec: PartitionSpec, partition: Sequence[Any], kind: FileFormat) -> str:
    base = metadata.properties.get("write.data.path", f"{metadata.location}/data").rstrip("/")
    folder = spec.partition_to_path(Record(*partition), schema_for_spec(metadata, spec)) if spec.fields else ""
    return "/".join(
        part for part in (base, folder, f"{NAME_PREFIX}{next(_NUMBERS):08}-{uuid.uuid4()}.{kind.value.lower()}") if part
    )


def _write_parquet(io: FileIO, path: str, rows: pa.Table, layout: Layout) -> pq.FileMetaData:
    options = {
        "store_schema": False,
        "store_decimal_as_integer": True,
        "compression": layout.codec,
        **dict(layout.options),
    }
    with io.new_output(path).create(overwrite=False) as out:
        with pq.ParquetWriter(out, rows.schema, **options) as writer:
            writer.write_table(rows, row_group_size=layout.row_group_rows)
        return writer.writer.metadata


def file_statistics(
    footer: pq.FileMetaData, schema: Schema, properties: Mapping[str, str], rows: pa.Table
) -> dict[str, Any]:
    """The file's metrics as arguments of `DataFile.from_args`; no bounds where a chunk does not tell its own.

    Parquet leaves out min and max of a chunk with a huge value, and bounds made of the other chunks would be wrong.
    """
    paths = parquet_path_to_id_mapping(schema)
    plan = compute_statistics_plan(schema, dict(properties))
    done = data_file_statistics_from_parquet_metadata(footer, plan, paths).to_serialized_dict()
    unknown = {paths[chunk.path_in_schema] for chunk in _chunks(footer) if not _tells_bounds(chunk)}
    for bounds in ("lower_bounds", "upper_bounds"):
        done[bounds] = {field_id: value for field_id, value in done[bounds].items() if field_id not in unknown}
    done["nan_value_counts"] = {
        field.field_id: pc.sum(pc.is_nan(column).fill_null(False)).as_py() or 0
        for field, column in zip(schema.fields, rows.columns, strict=True)
        if pa.types.is_floating(column.type) and field.field_id in done["value_counts"]
    }
    return done


def _chunks(footer: pq.FileMetaData) -> Iterable[pq.ColumnChunkMetaData]:
    for group in range(footer.num_row_groups):
        for column in range(footer.num_columns):
            yield footer.row_group(group).column(column)


def _tells_bounds(chunk: pq.ColumnChunkMetaData) -> bool:
    if not chunk.is_stats_set:
        return False
    statistics = chunk.statistics
    return statistics.has_min_max or (statistics.has_null_count and statistics.null_count == chunk.num_values)
