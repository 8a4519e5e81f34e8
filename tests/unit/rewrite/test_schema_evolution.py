"""Files of an earlier schema, and files of other writers, as rows of the table's present schema."""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
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

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.schema.schemas import FIELD_ID, bind, unusable_default
from amoro_core.model.files import DELETE_PATH_FIELD_ID, DELETE_POS_FIELD_ID, DataFile, DeleteFile, DeleteKind
from amoro_core.model.task_payload import TableContext

from .builders import EVERYTHING, NS, col, context, data_file, equality_deletes, rows_of, run, task, written_under


def test_files_whose_columns_differ_in_their_ids_alone_are_read_by_these(tmp_path: Path) -> None:
    """As where columns were dropped and added anew, or renamed into each other: each file is bound by itself."""
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    names = [[col("a", pa.int64(), one), col("b", pa.int64(), other)] for one, other in ((1, 9), (1, 2), (2, 1))]
    files = [data_file(tmp_path, columns, {"a": [at], "b": [at + 10]}) for at, columns in enumerate(names)]
    output = run(task(context(tmp_path, schema), files))
    assert rows_of(output) == [{"a": 0, "b": None}, {"a": 1, "b": 11}, {"a": 12, "b": 2}]


def test_without_any_column_there_are_as_many_rows() -> None:
    stored = pa.record_batch([pa.array([1, None])], pa.schema([col("a", pa.int64(), 1)]))
    found = bind(Schema(), stored.schema, None, {}, "f").apply(stored)
    assert (found.num_rows, found.num_columns) == (2, 0)


def test_required_fields_inside_optional_structs_are_written_as_such(tmp_path: Path) -> None:
    inner = StructType(
        NestedField(2, "r", IntegerType(), required=True),
        NestedField(3, "t", StringType(), required=True),
        NestedField(4, "u", UUIDType(), required=True),
        NestedField(5, "l", ListType(6, LongType(), True), required=True),
    )
    schema = Schema(NestedField(1, "s", inner), NestedField(7, "n", LongType(), required=True))
    # written by somebody who calls everything optional
    arrow = pa.struct(
        [
            col("r", pa.int32(), 2),
            col("t", pa.string(), 3),
            col("u", pa.binary(16), 4),
            col("l", pa.list_(col("element", pa.int32(), 6)), 5),
        ]
    )
    value = {"r": 1, "t": "t", "u": b"u" * 16, "l": [1, 2]}
    file = data_file(
        tmp_path, [col("s", arrow, 1), col("n", pa.int64(), 7)], {"s": [None, value, None], "n": [1, 2, 3]}
    )
    keys = equality_deletes(tmp_path, [7], [col("n", pa.int64(), 7)], {"n": [3]})

    output = run(task(context(tmp_path, schema), [file], [keys]))

    assert rows_of(output) == [{"s": None, "n": 1}, {"s": {**value, "u": uuid.UUID(bytes=b"u" * 16)}, "n": 2}]
    written = pq.read_schema(output.data_files[0].path)
    assert [written.field("s").type.field(index).nullable for index in range(4)] == [False] * 4


def test_a_struct_added_later_is_null_whatever_its_members_require_and_a_required_null_is_unreadable(
    tmp_path: Path,
) -> None:
    inner = StructType(
        NestedField(3, "u", UUIDType(), required=True),
        NestedField(4, "l", ListType(5, StringType(), True), required=True),
        NestedField(6, "in", StructType(NestedField(7, "m", LongType(), required=True)), required=True),
    )
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", inner))
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1, 2]})

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [{"n": 1, "s": None}, {"n": 2, "s": None}]
    schema = Schema(NestedField(1, "n", LongType(), required=True))
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1, None]})

    with pytest.raises(UnreadableFile, match=r"required column n \(id 1\) has nulls"):
        run(task(context(tmp_path, schema), [file]))


