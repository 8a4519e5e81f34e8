"""Files of an earlier schema, and files of other writers, as rows of the table's present schema."""

import re
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.errors import TableRefused, UnreadableFile

from .builders import col, context, data_file, equality_deletes, position_deletes, rows_of, run, task


def test_columns_are_added_dropped_renamed_promoted_and_reordered(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(5, "added", StringType()),
        NestedField(3, "wide", DecimalType(30, 4)),
        NestedField(1, "renamed", LongType()),
        NestedField(4, "f", DoubleType()),
    )
    columns = [
        col("original", pa.int32(), 1),
        col("f", pa.int64(), 2),  # a dropped column whose name another one has now
        col("wide", pa.decimal128(10, 4), 3),
        col("g", pa.float32(), 4),
    ]
    rows = {"original": [1, None], "f": [8, 9], "wide": [Decimal("1.5000"), None], "g": [0.1, None]}

    output = run(task(context(tmp_path, schema), [data_file(tmp_path, columns, rows)]))

    tenth = 0.10000000149011612  # 0.1 as a float
    assert rows_of(output) == [
        {"added": None, "wide": Decimal("1.5000"), "renamed": 1, "f": tenth},
        {"added": None, "wide": None, "renamed": None, "f": None},
    ]
    written = pq.read_schema(output.data_files[0].path)
    assert [(f.name, f.metadata[b"PARQUET:field_id"]) for f in written] == [
        ("added", b"5"),
        ("wide", b"3"),
        ("renamed", b"1"),
        ("f", b"4"),
    ]


def test_files_whose_columns_differ_in_their_ids_alone_are_read_by_these(tmp_path: Path) -> None:
    """As where columns were dropped and added anew, or renamed into each other: each file is bound by itself."""
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))
    names = [[col("a", pa.int64(), one), col("b", pa.int64(), other)] for one, other in ((1, 9), (1, 2), (2, 1))]
    files = [data_file(tmp_path, columns, {"a": [at], "b": [at + 10]}) for at, columns in enumerate(names)]
    output = run(task(context(tmp_path, schema), files))
    assert rows_of(output) == [{"a": 0, "b": None}, {"a": 1, "b": 11}, {"a": 12, "b": 2}]


def test_nested_fields_are_added_dropped_renamed_promoted_and_reordered(tmp_path: Path) -> None:
    point = StructType(
        NestedField(9, "z", StringType()), NestedField(4, "y", LongType()), NestedField(3, "first", LongType())
    )
    schema = Schema(
        NestedField(1, "s", point),
        NestedField(
            10,
            "l",
            ListType(11, StructType(NestedField(13, "b", StringType()), NestedField(12, "a", LongType())), False),
        ),
        NestedField(
            20,
            "m",
            MapType(
                21,
                StringType(),
                22,
                StructType(NestedField(24, "n", IntegerType()), NestedField(23, "d", DoubleType())),
                False,
            ),
        ),
    )
    s = pa.struct([col("x", pa.int32(), 3), col("dropped", pa.int8(), 8), col("y", pa.int64(), 4)])
    items = pa.list_(col("element", pa.struct([col("a", pa.int32(), 12)]), 11))
    entries = pa.map_(
        col("key", pa.string(), 21, nullable=False), col("value", pa.struct([col("d", pa.float32(), 23)]), 22)
    )
    rows = {
        "s": [{"x": 1, "dropped": 1, "y": 2}, None, {"x": None, "dropped": 1, "y": None}],
        "l": [[{"a": 1}, None], None, []],
        "m": [[("k", {"d": 0.5}), ("n", None)], None, []],
    }
    columns = [col("m", entries, 20), col("s", s, 1), col("l", items, 10)]
    keys = equality_deletes(tmp_path, [4], [col("s", pa.struct([col("y", pa.int64(), 4)]), 1)], {"s": [{"y": 77}]})

    output = run(task(context(tmp_path, schema), [data_file(tmp_path, columns, rows)], [keys]))

    assert rows_of(output) == [
        {
            "s": {"z": None, "y": 2, "first": 1},
            "l": [{"b": None, "a": 1}, None],
            "m": [("k", {"n": None, "d": 0.5}), ("n", None)],
        },
        {"s": None, "l": None, "m": None},
        {"s": {"z": None, "y": None, "first": None}, "l": [], "m": []},
    ]


