"""Position and equality delete files: their positions, keys, and new position delete files."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import LongType, NestedField, StringType, UnknownType

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.file_readers import RowSource, fetched, open_rows
from amoro_core.files.parquet.writing import ParquetOutput
from amoro_core.files.schema.schemas import arrow_field, bind, converted, field_ids_in, key_path, select_ids
from amoro_core.files.schema.write_options import WriterOptions
from amoro_core.files.storage.io import FileAccess, reading_file
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    DELETE_POS_FIELD_ID,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
)
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet

_BITS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def key_schema(schema: Schema, ids: Sequence[int]) -> Schema:
    """The schema with only the key columns. Raises TableRefused(reason="equality-ids") when one cannot be a key."""
    for field_id in ids:
        if key_path(schema.fields, field_id) is None:
            raise TableRefused(
                f"equality deletes by column id {field_id}, which is not a primitive column of the table",
                reason="equality-ids",
            )
    return select_ids(schema, ids)


def key_columns(batch: pa.RecordBatch, schema: Schema, ids: Sequence[int]) -> tuple[pa.Array, ...]:
    """One comparable array for each id, from a batch of `schema`; null where an enclosing struct is null."""
    columns = []
    for field_id in ids:
        path = key_path(schema.fields, field_id)
        if path is None:
            raise ValueError(f"no key column {field_id}")
        array = batch.column(path[0])
        for index in path[1:]:
            array = array.flatten()[index]
        columns.append(comparable(array))
    return tuple(columns)


def comparable(array: pa.Array) -> pa.Array:
    """The primitive array as numbers or bytes that are equal exactly when the values are equal to Iceberg."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.bool_())
    if kind in _BITS:
        not_a_number = pa.scalar(float("nan"), kind)
        return pc.if_else(pc.is_nan(array), not_a_number, array).view(_BITS[kind])
    if pa.types.is_decimal(kind):
        return array.view(pa.binary(16))
    if pa.types.is_temporal(kind):
        return array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    return array


Positions = npt.NDArray[np.int64]

_PATH = NestedField(DELETE_PATH_FIELD_ID, "file_path", StringType(), required=True)
_POS = NestedField(DELETE_POS_FIELD_ID, "pos", LongType(), required=True)
POSITION_DELETE_SCHEMA = Schema(_PATH, _POS)
_EXACT = {"file_path": "full", "pos": "full"}
#: Rows of one batch of a written position delete file.
_WRITE_ROWS = 1 << 20


def read_positions(
    access: FileAccess, delete: DeleteFile, checkpoint: Callable[[], None], rows: Mapping[str, int] | None = None
) -> Mapping[str, PositionSet]:
    """The positions in a position delete file, by normalised data file path.

    `rows`: row counts of the files of interest, by normalised path, beyond which positions are left out. None: all.
    `checkpoint` may raise. Raises UnreadableFile, also for null and negative positions, and DataFileMissing.
    """
    result: dict[str, PositionSet] = {}
    for path, positions in _positions(access, delete, rows, checkpoint):
        position_set = PositionSet.of(positions if rows is None else positions[positions < rows[path]])
        result[path] = result.get(path, NO_POSITIONS) | position_set
    return result


def key_ids(delete: DeleteFile) -> tuple[int, ...]:
    """The ids that an equality delete compares, ascending. Raises UnreadableFile when there is none."""
    ids = tuple(sorted(set(delete.equality_ids)))
    if not ids:
        raise UnreadableFile(f"{delete.path} has equality deletes without any equality id")
    return ids


def key_batches(
    access: FileAccess,
    delete: DeleteFile,
    schema: Schema,
    mapping: NameMapping | None,
    checkpoint: Callable[[], None],
    once_unknown: Collection[int] = (),
) -> Iterator[tuple[pa.Array, ...]]:
    """The keys of an equality delete file batch by batch, in the types of `schema`: the table's plus dropped columns.

    `once_unknown`: columns that had the type unknown when it may have been written; it may lack these, which are null.
    Raises UnreadableFile when a key column is missing, TableRefused(reason="equality-ids") for impossible keys.
    """
    ids = key_ids(delete)
    wanted = key_schema(schema, ids)
    with open_rows(access, delete, fetched(access, delete)) as source:
        _check_count(source, delete)
        # A key in a delete file may be null where the table's column may not.
        optional = (NestedField(item.field_id, item.name, item.field_type, required=False) for item in wanted.fields)
        projection = bind(Schema(*optional), source.schema, mapping, {}, delete.path)
        unwritten = {field_id for field_id in ids if isinstance(schema.find_type(field_id), UnknownType)}
        missing = set(ids) - field_ids_in(projection, source.schema) - unwritten - set(once_unknown)
        if missing:
            raise UnreadableFile(f"{delete.path} lacks the key columns {sorted(missing)}")
        for _, batch in source.batches(projection.columns):
            checkpoint()
            with reading_file(delete.path):
                columns = key_columns(projection.apply(batch), wanted, ids)
            yield columns