def test_files_without_field_ids_are_read_by_the_name_mapping_and_others_by_their_ids(tmp_path: Path) -> None:
    mapping = '[{"field-id": 1, "names": ["n", "old"]}, {"field-id": 2, "names": ["s"]}]'
    by_name = data_file(tmp_path, [], pa.table({"old": [1], "not mapped": ["x"], "s": ["y"]}))
    by_id = data_file(tmp_path, [col("other", pa.int64(), 1), pa.field("s", pa.string())], {"other": [5], "s": ["z"]})
    output = run(task(context(tmp_path, NS, name_mapping=mapping), [by_name, by_id]))
    assert rows_of(output) == [{"n": 1, "s": "y"}, {"n": 5, "s": None}]
    plain = [data_file(tmp_path, [], pa.table({"old": [at], "s": ["y"]})) for at in range(3)]
    copied = run(task(context(tmp_path, NS, name_mapping=mapping), [*plain, by_name, by_id], copy=EVERYTHING))
    assert copied.files_copied == 3
    assert copied.encoded_because.startswith("its columns are not those of the table's schema: not mapped ")
    assert pq.read_schema(copied.data_files[0].path).field(0).metadata == {FIELD_ID: b"1"}
    again = run(task(context(tmp_path, NS), copied.data_files))
    assert rows_of(again) == [*({"n": at, "s": "y"} for at in range(3)), {"n": 1, "s": "y"}, {"n": 5, "s": None}]
    for told, reason in ((None, "field-ids"), ("{no", "configuration")):
        with pytest.raises(TableRefused, match=r"no field ids|name-mapping") as refused:
            run(task(context(tmp_path, NS, name_mapping=told), [by_name]))
        assert refused.value.reason == reason


TYPES = Schema(
    NestedField(1, "ts", TimestampType()),
    NestedField(2, "tz", TimestamptzType()),
    NestedField(3, "t", TimeType()),
    NestedField(4, "s", StringType()),
    NestedField(5, "b", BinaryType()),
    NestedField(6, "f", FixedType(2)),
    NestedField(7, "u", UUIDType()),
    NestedField(8, "d", DateType()),
    NestedField(9, "dec", DecimalType(12, 2)),
    NestedField(10, "us", ListType(11, UUIDType(), False)),
)
VALUES = {
    "ts": datetime(1600, 2, 29, 1, 2, 3, 4000),
    "tz": datetime(1600, 2, 29, 1, 2, 3, 4000, tzinfo=UTC),
    "t": time(1, 2, 3, 4000),
    "s": "text",
    "b": b"\x00\xff",
    "f": b"ab",
    "u": uuid.UUID(int=7),
    "d": date(1600, 2, 29),
    "dec": Decimal("12.34"),
    "us": [uuid.UUID(int=8), None],
}
STORED = {**VALUES, "u": uuid.UUID(int=7).bytes, "us": [uuid.UUID(int=8).bytes, None]}


def other_writer(**kinds: pa.DataType) -> list[pa.Field]:
    usual = {
        "ts": pa.timestamp("us"),
        "tz": pa.timestamp("us", "UTC"),
        "t": pa.time64("us"),
        "s": pa.string(),
        "b": pa.binary(),
        "f": pa.binary(2),
        "u": pa.binary(16),
        "d": pa.date32(),
        "dec": pa.decimal128(12, 2),
        "us": pa.list_(col("element", pa.binary(16), 11)),
    }
    return [col(name, kind, number) for number, (name, kind) in enumerate({**usual, **kinds}.items(), 1)]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (other_writer(), {}),
        (other_writer(ts=pa.timestamp("ms"), tz=pa.timestamp("ms", "UTC"), t=pa.time32("ms")), {}),
        (other_writer(tz=pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}),
        (other_writer(s=pa.dictionary(pa.int32(), pa.string()), b=pa.large_binary()), {"store_schema": True}),
        (
            other_writer(s=pa.large_string(), us=pa.large_list(col("element", pa.binary(16), 11))),
            {"store_schema": True},
        ),
        (other_writer(u=pa.uuid()), {}),
        (other_writer(s=pa.binary(), b=pa.string()), {"plain": True}),
        (other_writer(b=pa.binary(2)), {}),
        (other_writer(), {"store_decimal_as_integer": True, "version": "1.0", "data_page_version": "2.0"}),
    ],
    ids=["usual", "milliseconds", "int96", "dictionary", "large", "uuid", "not annotated", "fixed", "integer decimals"],
)
def test_files_of_other_writers_are_read_exactly(
    tmp_path: Path, columns: list[pa.Field], options: dict[str, object]
) -> None:
    stored = dict(STORED)
    if options.pop("plain", False):
        stored |= {"s": b"text", "b": "plain"}
    if columns[1].type == pa.timestamp("us"):
        stored["tz"] = VALUES["ts"]
    rows = {name: [value, None] for name, value in stored.items()}
    file = data_file(tmp_path, columns, rows, **options)

    output = run(task(context(tmp_path, TYPES), [file]))

    expected = VALUES | ({"b": b"plain"} if stored["b"] == "plain" else {})
    assert rows_of(output) == [expected, dict.fromkeys(VALUES)]


