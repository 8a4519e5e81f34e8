"""A table's files rewritten by the engine, compared with what the slow reader says; metrics of its files."""

from __future__ import annotations

import math
import operator
import random
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, ScannedFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_optimizer.rewrite.engine import rewrite
from tests.engine.files import POSITION_SCHEMA, stored
from tests.engine.oracle import LiveRow
from tests.engine.parquet_rows import read_parquet
from tests.engine.values import Row, canonical

ATTEMPT = Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", 1), 1)
ENGINE = {"on_progress": lambda done, total: None, "is_cancelled": lambda: False}


def access_to(table: TableContext) -> FileAccess:
    """Access as the optimizer has it."""
    return open_access(
        {}, table.location, read_locations=table.read_locations, write_locations=(table.location, table.data_location)
    )


def rewritten(work: RewriteInput, memory_bytes: int) -> RewriteOutput:
    """What the engine makes of it."""
    return rewrite(work, access_to(work.table), ATTEMPT, memory_limit_bytes=memory_bytes, **ENGINE)


def tasks(table: Any, chance: random.Random) -> list[RewriteInput]:
    """One task for each partition; files that have deletes are rewritten or converted by chance.

    Tables that are refused for their keys are taken, too: whoever verifies such a table reads it.
    """
    snapshot_id = table.facts.snapshot_id
    scan = None if snapshot_id is None else table.scan_of(snapshot_id)
    if scan is None:
        return []
    places: defaultdict[Any, list[ScannedFile]] = defaultdict(list)
    for file in scan.files:
        places[file.data.spec_id, file.data.partition].append(file)
    found = []
    for (spec_id, _), files in places.items():
        deletes = tuple(dict.fromkeys(delete for file in files for delete in file.deletes))
        inputs = [InputFile(file.data, tuple(deletes.index(one) for one in file.deletes)) for file in files]
        converted = [one for one in inputs if one.deletes and chance.random() < 0.4]
        found.append(
            RewriteInput(
                table=table.context(spec_id),
                rewritten=tuple(one for one in inputs if one not in converted),
                converted=tuple(converted),
                deletes=deletes,
                sequence_number=scan.sequence_number,
                target_size_bytes=1 << 27,
                output_count=chance.randint(1, 3),
            )
        )
    return found


def assert_right(work: RewriteInput, output: RewriteOutput, live: Mapping[str, Sequence[LiveRow]]) -> None:
    """Fail unless the outputs hold exactly the live rows of the task's files, in their order, and say so truly."""
    schema = Schema.model_validate_json(work.table.schema_json)
    expected = [row.row for file in work.rewritten for row in live.get(file.data.path, ())]
    written: list[Row] = []
    for file in output.data_files:
        rows = read_rows(file, schema)
        assert len(rows) == file.record_count
        written += rows
    assert written == expected
    sizes = sorted(file.record_count for file in output.data_files)
    assert len(sizes) == min(work.output_count, len(expected))
    assert not sizes or sizes[-1] - sizes[0] <= 1
    read = sum(file.data.record_count for file in work.rewritten)
    assert (output.rows_read, output.rows_deleted) == (read, read - len(expected))
    assert output.rows_written == len(expected)
    assert {(file.spec_id, file.partition) for file in output.data_files} <= {_place(work)}
    assert {file.sequence_number for file in output.data_files} <= {work.sequence_number}
    positions = {file.data.path: _deleted(file.data, live.get(file.data.path, ())) for file in work.converted}
    made = {file.referenced_data_file: read_positions(file) for file in output.delete_files}
    assert made == {path: gone for path, gone in positions.items() if gone}
    assert output.positions_written == sum(map(len, positions.values()))


def _place(work: RewriteInput) -> tuple[int, Any]:
    first = (*work.rewritten, *work.converted)[0].data
    return first.spec_id, first.partition


def _deleted(data: DataFile, live: Iterable[LiveRow]) -> list[int]:
    return sorted(set(range(data.record_count)) - {row.position for row in live})


def read_rows(file: DataFile, schema: Schema) -> list[Row]:
    """The canonical rows of a written file, in their order, read as another engine reads them."""
    assert file.file_format is FileFormat.PARQUET
    kind = schema.as_struct()
    return [canonical(kind, row) for row in read_parquet(file.path, None, {}).records(kind)]


def read_positions(file: DeleteFile) -> list[int]:
    """The positions of a file-scoped position delete file, which are ascending and each there once."""
    assert file.kind is DeleteKind.POSITION
    rows = read_parquet(file.path, None, {}).records(POSITION_SCHEMA.as_struct())
    assert {row["file_path"] for row in rows} == {file.referenced_data_file}
    positions = [row["pos"] for row in rows]
    assert all(low < high for low, high in pairwise(positions))
    assert len(positions) == file.record_count
    return positions


#: The longest value of which Parquet writers tell the bounds.
TOLD_BYTES = 4096
_SHORTENED = (StringType, BinaryType)


def assert_true_metrics(file: DataFile, schema: Schema, properties: Mapping[str, str]) -> None:
    """Fail unless counts and bounds of each column outside lists and maps are those of the file's own values.

    Bounds have to be there wherever the mode wants them and a value exists that has one.
    """
    known = file.metrics
    for path, field, values in _columns(file, schema):
        mode = _mode(".".join(path), properties)
        if values is None or mode == "none":
            assert field.field_id not in known.lower_bounds.keys() | known.upper_bounds.keys()
            continue
        is_float = isinstance(field.field_type, FloatType | DoubleType)
        nans = len([value for value in values if _is_nan(value)])
        assert known.value_counts[field.field_id] == len(values), path
        assert known.null_value_counts[field.field_id] == values.count(None), path
        assert known.nan_value_counts.get(field.field_id) == (nans if is_float else None), path
        _assert_bounds(file, field, mode, [one for one in values if one is not None])