def write_position_deletes(
    access: FileAccess,
    path: str,
    data: DataFile,
    positions: Positions,
    sequence_number: int,
    options: WriterOptions,
    checkpoint: Callable[[], None] | None = None,
) -> DeleteFile:
    """Write ascending positions of one data file as a position delete file; on any error it is removed."""
    exact = WriterOptions(
        codec=options.codec,
        level=options.level,
        page_bytes=options.page_bytes,
        page_rows=options.page_rows,
        dictionary_bytes=options.dictionary_bytes,
        metrics_modes=_EXACT,
        metrics_default="full",
    )
    output = ParquetOutput(access, path, POSITION_DELETE_SCHEMA, exact, checkpoint=checkpoint)
    try:
        for start in range(0, len(positions), _WRITE_ROWS):
            output.write(_delete_batch(data.path, positions[start : start + _WRITE_ROWS]))
    except BaseException:
        output.discard()
        raise
    written = output.close()
    return DeleteFile(
        path=path,
        kind=DeleteKind.POSITION,
        file_format=FileFormat.PARQUET,
        spec_id=data.spec_id,
        partition=data.partition,
        record_count=written.record_count,
        size_bytes=written.size_bytes,
        sequence_number=sequence_number,
        referenced_data_file=data.path,
        # Equal bounds tell readers the one data file that it belongs to.
        metrics=replace(
            written.metrics,
            lower_bounds={**written.metrics.lower_bounds, DELETE_PATH_FIELD_ID: data.path.encode()},
            upper_bounds={**written.metrics.upper_bounds, DELETE_PATH_FIELD_ID: data.path.encode()},
        ),
        split_offsets=written.split_offsets,
    )


def _positions(
    access: FileAccess, delete: DeleteFile, wanted: Collection[str] | None, checkpoint: Callable[[], None]
) -> Iterator[tuple[str, Positions]]:
    """Pairs of a normalised data file path and some of its positions; only paths in `wanted`, if given."""
    with open_rows(access, delete, fetched(access, delete)) as source:
        _check_count(source, delete)
        path_index, pos_index = _position_columns(source)
        names = [source.schema.names[path_index], source.schema.names[pos_index]]
        for _, batch in source.batches(names):
            checkpoint()
            paths, positions = _entries(batch, names, delete.path)
            yield from _by_path(paths, positions, wanted)


def _check_count(source: RowSource, delete: DeleteFile) -> None:
    if source.rows != delete.record_count:
        raise UnreadableFile(f"{delete.path} has {source.rows} rows, but the manifest says {delete.record_count}")


def _position_columns(source: RowSource) -> tuple[int, int]:
    """The indexes of path and position: by field id, in files without ids by name. Duplicates are refused."""
    ids = [field.metadata.get(b"PARQUET:field_id") if field.metadata else None for field in source.schema]
    if any(ids):
        keys: Sequence[object] = ids
        wanted: tuple[object, object] = (str(DELETE_PATH_FIELD_ID).encode(), str(DELETE_POS_FIELD_ID).encode())
    else:
        keys, wanted = source.schema.names, (_PATH.name, _POS.name)
    try:
        result = keys.index(wanted[0]), keys.index(wanted[1])
    except ValueError as error:
        raise UnreadableFile(f"{source.path} is not a position delete file: it lacks file_path or pos") from error
    names = source.schema.names
    if any(keys.count(key) > 1 for key in wanted) or any(names.count(names[at]) > 1 for at in result):
        raise TableRefused(
            f"{source.path} has two columns for the path or the position of its deletes", reason="field-ids"
        )
    return result


def _entries(batch: pa.RecordBatch, names: Sequence[str], path: str) -> tuple[pa.DictionaryArray, Positions]:
    with reading_file(path):
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        if pa.types.is_dictionary(columns[0].type):
            columns[0] = columns[0].dictionary_decode()
        paths = converted(columns[0], _PATH, pa.string())
        positions = converted(columns[1], _POS, pa.int64())
    if paths.null_count or positions.null_count:
        raise UnreadableFile(f"{path} has deletes without a path or a position")
    numbers: Positions = positions.to_numpy()
    if len(numbers) and numbers.min() < 0:
        raise UnreadableFile(f"{path} has a negative position")
    return paths.dictionary_encode(), numbers


def _by_path(
    paths: pa.DictionaryArray, positions: Positions, wanted: Collection[str] | None
) -> list[tuple[str, Positions]]:
    codes = paths.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(paths.dictionary)))
    result = []
    for path, start, end in zip(paths.dictionary.to_pylist(), [0, *ends[:-1]], ends, strict=True):
        place = normalise(path)
        if wanted is None or place in wanted:
            result.append((place, positions[order[start:end]]))
    return result


def _delete_batch(path: str, positions: Positions) -> pa.RecordBatch:
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), pa.array([path]))
    columns = pa.schema([arrow_field(_PATH), arrow_field(_POS)])
    return pa.RecordBatch.from_arrays([pc.cast(paths, pa.string()), pa.array(positions)], schema=columns)