def test_structs_inside_lists_inside_maps_evolve_as_columns_do(tmp_path: Path) -> None:
    inner = StructType(
        NestedField(9, "x", StringType()),  # another column by a name that was dropped
        NestedField(7, "wide", LongType()),
        NestedField(
            8, "t", StructType(NestedField(11, "d", DecimalType(20, 2)), NestedField(10, "was c", StringType()))
        ),
    )
    lists = ListType(4, inner, element_required=False)
    schema = Schema(NestedField(1, "m", MapType(2, IntegerType(), 3, lists, value_required=False)))
    old = pa.struct(
        [
            col("x", pa.int32(), 5),
            col("narrow", pa.int32(), 7),
            col(
                "t",
                pa.struct([col("c", pa.string(), 10), col("gone", pa.int8(), 12), col("d", pa.decimal128(9, 2), 11)]),
                8,
            ),
        ]
    )
    elements = pa.list_(col("element", old, 4))
    entries = pa.map_(col("key", pa.int32(), 2, nullable=False), col("value", elements, 3))
    value = {"x": 1, "narrow": 2, "t": {"c": "c", "gone": 3, "d": Decimal("1.50")}}
    rows = [[(1, [value, None, {**value, "t": None}]), (2, None), (3, [])], [], None, [(4, [value])]]
    file = data_file(tmp_path, [col("m", entries, 1)], {"m": rows * 5}, row_group_size=3)
    deletes = position_deletes(tmp_path, [(file.path, position) for position in range(1, 20, 4)])

    output = run(task(context(tmp_path, schema), [file], [deletes]))

    new = {"x": None, "wide": 2, "t": {"d": Decimal("1.50"), "was c": "c"}}
    found = [[(1, [new, None, {**new, "t": None}]), (2, None), (3, [])], None, [(4, [new])]] * 5
    written = [row["m"] for row in rows_of(output)]
    assert written == [_renamed(row) for row in found]


def _renamed(row: object) -> object:
    """Names as Java writes them."""
    match row:
        case list():
            return [_renamed(one) for one in row]
        case tuple():
            return tuple(_renamed(one) for one in row)
        case dict():
            return {key.replace(" ", "_x20"): _renamed(one) for key, one in row.items()}
        case _:
            return row


def test_a_null_list_inside_a_struct_stays_null_next_to_an_empty_one(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "s", StructType(NestedField(2, "l", ListType(3, IntegerType(), False)))))
    columns = [col("s", pa.struct([col("l", pa.list_(col("element", pa.int32(), 3)), 2)]), 1)]
    rows = [{"l": None}, {"l": []}, None, {"l": [None, 1]}] * 3
    file = data_file(tmp_path, columns, {"s": rows}, row_group_size=5)

    output = run(task(context(tmp_path, schema), [file]))

    assert [row["s"] for row in rows_of(output)] == rows


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


def test_a_struct_added_later_is_null_in_older_files_whatever_its_members_require(tmp_path: Path) -> None:
    inner = StructType(
        NestedField(3, "u", UUIDType(), required=True),
        NestedField(4, "l", ListType(5, StringType(), True), required=True),
        NestedField(6, "in", StructType(NestedField(7, "m", LongType(), required=True)), required=True),
    )
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", inner))
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1, 2]})

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [{"n": 1, "s": None}, {"n": 2, "s": None}]


def test_a_null_in_a_required_column_makes_the_file_unreadable(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=True))
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1, None]})

    with pytest.raises(UnreadableFile, match=r"required column n \(id 1\) has nulls"):
        run(task(context(tmp_path, schema), [file]))


MAPPING = """[
  {"field-id": 1, "names": ["id", "ID"]},
  {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["inner", "x"]}]},
  {"field-id": 4, "names": ["l"], "fields": [{"field-id": 5, "names": ["element"],
    "fields": [{"field-id": 6, "names": ["a"]}]}]},
  {"field-id": 7, "names": ["m"], "fields": [{"field-id": 8, "names": ["key"]}, {"field-id": 9, "names": ["value"]}]}
]"""
MAPPED = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StructType(NestedField(3, "x", IntegerType()))),
    NestedField(4, "l", ListType(5, StructType(NestedField(6, "a", IntegerType())), False)),
    NestedField(7, "m", MapType(8, StringType(), 9, LongType(), False)),
)