def test_strings_that_are_no_utf_8_keep_their_bytes_whether_annotated_or_not(tmp_path: Path) -> None:
    values = [b"\xff\xfe", b"plain", None, b"\xe9t\xe9"]
    kinds = (pa.string(), pa.binary())
    tables = [
        pa.Table.from_arrays([pa.array(values, pa.binary()).view(kind)], schema=pa.schema([col("s", kind, 1)]))
        for kind in kinds
    ]
    files = [data_file(tmp_path, [], table) for table in tables]
    keys = equality_deletes(tmp_path, [1], [col("s", pa.binary(), 1)], {"s": [b"\xff\xfe"]})

    output = run(task(context(tmp_path, Schema(NestedField(1, "s", StringType()))), files, [keys]))

    written = pq.read_table(output.data_files[0].path).column(0).combine_chunks()
    assert written.view(pa.binary()).to_pylist() == values[1:] * 2


def test_written_types_are_those_of_the_specification(tmp_path: Path) -> None:
    file = data_file(tmp_path, other_writer(), {name: [value] for name, value in STORED.items()})

    output = run(task(context(tmp_path, TYPES), [file]))

    metadata = pq.ParquetFile(output.data_files[0].path).metadata
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    assert [(c.physical_type, str(c.logical_type).partition("(")[0]) for c in columns] == [
        ("INT64", "Timestamp"),
        ("INT64", "Timestamp"),
        ("INT64", "Time"),
        ("BYTE_ARRAY", "String"),
        ("BYTE_ARRAY", "None"),
        ("FIXED_LEN_BYTE_ARRAY", "None"),
        ("FIXED_LEN_BYTE_ARRAY", "UUID"),
        ("INT32", "Date"),
        ("INT64", "Decimal"),
        ("FIXED_LEN_BYTE_ARRAY", "UUID"),
    ]
    assert "isAdjustedToUTC=false" in str(columns[0].logical_type)
    assert "isAdjustedToUTC=true" in str(columns[1].logical_type)
    assert metadata.metadata is None or b"ARROW:schema" not in metadata.metadata


@pytest.mark.parametrize(
    ("wanted", "arrow", "value"),
    [
        (IntegerType(), pa.int64(), 1),
        (StringType(), pa.binary(2), b"ab"),
        (TimestamptzType(), pa.date32(), 1),
        (DecimalType(9, 2), pa.decimal128(9, 3), Decimal("1.000")),
        (FixedType(3), pa.binary(2), b"ab"),
        (TimestampType(), pa.timestamp("ns"), 1),
        (LongType(), pa.list_(col("element", pa.int64(), 2)), [1]),
        (ListType(2, LongType(), False), pa.int64(), 1),
    ],
)
def test_a_column_of_another_type_makes_the_file_unreadable(
    tmp_path: Path, wanted: LongType, arrow: pa.DataType, value: object
) -> None:
    file = data_file(tmp_path, [col("c", arrow, 1)], {"c": [value]})

    with pytest.raises(UnreadableFile, match=re.escape(file.path)):
        run(task(context(tmp_path, Schema(NestedField(1, "c", wanted))), [file]))


def test_names_that_avro_does_not_allow_are_written_as_java_does(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "a b", LongType()), NestedField(2, "a.b", LongType()), NestedField(3, "1", LongType())
    )
    columns = [col("a.b", pa.int64(), 2), col("a b", pa.int64(), 1), col("1", pa.int64(), 3)]
    file = data_file(tmp_path, columns, {"a.b": [2], "a b": [1], "1": [3]})

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [{"a_x20b": 1, "a_x2Eb": 2, "_1": 3}]
    assert set(output.data_files[0].metrics.lower_bounds) >= {1, 3}


TWICE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "inner", StructType(NestedField(3, "key", LongType(), required=False)), required=False),
    NestedField(4, "tags", ListType(5, LongType(), element_required=False), required=False),
)
ID = col("id", pa.int64(), 1)
ROWS = [{"id": 1, "inner": None, "tags": None}]


def refused(root: Path, file: DataFile, *deletes: DeleteFile, table: TableContext | None = None) -> str:
    with pytest.raises(TableRefused) as error:
        run(task(table or context(root, TWICE), [file], deletes))
    assert error.value.reason == "field-ids"
    assert written_under(root) == []
    return error.value.message


