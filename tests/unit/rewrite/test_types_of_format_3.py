"""Nanoseconds, columns of the type unknown, and dates that became timestamps."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    UnknownType,
)

from amoro_core.errors import UnreadableFile
from amoro_core.model.files import FileFormat
from amoro_core.model.task_payload import RewriteOutput

from .builders import avro_file, col, context, data_file, equality_deletes, orc_col, orc_file, run, task

DAY_US, DAY_NS = 86_400_000_000, 86_400_000_000_000


def numbers(output: RewriteOutput, name: str) -> list[int | None]:
    """The stored numbers of a column of times."""
    stored = pa.concat_tables(pq.read_table(file.path) for file in output.data_files).column(name)
    found: list[int | None] = stored.cast(pa.int64()).to_pylist()
    return found


@pytest.mark.parametrize(("kind", "zone"), [(TimestampNanoType(), None), (TimestamptzNanoType(), "UTC")])
def test_nanoseconds_stay_exact_as_rows_keys_and_bounds(tmp_path: Path, kind: IcebergType, zone: str | None) -> None:
    arrow = pa.timestamp("ns", zone)
    schema = Schema(NestedField(1, "at", kind), NestedField(2, "s", StructType(NestedField(3, "at", kind))))
    inner = pa.struct([col("at", arrow, 3)])
    values = [-(2**63) + 1, -1, 0, 1, 2**63 - 1, None]
    rows = pa.table(
        [pa.array(values, pa.int64()).view(arrow), pa.array([{"at": one} for one in values], inner)],
        schema=pa.schema([col("at", arrow, 1), col("s", inner, 2)]),
    )
    file = data_file(tmp_path, [], rows, version="2.6")
    keys = equality_deletes(tmp_path, [1, 3], rows.schema, rows.slice(1, 1))

    output = run(task(context(tmp_path, schema), [file], [keys]))

    assert numbers(output, "at") == [-(2**63) + 1, 0, 1, 2**63 - 1, None]
    (written,) = output.data_files
    for field_id in (1, 3):
        assert written.metrics.lower_bounds[field_id] == struct.pack("<q", -(2**63) + 1)
        assert written.metrics.upper_bounds[field_id] == struct.pack("<q", 2**63 - 1)
    column = pq.ParquetFile(written.path).metadata.schema.column(0)
    assert "timeUnit=nanoseconds" in str(column.logical_type)
    assert f"isAdjustedToUTC={'true' if zone else 'false'}" in str(column.logical_type)


@pytest.mark.parametrize(("kind", "zone"), [(TimestampNanoType(), "UTC"), (TimestamptzNanoType(), None)])
def test_the_zone_of_nanoseconds_is_that_of_the_table(tmp_path: Path, kind: IcebergType, zone: str | None) -> None:
    file = data_file(tmp_path, [col("at", pa.timestamp("ns", zone), 1)], {"at": [-1, None, 5]}, version="2.6")
    output = run(task(context(tmp_path, Schema(NestedField(1, "at", kind))), [file]))
    assert numbers(output, "at") == [-1, None, 5]
    assert pq.read_schema(output.data_files[0].path).field("at").type == pa.timestamp("ns", None if zone else "UTC")


@pytest.mark.parametrize("arrow", [pa.timestamp("us"), pa.timestamp("ms")])
def test_times_that_may_have_lost_nanoseconds_are_not_read_as_such(tmp_path: Path, arrow: pa.DataType) -> None:
    file = data_file(tmp_path, [col("at", arrow, 1)], {"at": [0]})
    with pytest.raises(UnreadableFile, match="cannot be read as timestamp_ns"):
        run(task(context(tmp_path, Schema(NestedField(1, "at", TimestampNanoType()))), [file]))


def test_columns_of_the_type_unknown_are_not_written_and_are_null_as_keys(tmp_path: Path) -> None:
    inner = StructType(NestedField(4, "n", LongType()), NestedField(5, "u", UnknownType()))
    schema = Schema(
        NestedField(1, "u", UnknownType()),
        NestedField(2, "n", LongType()),
        NestedField(3, "s", inner),
        NestedField(
            6, "l", ListType(7, StructType(NestedField(8, "u", UnknownType()), NestedField(9, "m", LongType())))
        ),
    )
    columns = [
        col("u", pa.null(), 1),  # as pyarrow writes such a column
        col("n", pa.int64(), 2),
        col("s", pa.struct([col("n", pa.int64(), 4)]), 3),
        col("l", pa.list_(col("element", pa.struct([col("m", pa.int64(), 9)]), 7)), 6),
    ]
    rows = {"u": [None] * 3, "n": [1, 2, 3], "s": [{"n": 1}, None, {"n": 3}], "l": [[{"m": 1}], [], None]}
    file = data_file(tmp_path, columns, rows)
    other = data_file(tmp_path, columns[1:2], {"n": [2, 4]})
    keys = equality_deletes(tmp_path, [1, 2], columns[1:2], {"n": [2]})

    output = run(task(context(tmp_path, schema), [file, other], [keys]))

    (written,) = output.data_files
    assert pq.read_table(written.path).to_pylist() == [
        {"n": 1, "s": {"n": 1}, "l": [{"m": 1}]},
        {"n": 3, "s": {"n": 3}, "l": None},
        {"n": 4, "s": None, "l": None},
    ]
    assert {1, 5, 8}.isdisjoint(written.metrics.column_sizes)


@pytest.mark.parametrize("held", [False, True], ids=["left out", "held as null"])
def test_a_delete_by_a_column_that_was_unknown_deletes_the_rows_in_which_it_is_null(tmp_path: Path, held: bool) -> None:
    """The column got a type since: that of the delete file says nothing, the table's history says what it was."""
    schema = Schema(NestedField(1, "was", LongType()), NestedField(2, "n", LongType()))
    typed, plain = [col("was", pa.int64(), 1), col("n", pa.int64(), 2)], [col("n", pa.int64(), 2)]
    before = data_file(tmp_path, plain, {"n": [1, 2, 2]})
    after = data_file(tmp_path, typed, {"was": [0, None, None], "n": [2, 2, 3]})
    keys = (
        equality_deletes(tmp_path, [1, 2], [col("was", pa.null(), 1), *plain], {"was": [None], "n": [2]})
        if held
        else equality_deletes(tmp_path, [1, 2], plain, {"n": [2]})
    )
    work = task(context(tmp_path, schema), [before, after], [keys])
    if not held:
        with pytest.raises(UnreadableFile, match=r"lacks the key columns \[1\]"):
            run(work)

    output = run(replace(work, table=replace(work.table, once_unknown=(1,))))

    written = [row for file in output.data_files for row in pq.read_table(file.path).to_pylist()]
    assert written == [{"was": None, "n": 1}, {"was": 0, "n": 2}, {"was": None, "n": 3}]


