"""Encoding of columns: which get a dictionary, which a bloom filter, and how hard each is compressed."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import BooleanType

from amoro_core.files.options import WriterOptions
from amoro_core.files.schema import FIELD_ID
from amoro_core.model.lineage import ROW_ID_FIELD_ID

#: Rows sampled to count distinct values, in pieces from all over: of files that are joined, each may have a value once.
SAMPLE_ROWS = 1 << 14
_SAMPLES = 16
#: Levels are compared by a sixteenth of the rows at most, whatever rows cost, and not by so few that pages are short.
_LEVEL_SHARE = 16
_LEAST_LEVEL_ROWS = 1 << 12
_BLOCK_BITS = 8  # bits set by each value in a split block bloom filter


def dictionary_columns(rows: pa.Table, most_bytes: int, encoded: Collection[str] = ()) -> list[str] | bool:
    """The paths of leaf columns worth a dictionary of at most `most_bytes`; True for all, False for none.

    Where nearly all values of a sample are distinct the dictionary would overflow, or be as large as what it spares:
    building it is wasted work and memory, and pages get no smaller. Nested columns are not sampled, nor are fewer rows
    than `SAMPLE_ROWS`. `encoded` names columns that have an encoding of their own.
    """
    unfit = set(encoded)
    if rows.num_rows >= SAMPLE_ROWS:
        length = SAMPLE_ROWS // _SAMPLES
        steps = (rows.num_rows - length) // (_SAMPLES - 1)
        sample = pa.concat_tables(rows.slice(number * steps, length) for number in range(_SAMPLES))
        unfit |= {
            name
            for name, column in zip(sample.column_names, sample.columns, strict=True)
            if name not in unfit and _is_wasted(column, rows.num_rows, most_bytes)
        }
    if not unfit:
        return True
    return [path for column in rows.schema for path in _leaf_paths(column) if path.split(".")[0] not in unfit]


def compression_levels(rows: pa.Table, lower: int, higher: int, writing: Mapping[str, Any]) -> int | dict[str, int]:
    """The codec's level of each leaf column by path: the lower one where it makes pages no larger.

    Level 3 of zstd finds no more repeats than level 1 in texts of random digits, is 5 % larger there, and takes twice
    the time. Rows from the middle are written by both, as `writing` tells the writer; all columns get the higher level
    where there are too few rows for that.
    """
    length = min(SAMPLE_ROWS, rows.num_rows // _LEVEL_SHARE)
    if length < _LEAST_LEVEL_ROWS:
        return higher
    sample = rows.slice((rows.num_rows - length) // 2, length)
    lower_bytes, higher_bytes = (_written_bytes(sample, level, writing) for level in (lower, higher))
    return {path: lower if lower_bytes[path] <= size else higher for path, size in higher_bytes.items()}


def _written_bytes(rows: pa.Table, level: int, writing: Mapping[str, Any]) -> dict[str, int]:
    with pq.ParquetWriter(pa.BufferOutputStream(), rows.schema, **{**writing, "compression_level": level}) as writer:
        writer.write_table(rows)
    group = writer.writer.metadata.row_group(0)
    columns = (group.column(number) for number in range(group.num_columns))
    return {column.path_in_schema: column.total_compressed_size for column in columns}


def column_encodings(columns: pa.Schema) -> dict[str, str]:
    """Encodings of columns by name: ids of rows, which mostly follow each other, are stored as differences."""
    row_id = str(ROW_ID_FIELD_ID).encode()
    return {one.name: "DELTA_BINARY_PACKED" for one in columns if (one.metadata or {}).get(FIELD_ID) == row_id}


def _is_wasted(column: pa.ChunkedArray, rows: int, most_bytes: int) -> bool:
    """Whether a dictionary for `rows` rows like the sample's would be far larger than `most_bytes`, or spare nothing.

    Among n values drawn from c distinct ones about n² / 2c repeat, which gives an estimate of c.
    """
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_boolean(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type)
    values = len(column) - column.null_count
    if values < SAMPLE_ROWS // 4:
        return False
    repeated = values - int(pc.count_distinct(column).as_py())
    present = rows * values // len(column)
    different: int = min(present, values * values // (2 * max(1, repeated)))
    needed: int = different * int(column.nbytes) // len(column)
    plain: int = present * int(column.nbytes) // len(column)
    indices = present * different.bit_length() // 8
    return needed > 2 * most_bytes or needed + indices >= plain


def _leaf_paths(column: pa.Field, prefix: str = "") -> list[str]:
    own, kind = prefix + column.name, column.type
    if pa.types.is_struct(kind):
        return [path for inner in kind for path in _leaf_paths(inner, f"{own}.")]
    if pa.types.is_map(kind):
        below = f"{own}.key_value."
        return [
            *_leaf_paths(kind.key_field.with_name("key"), below),
            *_leaf_paths(kind.item_field.with_name("value"), below),
        ]
    if pa.types.is_list(kind):
        return _leaf_paths(kind.value_field.with_name("element"), f"{own}.list.")
    return [own]


def bloom_filter_options(schema: Schema, options: WriterOptions, rows: int) -> Mapping[str, Mapping[str, float]]:
    """The Parquet writer's bloom filter options by path; missing and boolean columns get none."""
    if not options.bloom_filters:
        return {}
    paths = {field_id: path for path, field_id in parquet_path_to_id_mapping(sanitize_column_names(schema)).items()}
    found = {}
    for name, rate in options.bloom_filters.items():
        field_id = schema._name_to_id.get(name)
        if field_id in paths and not isinstance(schema.find_type(field_id), BooleanType):
            most = int(-options.bloom_filter_bytes * math.log(1 - rate ** (1 / _BLOCK_BITS)))
            found[paths[field_id]] = {"ndv": max(1, min(rows, most)), "fpp": rate}
    return found