def test_a_file_without_field_ids_is_read_by_the_name_mapping(tmp_path: Path) -> None:
    columns = [
        pa.field("ID", pa.int32()),
        pa.field("not mapped", pa.string()),
        pa.field("s", pa.struct([pa.field("x", pa.int32()), pa.field("other", pa.int32())])),
        pa.field("l", pa.list_(pa.field("item", pa.struct([pa.field("a", pa.int32())])))),
        pa.field("m", pa.map_(pa.string(), pa.int64())),
    ]
    rows = {
        "ID": [1, 2],
        "not mapped": ["x", "y"],
        "s": [{"x": 1, "other": 2}, None],
        "l": [[{"a": 1}], None],
        "m": [[("k", 1)], []],
    }
    file = data_file(tmp_path, columns, rows)

    output = run(task(context(tmp_path, MAPPED, name_mapping=MAPPING), [file]))

    assert rows_of(output) == [
        {"id": 1, "s": {"x": 1}, "l": [{"a": 1}], "m": [("k", 1)]},
        {"id": 2, "s": None, "l": None, "m": []},
    ]


def test_a_file_with_field_ids_is_not_read_by_names(tmp_path: Path) -> None:
    file = data_file(tmp_path, [col("other", pa.int64(), 1), pa.field("s", pa.int64())], {"other": [5], "s": [1]})

    output = run(task(context(tmp_path, MAPPED, name_mapping=MAPPING), [file]))

    assert rows_of(output) == [{"id": 5, "s": None, "l": None, "m": None}]


def test_a_file_with_neither_ids_nor_mapping_is_refused(tmp_path: Path) -> None:
    file = data_file(tmp_path, [pa.field("id", pa.int64())], {"id": [1]})

    with pytest.raises(TableRefused, match="no field ids") as refused:
        run(task(context(tmp_path, MAPPED), [file]))
    assert refused.value.reason == "field-ids"


def test_a_malformed_name_mapping_is_refused(tmp_path: Path) -> None:
    file = data_file(tmp_path, [pa.field("id", pa.int64())], {"id": [1]})

    with pytest.raises(TableRefused, match="name-mapping") as refused:
        run(task(context(tmp_path, MAPPED, name_mapping="{no"), [file]))
    assert refused.value.reason == "configuration"


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
        (other_writer(), {"store_decimal_as_integer": True, "version": "1.0", "data_page_version": "2.0"}),
    ],
    ids=["usual", "milliseconds", "int96", "dictionary", "large", "uuid", "not annotated", "integer decimals"],
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


def test_chunks_whose_dictionary_overflows_midway_are_read_whole(tmp_path: Path) -> None:
    columns = [col("n", pa.int64(), 1), col("s", pa.string(), 2)]
    rows = {"n": [n // 2 for n in range(5000)], "s": [f"value {n % 3000}" for n in range(5000)]}
    options = {"dictionary_pagesize_limit": 2000, "data_page_size": 1000, "write_batch_size": 100}
    file = data_file(tmp_path, columns, rows, compression="none", **options)
    chunks = [pq.read_metadata(file.path).row_group(0).column(at) for at in (0, 1)]
    # The dictionaries have not taken all values, which need at least 20,000 bytes: the last pages hold them themselves.
    assert all(1000 < chunk.data_page_offset - chunk.dictionary_page_offset < 4000 for chunk in chunks)
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))

    output = run(task(context(tmp_path, schema), [file]))

    assert rows_of(output) == [{"n": n, "s": s} for n, s in zip(rows["n"], rows["s"], strict=True)]


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
        (StringType(), pa.int32(), 1),
        (DecimalType(9, 2), pa.decimal128(9, 3), Decimal("1.000")),
        (DateType(), pa.timestamp("us"), 0),
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


def test_a_file_that_holds_no_column_of_the_schema_any_more_keeps_its_number_of_rows(tmp_path: Path) -> None:
    old = NestedField(1, "old", LongType())
    schema = Schema(NestedField(2, "new", StringType()))
    file = data_file(tmp_path, [col("old", pa.int64(), 1)], {"old": [1, 2, 3]})
    keys = equality_deletes(tmp_path, [1], [col("old", pa.int64(), 1)], {"old": [2]})

    output = run(task(context(tmp_path, schema, dropped=[old]), [file], [keys]))

    assert rows_of(output) == [{"new": None}, {"new": None}]


def test_a_key_column_that_no_file_holds_matches_null_in_every_row(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "new", StringType()))
    file = data_file(tmp_path, [col("n", pa.int64(), 1)], {"n": [1, 2, 3]})
    keys = equality_deletes(tmp_path, [2], [col("new", pa.string(), 2)], {"new": [None]})

    assert run(task(context(tmp_path, schema), [file], [keys])).rows_deleted == 3
