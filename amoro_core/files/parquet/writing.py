"""Writing Parquet files, the encoding of their columns, and metrics: counts of nulls and NaN values, and bounds."""

import math
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, MetricsMode, match_metrics_mode, parquet_path_to_id_mapping
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    PrimitiveType,
    StringType,
    UUIDType,
)

from amoro_core.errors import AmoroError
from amoro_core.files.schema.schemas import FIELD_ID, arrow_schema, leaf_ids
from amoro_core.files.schema.write_options import INFERRED_MODE, WriterOptions
from amoro_core.files.storage.io import FileAccess, translated
from amoro_core.model.files import LINEAGE_IDS, ROW_ID_FIELD_ID, ColumnMetrics

Bound = bytes | None

_SURROGATES = range(0xD800, 0xE000)
_LAST_CODE_POINT = 0x10FFFF


def column_bounds(
    kind: IcebergType, chunks: Sequence[pq.ColumnChunkMetaData], length: int | None
) -> tuple[Bound, Bound]:
    """The bounds of a column's chunks in single-value serialization; strings and binary truncated to `length` if given.

    Raw statistics, as Python's dates and decimals have smaller ranges. None if any chunk lacks statistics, as of values
    above 4,096 bytes and NaN alone: bounds of the others would be wrong. A truncated upper bound is raised, or None.
    """
    least, greatest = [], []
    for chunk in chunks:
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            least.append(_number(kind, statistics.min_raw))
            greatest.append(_number(kind, statistics.max_raw))
        elif not _only_nulls(chunk):
            return None, None
    if not least:
        return None, None
    lower, upper = min(least), max(greatest)
    if isinstance(kind, StringType):
        return _string_bounds(lower, upper, length)
    if isinstance(kind, BinaryType):
        return lower if length is None else lower[:length], raised_bytes(upper, length)
    if isinstance(kind, DecimalType):
        return _unscaled(lower), _unscaled(upper)
    primitive = cast(PrimitiveType, kind)  # others have no statistics
    return to_bytes(primitive, lower), to_bytes(primitive, upper)