def _columns(file: DataFile, schema: Schema) -> Iterator[tuple[tuple[str, ...], NestedField, list[Any] | None]]:
    """Each column with its path and its values, which are None within lists and maps."""
    records = read_parquet(file.path, None, {}).records(schema.as_struct())
    for path, field, repeated in leaves(schema.fields):
        yield path, field, None if repeated else [at(record, path) for record in records]


def leaves(
    fields: tuple[NestedField, ...], path: tuple[str, ...] = (), repeated: bool = False
) -> Iterator[tuple[tuple[str, ...], NestedField, bool]]:
    """The columns with their paths, and whether they are within lists or maps."""
    for field in fields:
        own = (*path, field.name)
        match field.field_type:
            case StructType(fields=inner):
                yield from leaves(inner, own, repeated)
            case ListType() as kind:
                yield from leaves((kind.element_field,), own, True)
            case MapType() as kind:
                yield from leaves((kind.key_field, kind.value_field), own, True)
            case _:
                yield own, field, repeated


def at(record: Any, path: tuple[str, ...]) -> Any:
    """The value at that path; None where a struct around it is null."""
    for name in path:
        if record is None:
            return None
        record = record[name]
    return record


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _mode(name: str, properties: Mapping[str, str]) -> str:
    default = properties.get("write.metadata.metrics.default", "truncate(16)")
    return properties.get(f"write.metadata.metrics.column.{name}", default)


def _assert_bounds(file: DataFile, field: NestedField, mode: str, values: list[Any]) -> None:
    kind = field.field_type
    lower = file.metrics.lower_bounds.get(field.field_id)
    upper = file.metrics.upper_bounds.get(field.field_id)
    ordered = [_order(kind, value) for value in values if not _is_nan(value)]
    if mode == "counts" or not ordered:
        assert (lower, upper) == (None, None), field
        return
    # A row group of NaN alone tells no bounds, nor does one with a huge value.
    told = all(_size(value) <= TOLD_BYTES for value in values) and len(ordered) == len(values)
    is_shortened = isinstance(kind, _SHORTENED)
    assert lower is not None or not told, f"{field.name} has no lower bound"
    assert upper is not None or not told or is_shortened, f"{field.name} has no upper bound"
    for bound, own, is_beyond in ((lower, min(ordered), operator.le), (upper, max(ordered), operator.ge)):
        found = None if bound is None else _order(kind, _decoded(kind, bound))
        assert found in (None, own) or (is_shortened and is_beyond(found, own)), field
    if mode == "full" and told and isinstance(kind, _SHORTENED):
        assert (_decoded(kind, lower), _decoded(kind, upper)) == (min(values, key=_text), max(values, key=_text))
    if mode.startswith("truncate"):
        limit = int(mode[9:-1])
        for bound in (lower, upper):
            assert bound is None or not isinstance(kind, _SHORTENED) or len(_decoded(kind, bound)) <= limit, field


def _decoded(kind: IcebergType, bound: bytes | None) -> Any:
    assert bound is not None
    assert isinstance(kind, PrimitiveType)
    return uuid.UUID(bytes=bound) if isinstance(kind, UUIDType) else from_bytes(kind, bound)


def _order(kind: IcebergType, value: Any) -> Any:
    """Something that orders as Iceberg orders the values; zeros are one, since bounds widen to both of them."""
    if isinstance(kind, UUIDType | FixedType | StringType | BinaryType):
        return _text(value)
    if isinstance(kind, DateType | TimeType | TimestampType | TimestamptzType):
        return stored(value)
    return value


def _text(value: Any) -> bytes:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.encode() if isinstance(value, str) else bytes(value)


def _size(value: Any) -> int:
    return len(_text(value)) if isinstance(value, str | bytes) else 16


def assert_holding_metrics(file: DataFile, schema: Schema) -> None:
    """Fail unless counts are those of the file's own values and the bounds, where there are any, contain them.

    A column of floating-point numbers has bounds only where its NaN values are counted.
    """
    known = file.metrics
    for path, field, values in _columns(file, schema):
        field_id, kind = field.field_id, field.field_type
        if values is None:
            assert field_id not in known.lower_bounds.keys() | known.upper_bounds.keys() | known.value_counts.keys()
            continue
        nans = [value for value in values if _is_nan(value)]
        assert known.value_counts.get(field_id, len(values)) == len(values), path
        assert known.null_value_counts.get(field_id, values.count(None)) == values.count(None), path
        assert known.nan_value_counts.get(field_id, len(nans)) == len(nans), path
        if isinstance(kind, FloatType | DoubleType) and field_id not in known.nan_value_counts:
            assert field_id not in known.lower_bounds.keys() | known.upper_bounds.keys()
        ordered = [_order(kind, value) for value in values if value is not None and value not in nans]
        lower, upper = known.lower_bounds.get(field_id), known.upper_bounds.get(field_id)
        if ordered:
            assert lower is None or _order(kind, _decoded(kind, lower)) <= min(ordered), path
            assert upper is None or _order(kind, _decoded(kind, upper)) >= max(ordered), path