@pytest.mark.parametrize(
    ("kind", "days", "shown"),
    [
        (TimestampNanoType(), 106_752, "2262-04-12"),
        (TimestampNanoType(), -106_752, "1677-09-21"),
        (TimestampType(), 106_751_992, "294247-01-11"),
    ],
)
def test_a_date_beyond_the_range_of_the_new_type_fails_by_its_value(
    tmp_path: Path, kind: IcebergType, days: int, shown: str
) -> None:
    file = data_file(tmp_path, [col("at", pa.date32(), 1)], {"at": [0, None, days]})
    match = rf"column at \(id 1\) has the value {shown}, which is beyond the range of {kind}"
    with pytest.raises(UnreadableFile, match=match):
        run(task(context(tmp_path, Schema(NestedField(1, "at", kind))), [file]))
    nearest = data_file(tmp_path, [col("at", pa.date32(), 1)], {"at": [days - (1 if days > 0 else -1)]})
    run(task(context(tmp_path, Schema(NestedField(1, "at", kind))), [nearest]))


def test_nanoseconds_are_compared_with_keys_of_their_own_unit(tmp_path: Path) -> None:
    columns = [col("at", pa.timestamp("ns"), 1)]
    file = data_file(tmp_path, columns, {"at": [1000, 2000, 3000]}, row_group_size=1, version="2.6")
    for kind, key, arrow, left in (
        (TimestampNanoType(), 2000, pa.timestamp("ns"), [1000, 3000]),
        (TimestampType(), 2, pa.timestamp("us"), [1, 3]),
    ):
        keys = equality_deletes(tmp_path, [1], [col("at", arrow, 1)], {"at": [key]})
        work = task(context(tmp_path, Schema(NestedField(1, "at", kind))), [file], [keys])
        assert numbers(run(work), "at") == left


@pytest.mark.parametrize("file_format", [FileFormat.AVRO, FileFormat.ORC])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_files_of_other_formats_have_nanoseconds_promoted_dates_and_defaults(
    tmp_path: Path, file_format: FileFormat, zone: str | None
) -> None:
    schema = Schema(
        NestedField(1, "at", TimestamptzNanoType() if zone else TimestampNanoType()),
        NestedField(2, "day", TimestampType()),
        NestedField(3, "n", LongType(), initial_default=7),
        NestedField(4, "u", UnknownType()),
    )
    moments, days = [-1, 1_700_000_000_123_456_789, None], [-1, 20_000, None]
    if file_format is FileFormat.AVRO:
        logical = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": zone is not None}
        fields = [
            {"name": "at", "type": ["null", logical], "field-id": 1},
            {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "field-id": 2},
        ]
        file = avro_file(tmp_path, fields, [{"at": at, "day": day} for at, day in zip(moments, days, strict=True)])
    else:
        columns = [orc_col("at", pa.timestamp("ns", zone), 1), orc_col("day", pa.date32(), 2)]
        values = [pa.array(moments, pa.int64()).view(columns[0].type), pa.array(days, pa.int32()).view(pa.date32())]
        file = orc_file(tmp_path, pa.Table.from_arrays(values, schema=pa.schema(columns)))

    output = run(task(context(tmp_path, schema), [file]))

    assert numbers(output, "at") == moments
    assert numbers(output, "day") == [-DAY_US, 20_000 * DAY_US, None]
    assert numbers(output, "n") == [7, 7, 7]
    assert pq.read_schema(output.data_files[0].path).names == ["at", "day", "n"]


@pytest.mark.parametrize(("kind", "day"), [(TimestampType(), DAY_US), (TimestampNanoType(), DAY_NS)])
def test_dates_become_the_beginnings_of_their_days(tmp_path: Path, kind: IcebergType, day: int) -> None:
    schema = Schema(NestedField(1, "at", kind))
    old, new = col("at", pa.date32(), 1), col("at", pa.timestamp("us" if day == DAY_US else "ns"), 1)
    before = data_file(tmp_path, [old], {"at": [-1, 0, 7, 20_000, None]})
    after = data_file(tmp_path, [new], {"at": [7 * day, 7 * day + 1]}, version="2.6")
    keys = equality_deletes(tmp_path, [1], [old], {"at": [7, -1]})  # from before the promotion
    later = equality_deletes(tmp_path, [1], [new], {"at": [20_000 * day]})

    output = run(task(context(tmp_path, schema), [before, after], [keys, later]))

    assert numbers(output, "at") == [0, None, 7 * day + 1]
    assert output.data_files[0].metrics.upper_bounds[1] == struct.pack("<q", 7 * day + 1)