def _only_nulls(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    return bool(statistics is not None and statistics.has_null_count and statistics.null_count == chunk.num_values)


def null_count(chunks: Sequence[pq.ColumnChunkMetaData]) -> int | None:
    """How many nulls the chunks of a column have; None unless each tells it."""
    statistics = [chunk.statistics for chunk in chunks]
    is_counted = all(statistic is not None and statistic.has_null_count for statistic in statistics)
    return sum(statistic.null_count for statistic in statistics) if is_counted else None


def _number(kind: IcebergType, raw: Any) -> Any:
    """The raw value in a form that sorts as the values do: decimals of any width as integers."""
    if isinstance(kind, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _string_bounds(lower: bytes, upper: bytes, length: int | None) -> tuple[Bound, Bound]:
    """Truncated between characters; none for invalid UTF-8, which readers treat differently."""
    try:
        first, last = lower.decode(), upper.decode()
    except UnicodeDecodeError:
        return None, None
    return first[:length].encode(), raised_text(last, length)


def raised_text(text: str, length: int | None) -> Bound:
    """The least text of so many characters above all that begin as this one; itself if it is no longer."""
    if length is None or len(text) <= length:
        return text.encode()
    for end in range(length, 0, -1):
        following = ord(text[end - 1]) + 1
        if following in _SURROGATES:
            following = _SURROGATES.stop
        if following <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(following)).encode()
    return None


def raised_bytes(value: bytes, length: int | None) -> Bound:
    """The least bytes of that length above all that begin as these; themselves if they are no longer."""
    if length is None or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if value[end - 1] < 0xFF:
            return value[: end - 1] + bytes([value[end - 1] + 1])
    return None


def _unscaled(value: int) -> bytes:
    """The integer in the fewest bytes that hold it, big-endian two's complement."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def column_metrics(
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    nan_counts: Mapping[int, int],
    *,
    with_bounds: bool = True,
) -> tuple[ColumnMetrics, tuple[int, ...]]:
    """The metrics of a written file, according to the table's metrics modes, and its split offsets.

    Columns in lists and maps have only a size: readers disagree about their other counts. Lineage has none at all.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    bounds: tuple[dict[int, bytes], dict[int, bytes]] = {}, {}
    for place, (field_id, is_repeated) in enumerate(leaf_ids(metadata.schema.to_arrow_schema()) if groups else ()):
        if field_id is None:
            raise ValueError(f"the written column {metadata.schema.column(place).path} has no field id")
        if field_id in LINEAGE_IDS:
            continue
        chunks = [group.column(place) for group in groups]
        sizes[field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        mode = metrics_mode(str(schema.find_column_name(field_id)), place, options)
        if is_repeated or mode.type is MetricModeTypes.NONE:
            continue
        values[field_id] = sum(chunk.num_values for chunk in chunks)
        if (count := null_count(chunks)) is not None:
            nulls[field_id] = count
        if with_bounds and mode.type is not MetricModeTypes.COUNTS:
            result = column_bounds(schema.find_type(field_id), chunks, mode.length)
            for known, bound in zip(bounds, result, strict=True):
                if bound is not None:
                    known[field_id] = bound
    nans = {field_id: count for field_id, count in nan_counts.items() if field_id in values}
    return ColumnMetrics(sizes, values, nulls, nans, *bounds), tuple(sorted(_start(group) for group in groups))


def nan_counts(batch: pa.RecordBatch) -> dict[int, int]:
    """The number of NaN values of the batch's float columns by field id, including those in structs."""
    counts: dict[int, int] = {}
    open_columns = list(zip(batch.schema, batch.columns, strict=True))
    while open_columns:
        column, array = open_columns.pop()
        if pa.types.is_floating(column.type):
            (field_id, _), *_ = leaf_ids(pa.schema([column]))
            if field_id is not None:
                counts[field_id] = int(pc.sum(pc.is_nan(array), min_count=0).as_py())
        elif pa.types.is_struct(column.type):
            open_columns.extend(zip(column.type, array.flatten(), strict=True))
    return counts


def metrics_mode(name: str, place: int, options: WriterOptions) -> MetricsMode:
    """The column's own mode, else the table's default, else Iceberg's default for the first columns."""
    own = options.metrics_modes.get(name) or options.metrics_default
    return match_metrics_mode(own or (INFERRED_MODE if place < options.metrics_columns else "none"))


def _start(group: pq.RowGroupMetaData) -> int:
    """The offset of the row group: at the first column's dictionary page, if it has one."""
    first = group.column(0)
    return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


_BYTES = (StringType, BinaryType, FixedType, UUIDType, BooleanType)


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of which row groups were copied into an output."""

    told: ColumnMetrics  # bounds and NaN counts of its manifest entry
    rows: int


def merged_metrics(  # noqa: C901 - one pass over the columns
    metrics: ColumnMetrics,
    metadata: pq.FileMetaData,
    schema: Schema,
    options: WriterOptions,
    origins: Sequence[CopiedFile | None],
) -> ColumnMetrics:
    """The metrics of an output with bounds and NaN counts that hold for copied rows, too.

    `metrics` are by the output's footer, without bounds, and count NaN values of encoded rows alone. `origins` has for
    each row group the file it was copied from; None: it was encoded. A float column whose NaN values were not counted
    has no bounds: engines would take its NaN values to be within them.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    files = _files(groups, origins)
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    nans: dict[int, int] = {}
    for place, (field_id, is_repeated) in enumerate(leaf_ids(metadata.schema.to_arrow_schema())):
        if field_id is None or is_repeated or field_id not in metrics.value_counts:
            continue
        kind = schema.find_type(field_id)
        mode = metrics_mode(str(schema.find_column_name(field_id)), place, options)
        if isinstance(kind, FloatType | DoubleType):
            count = _nan_count(field_id, metrics.nan_value_counts.get(field_id, 0), files)
            if count is None:
                continue
            nans[field_id] = count
        if mode.type in (MetricModeTypes.NONE, MetricModeTypes.COUNTS):
            continue
        ours: list[pq.ColumnChunkMetaData] = []
        stored: dict[int, ColumnMetrics] = {}
        has_nulls = metrics.null_value_counts.get(field_id) != 0
        for group, origin in zip(groups, origins, strict=True):
            if has_nulls and _only_nulls(group.column(place)):
                continue
            if origin is None:
                ours.append(group.column(place))
            else:
                stored[id(origin)] = origin.told
        own = column_bounds(kind, ours, mode.length) if ours else None
        low = [one.lower_bounds.get(field_id) for one in stored.values()] + ([own[0]] if own else [])
        high = [one.upper_bounds.get(field_id) for one in stored.values()] + ([own[1]] if own else [])
        for bounds, known, best in ((low, lower, min), (high, upper, max)):
            result = _best(kind, bounds, best)
            if result is not None:
                known[field_id] = result
    return replace(metrics, nan_value_counts=nans, lower_bounds=lower, upper_bounds=upper)


def _files(
    groups: Sequence[pq.RowGroupMetaData], origins: Sequence[CopiedFile | None]
) -> list[tuple[ColumnMetrics, bool]]:
    """What is told of each copied file, and whether the output holds all its rows: others may have been deleted, or be
    in another output."""
    copied: dict[int, int] = {}
    files = {id(origin): origin for origin in origins if origin is not None}
    for group, origin in zip(groups, origins, strict=True):
        copied[id(origin)] = copied.get(id(origin), 0) + int(group.num_rows)
    return [(file.told, copied[key] == file.rows) for key, file in files.items()]


def _nan_count(field_id: int, encoded: int, files: Sequence[tuple[ColumnMetrics, bool]]) -> int | None:
    """The NaN values of encoded rows and of the copied ones; None where it is not known."""
    for metrics, is_whole in files:
        stored = metrics.nan_value_counts.get(field_id)
        if stored is None or (stored and not is_whole):
            return None
        encoded += stored
    return encoded


def _best(kind: IcebergType, bounds: Sequence[bytes | None], best: Any) -> bytes | None:
    """The least or greatest of the bounds; None without any, and if one is missing or is none."""
    known = [bound for bound in bounds if bound is not None]
    if not known or len(known) != len(bounds):
        return None
    ranked = [(_rank(kind, bound), bound) for bound in known]
    if any(rank is None for rank, _ in ranked):
        return None
    result: bytes = best(ranked)[1]
    return result


def _rank(kind: IcebergType, bound: bytes) -> Any:
    """What sorts as the values do; None for a NaN, and for bytes that are no value."""
    if isinstance(kind, _BYTES):
        return bound
    if isinstance(kind, FloatType | DoubleType):
        formats: Mapping[int, str] = {4: "<f", 8: "<d"}
        if len(bound) not in formats:
            return None
        (value,) = struct.unpack(formats[len(bound)], bound)
        return None if math.isnan(value) else (value, math.copysign(1, value))
    return int.from_bytes(bound, "big" if isinstance(kind, DecimalType) else "little", signed=True)


#: Rows sampled to count distinct values, in pieces from all over: of files that are joined, each may have a value once.
SAMPLE_ROWS = 1 << 14
_SAMPLES = 16
_BLOCK_BITS = 8  # bits set by each value in a split block bloom filter


def dictionary_columns(rows: pa.Table, most_bytes: int, encoded: Collection[str] = ()) -> list[str] | bool:
    """The paths of leaf columns worth a dictionary of at most `most_bytes`; True for all, False for none.

    Where nearly all values of a sample are distinct a dictionary would overflow, or spare nothing: without it encoding
    takes a third less CPU. Nested columns are not sampled, nor are fewer rows than `SAMPLE_ROWS`. `encoded`: columns
    that have an encoding of their own.
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
    result = {}
    for name, rate in options.bloom_filters.items():
        field_id = schema._name_to_id.get(name)
        if field_id in paths and not isinstance(schema.find_type(field_id), BooleanType):
            most = int(-options.bloom_filter_bytes * math.log(1 - rate ** (1 / _BLOCK_BITS)))
            result[paths[field_id]] = {"ndv": max(1, min(rows, most)), "fpp": rate}
    return result


#: Smaller pages are useless, and below five bytes Arrow loses the only list of a row group that has a dictionary.
_LEAST_PAGE_BYTES = 1024


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that was written and closed."""

    path: str
    size_bytes: int
    record_count: int
    metrics: ColumnMetrics
    split_offsets: tuple[int, ...]


class ParquetOutput:
    """One Parquet file being written; rows are collected until they make a row group."""

    def __init__(
        self,
        access: FileAccess,
        path: str,
        schema: Schema,
        options: WriterOptions,
        *,
        memory_bytes: int | None = None,
        checkpoint: Callable[[], None] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """The file, with `metadata` in its footer; it is created when something is written.

        A row group is written before the collected rows exceed `memory_bytes`. `checkpoint` is called for each piece
        that is written, and may raise.
        """
        self.path = path
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._options = options
        self._row_group_bytes = min(options.row_group_bytes, memory_bytes or options.row_group_bytes)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._nan_counts: dict[int, int] = dict.fromkeys(_float_ids(self._arrow), 0)
        self._access = access
        self._metadata = metadata
        self._stream = CheckedStream(lambda: access.create_output(self.path), checkpoint)
        self._writer: pq.ParquetWriter | None = None  # created for the first rows, whose values decide the encoding

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; their columns are the schema's. Raises StorageFull."""
        if batch.num_rows == 0:
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        for field_id, count in nan_counts(batch).items():
            self._nan_counts[field_id] += count
        group_rows = self._group_rows()
        if self._pending_rows >= group_rows:
            self._write_groups(group_rows)

    @property
    def written_bytes(self) -> int:
        """Bytes of the row groups written so far."""
        return int(self._stream.tell())

    def close(self) -> WrittenFile:
        """Write the remaining rows and the footer. Raises StorageFull; the file is then deleted."""
        try:
            if self._pending_rows:
                self._write_table(pa.Table.from_batches(self._pending, self._arrow))
            writer = self._writer or self._open_writer(pa.Table.from_batches([], self._arrow), self._stream)
            with translated(self.path):
                if self._metadata:
                    writer.add_key_value_metadata(dict(self._metadata))
                writer.close()
                size_bytes = int(self._stream.tell())
                self._stream.close()
            metadata = writer.writer.metadata
            metrics, split_offsets = column_metrics(metadata, self._schema, self._options, self._nan_counts)
        except BaseException:
            self.discard()
            raise
        return WrittenFile(self.path, size_bytes, int(metadata.num_rows), metrics, split_offsets)

    def discard(self) -> None:
        """Abandon the file and delete it if possible."""
        self._stream.checkpoint = None
        with suppress(OSError, pa.ArrowException):  # what failed before fails here again
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._stream.close()
        if self._stream.is_created:  # else another's file may have its name
            with suppress(AmoroError):
                self._access.delete(self.path)

    def _open_writer(self, first: pa.Table, sink: Any) -> pq.ParquetWriter:
        more: dict[str, Any] = {}
        if filters := bloom_filter_options(self._schema, self._options, first.num_rows):
            more["bloom_filter_options"] = filters
        with translated(self.path):
            return pq.ParquetWriter(sink, self._arrow, **self._encoding_of(first), **more)

    def _encoding_of(self, rows: pa.Table) -> Mapping[str, Any]:
        options = self._options
        encodings = column_encodings(self._arrow)
        result: dict[str, Any] = {
            "compression": options.codec,
            "compression_level": options.level,
            "data_page_size": max(options.page_bytes, _LEAST_PAGE_BYTES),
            "max_rows_per_page": options.page_rows,
            "use_dictionary": dictionary_columns(rows, options.dictionary_bytes, encodings),
            "dictionary_pagesize_limit": options.dictionary_bytes,
            "store_schema": False,
            "store_decimal_as_integer": True,
            "write_page_index": True,
            "write_page_checksum": True,
        }
        if encodings:
            result["column_encoding"] = encodings
        return result

    def _group_rows(self) -> int:
        by_size = self._row_group_bytes * self._pending_rows // max(1, self._pending_bytes)
        return max(1, min(self._options.row_group_rows, by_size))

    def _write_groups(self, group_rows: int) -> None:
        table = pa.Table.from_batches(self._pending, self._arrow)
        start = 0
        while table.num_rows - start >= group_rows:
            self._write_table(table.slice(start, group_rows))
            start += group_rows
        rest = table.slice(start)
        self._pending = rest.to_batches()
        self._pending_rows = rest.num_rows
        self._pending_bytes = rest.nbytes

    def _write_table(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open_writer(table, self._stream)
        with translated(self.path):
            self._writer.write_table(table, row_group_size=table.num_rows)


class CheckedStream:
    """A stream that is created for the first write, and calls the checkpoint before each."""

    def __init__(self, create: Callable[[], Any], checkpoint: Callable[[], None] | None) -> None:
        self.checkpoint = checkpoint
        self._create = create
        self._stream: Any = None
        self._written_bytes = 0

    @property
    def is_created(self) -> bool:
        """Whether something was to be written, and the stream could be created."""
        return self._stream is not None

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._stream is not None and bool(self._stream.closed)

    def write(self, content: Any) -> int:
        """Write it, unless the checkpoint raises."""
        if self.checkpoint is not None:
            self.checkpoint()
        if self._stream is None:
            self._stream = self._create()
        written = int(self._stream.write(content))
        self._written_bytes += written
        return written

    def tell(self) -> int:
        """Bytes written so far."""
        return self._written_bytes

    def flush(self) -> None:
        """Pass on what is buffered."""
        if self._stream is not None:
            self._stream.flush()

    def close(self) -> None:
        """Close the stream below, if there is one."""
        if self._stream is not None:
            self._stream.close()


def _float_ids(columns: pa.Schema) -> list[int]:
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, column.type) for column in columns], schema=columns)
    return list(nan_counts(empty))