@pytest.mark.parametrize(
    "column",
    [
        col("other", pa.int64(), 1),
        col("inner", pa.struct([col("key", pa.int64(), 3), col("again", pa.int64(), 3)]), 2),
        col("inner", pa.struct([col("key", pa.int64(), 1)]), 2),
        col("tags", pa.list_(col("element", pa.int64(), 1)), 4),
    ],
)
def test_two_columns_of_one_id_are_refused_by_the_files_name_also_within_structs_and_lists(
    tmp_path: Path, column: pa.Field
) -> None:
    table = pa.table([pa.array([1]), pa.nulls(1, column.type)], schema=pa.schema([ID, column]))
    file = data_file(tmp_path, [], table)
    assert refused(tmp_path, file).startswith(f"{file.path} has two columns with the field id ")
    unknown = data_file(
        tmp_path, [ID, col("a", pa.int64(), 9), col("b", pa.int64(), 9)], {"id": [1], "a": [2], "b": [3]}
    )
    assert rows_of(run(task(context(tmp_path, TWICE), [unknown]))) == ROWS


def test_two_columns_that_a_mapping_or_a_delete_gives_one_id_are_refused(tmp_path: Path) -> None:
    file = data_file(tmp_path, [ID], {"id": [1]})
    delete = equality_deletes(tmp_path, [1], [ID, col("other", pa.int64(), 1)], {"id": [5], "other": [1]})
    assert delete.path in refused(tmp_path, file, delete)
    table = context(tmp_path, TWICE, name_mapping='[{"field-id": 1, "names": ["id", "old"]}]')
    columns = [pa.field("id", pa.int64()), pa.field("old", pa.int64())]
    file = data_file(tmp_path, columns, {"id": [1], "old": [2]})
    assert "two columns with the field id 1" in refused(tmp_path, file, table=table)
    one = data_file(tmp_path, columns[1:], {"old": [1]})
    assert rows_of(run(task(table, [one]))) == ROWS


@pytest.mark.parametrize(
    "columns",
    [
        [("file_path", DELETE_PATH_FIELD_ID), ("pos", DELETE_POS_FIELD_ID), ("more", DELETE_POS_FIELD_ID)],
        [("file_path", DELETE_PATH_FIELD_ID), ("pos", DELETE_POS_FIELD_ID), ("pos", 7)],
        [("file_path", None), ("pos", None), ("pos", None)],
    ],
)
def test_a_position_delete_with_two_columns_for_positions_is_refused(
    tmp_path: Path, columns: list[tuple[str, int | None]]
) -> None:
    file = data_file(tmp_path, [ID], {"id": [1, 2]})
    kinds = [pa.string(), pa.int64(), pa.int64()]
    fields = [
        pa.field(name, kind) if field_id is None else col(name, kind, field_id)
        for (name, field_id), kind in zip(columns, kinds, strict=True)
    ]
    table = pa.table([pa.array([file.path]), pa.array([0]), pa.array([1])], schema=pa.schema(fields))
    made = data_file(tmp_path, [], table)
    delete = DeleteFile(made.path, DeleteKind.POSITION, made.file_format, 0, (), 1, made.size_bytes, 2)
    assert refused(tmp_path, file, delete) == (
        f"{made.path} has two columns for the path or the position of its deletes"
    )


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (UUIDType(), str(uuid.UUID(int=7)), None),
        (FixedType(2), "6162", None),
        (IntegerType(), 2**31, "error"),
        (UUIDType(), "7", "Error: "),
        (FixedType(2), "616", "Error: "),
    ],
)
def test_a_default_that_is_no_value_of_its_type_is_told(kind: PrimitiveType, value: Any, why: str | None) -> None:
    told = unusable_default(kind, value)
    assert told is None if why is None else told is not None and why in told


DEFAULTS: list[tuple[IcebergType, Any]] = [
    (BooleanType(), False),
    (IntegerType(), -(2**31)),
    (LongType(), 2**63 - 1),
    (FloatType(), 0.5),
    (DoubleType(), -0.0),
    (DateType(), date(1969, 12, 31)),
    (TimeType(), time(23, 59, 59, 999999)),
    (TimestampType(), datetime(1582, 10, 4, 0, 0, 0, 1)),
    (TimestamptzType(), datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=ZoneInfo("UTC"))),
    (StringType(), "é'"),
    (StringType(), ""),
    (BinaryType(), b"\0\xff"),
    (FixedType(3), b"abc"),
    (UUIDType(), uuid.UUID(int=7)),
    (DecimalType(38, 3), Decimal("-1.230")),
    (DecimalType(9, 0), Decimal("0")),
]
NUMBER = NestedField(1, "n", LongType())
COLUMNS = [col("n", pa.int64(), 1)]


def with_default(
    kind: IcebergType, default: Any, *, field_id: int = 2, name: str = "c", required: bool = False
) -> NestedField:
    return NestedField(field_id, name, kind, required, initial_default=default)


@pytest.mark.parametrize(("kind", "default"), DEFAULTS, ids=lambda one: str(one)[:20])
@pytest.mark.parametrize("required", [False, True])
def test_rows_of_a_file_without_the_column_have_its_default(
    tmp_path: Path, kind: IcebergType, default: Any, required: bool
) -> None:
    schema = Schema(NUMBER, with_default(kind, default, required=required))
    file = data_file(tmp_path, COLUMNS, {"n": [1, 2]})

    output = run(task(context(tmp_path, schema), [file]))

    assert repr(rows_of(output)) == repr([{"n": 1, "c": default}, {"n": 2, "c": default}])
    assert output.data_files[0].metrics.null_value_counts == {1: 0, 2: 0}


def test_nested_fields_have_their_defaults_where_what_surrounds_them_is_there(tmp_path: Path) -> None:
    def struct_of(field_id: int) -> StructType:
        return StructType(
            NestedField(field_id, "a", LongType()),
            with_default(StringType(), "d", field_id=field_id + 1, required=True),
        )

    schema = Schema(
        NestedField(1, "s", struct_of(10)),
        NestedField(2, "l", ListType(3, struct_of(20), False)),
        NestedField(4, "m", MapType(5, StringType(), 6, struct_of(30), False)),
        NestedField(7, "new", struct_of(40)),
    )
    columns = [
        col("s", pa.struct([col("a", pa.int64(), 10)]), 1),
        col("l", pa.list_(col("element", pa.struct([col("a", pa.int64(), 20)]), 3)), 2),
        col(
            "m",
            pa.map_(col("key", pa.string(), 5, nullable=False), col("value", pa.struct([col("a", pa.int64(), 30)]), 6)),
            4,
        ),
    ]
    rows = {
        "s": [{"a": 1}, None, {"a": None}],
        "l": [[{"a": 1}, None], None, []],
        "m": [[("k", {"a": 1}), ("n", None)], None, []],
    }

    output = run(task(context(tmp_path, schema), [data_file(tmp_path, columns, rows)]))

    assert rows_of(output) == [
        {
            "s": {"a": 1, "c": "d"},
            "l": [{"a": 1, "c": "d"}, None],
            "m": [("k", {"a": 1, "c": "d"}), ("n", None)],
            "new": None,
        },
        {"s": None, "l": None, "m": None, "new": None},
        {"s": {"a": None, "c": "d"}, "l": [], "m": [], "new": None},
    ]


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("is_nested", [False, True])
def test_equality_deletes_apply_to_the_default_of_rows_without_the_column(
    tmp_path: Path, dropped: bool, is_nested: bool
) -> None:
    field = with_default(StringType(), "x")
    arrow = col("c", pa.string(), 2)
    if is_nested:
        field = NestedField(3, "s", StructType(NestedField(4, "a", LongType()), field))
        key = col("s", pa.struct([arrow]), 3)
        old = col("s", pa.struct([col("a", pa.int64(), 4)]), 3)
        file = data_file(tmp_path, [*COLUMNS, old], {"n": [1, 2], "s": [{"a": 1}, None]})
        deleted = {"s": [{"c": "x"}]}
    else:
        key, deleted = arrow, {"c": ["x"]}
        file = data_file(tmp_path, COLUMNS, {"n": [1, 2]})
    newer = data_file(tmp_path, [*COLUMNS, key], {"n": [3, 4], key.name: [deleted[key.name][0], None]})
    keys = equality_deletes(tmp_path, [2], [key], deleted)
    schema = Schema(NUMBER) if dropped else Schema(NUMBER, field)

    output = run(task(context(tmp_path, schema, dropped=[field] if dropped else ()), [file, newer], [keys]))

    assert [row["n"] for row in rows_of(output)] == ([2, 4] if is_nested else [4])


@pytest.mark.parametrize("value", [7, None])
def test_the_partition_s_value_comes_before_the_default(tmp_path: Path, value: int | None) -> None:
    schema = Schema(NUMBER, with_default(LongType(), 9))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"))
    partition = (None if value is None else struct.pack("<q", value),)
    file = data_file(tmp_path, COLUMNS, {"n": [1, 2]}, partition=partition)
    keys = replace(
        equality_deletes(tmp_path, [1, 2], [*COLUMNS, col("c", pa.int64(), 2)], {"n": [1, 2], "c": [9, value]}),
        partition=partition,
    )
    output = run(task(context(tmp_path, schema, spec=spec), [file], [keys]))
    assert rows_of(output) == [{"n": 1, "c": value}]
