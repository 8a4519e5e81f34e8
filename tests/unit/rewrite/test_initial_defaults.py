"""Initial defaults: the values of columns that a file was written without."""

import json
import struct
import uuid
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from amoro_core.model.rewrite import CopyRule
from amoro_optimizer.rewrite.digesting import digest_rows

from .builders import access_to, col, context, data_file, equality_deletes, rows_of, run, task

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
N = NestedField(1, "n", LongType())
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
    schema = Schema(N, with_default(kind, default, required=required))
    file = data_file(tmp_path, COLUMNS, {"n": [1, 2]})

    output = run(task(context(tmp_path, schema), [file]))

    assert repr(rows_of(output)) == repr([{"n": 1, "c": default}, {"n": 2, "c": default}])
    assert output.data_files[0].metrics.null_value_counts == {1: 0, 2: 0}


def test_a_file_that_has_the_column_keeps_its_nulls(tmp_path: Path) -> None:
    schema = Schema(N, with_default(LongType(), 9))
    file = data_file(tmp_path, [*COLUMNS, col("c", pa.int64(), 2)], {"n": [1, 2], "c": [None, 3]})
    assert rows_of(run(task(context(tmp_path, schema), [file]))) == [{"n": 1, "c": None}, {"n": 2, "c": 3}]


def test_a_write_default_is_no_value_of_rows(tmp_path: Path) -> None:
    schema = Schema(N, NestedField(2, "c", LongType(), write_default=9))
    file = data_file(tmp_path, COLUMNS, {"n": [1]})
    assert rows_of(run(task(context(tmp_path, schema), [file]))) == [{"n": 1, "c": None}]


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
    schema = Schema(N) if dropped else Schema(N, field)

    output = run(task(context(tmp_path, schema, dropped=[field] if dropped else ()), [file, newer], [keys]))

    assert [row["n"] for row in rows_of(output)] == ([2, 4] if is_nested else [4])


def test_a_delete_of_null_does_not_apply_to_rows_with_the_default(tmp_path: Path) -> None:
    schema = Schema(N, with_default(LongType(), 0))
    keys = equality_deletes(tmp_path, [2], [col("c", pa.int64(), 2)], {"c": [None]})
    output = run(task(context(tmp_path, schema), [data_file(tmp_path, COLUMNS, {"n": [1]})], [keys]))
    assert rows_of(output) == [{"n": 1, "c": 0}]


@pytest.mark.parametrize("value", [7, None])
def test_the_partition_s_value_comes_before_the_default(tmp_path: Path, value: int | None) -> None:
    schema = Schema(N, with_default(LongType(), 9))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c"))
    partition = (None if value is None else struct.pack("<q", value),)
    file = data_file(tmp_path, COLUMNS, {"n": [1, 2]}, partition=partition)
    keys = replace(
        equality_deletes(tmp_path, [1, 2], [*COLUMNS, col("c", pa.int64(), 2)], {"n": [1, 2], "c": [9, value]}),
        partition=partition,
    )
    output = run(task(context(tmp_path, schema, spec=spec), [file], [keys]))
    assert rows_of(output) == [{"n": 1, "c": value}]


def test_the_name_mapping_comes_before_the_default(tmp_path: Path) -> None:
    schema = Schema(N, with_default(LongType(), 9), with_default(LongType(), 8, field_id=3, name="d"))
    mapping = json.dumps([{"field-id": 1, "names": ["n"]}, {"field-id": 2, "names": ["old"]}])
    file = data_file(tmp_path, [], pa.table({"n": [1, 2], "old": [None, 5]}))
    output = run(task(context(tmp_path, schema, name_mapping=mapping), [file]))
    assert rows_of(output) == [{"n": 1, "c": None, "d": 8}, {"n": 2, "c": 5, "d": 8}]


def test_files_without_the_column_are_decoded_and_others_copied(tmp_path: Path) -> None:
    schema = Schema(N, with_default(LongType(), 9))
    first = run(task(context(tmp_path, schema), [data_file(tmp_path, COLUMNS, {"n": [1]})])).data_files[0]
    old = data_file(tmp_path, COLUMNS, {"n": [2]})
    work = replace(
        task(context(tmp_path, schema), [first, old]), copy=CopyRule(min_row_group_bytes=1, max_row_groups=9)
    )

    output = run(work)

    assert rows_of(output) == [{"n": 1, "c": 9}, {"n": 2, "c": 9}]
    assert output.files_copied == 1
    assert output.encoded_because == "it has 1 columns, levels within them included, instead of 2"


MAKERS = st.sampled_from([(kind, default) for kind, default in DEFAULTS if not isinstance(kind, DoubleType)])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, list[tuple[tuple[int, ...], list[dict[str, Any]]]]]:
    """A schema with defaults, and files with some of its columns each: which, and the rows' own values."""
    kinds = draw(st.lists(st.tuples(MAKERS, st.booleans(), st.booleans()), min_size=1, max_size=5))
    fields = []
    for at, ((kind, default), has_default, is_nested) in enumerate(kinds):
        field = NestedField(10 + at, f"c{at}", kind, initial_default=default if has_default else None)
        fields.append(NestedField(30 + at, f"s{at}", StructType(field)) if is_nested else field)
    values = {10 + at: [default, None] for at, ((_, default), _, _) in enumerate(kinds)}
    files = []
    for _ in range(draw(st.integers(1, 3))):
        held = tuple(sorted(draw(st.sets(st.sampled_from(sorted(values))))))
        count = draw(st.integers(1, 4))
        rows = [{f"v{one}": draw(st.sampled_from(values[one])) for one in held} for _ in range(count)]
        files.append((held, rows))
    return Schema(N, *fields), files


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(made=tables())
def test_random_schemas_with_defaults(tmp_path: Path, made: tuple[Schema, list[Any]]) -> None:
    """Outputs hold what the schema says of each row, and their digest is that of the inputs."""
    schema, contents = made
    files, expected, number = [], [], 0
    for held, rows in contents:
        records = []
        for row in rows:
            records.append({"n": number, **row})
            expected.append({"n": number, **_as_told(schema, held, row)})
            number += 1
        files.append(_written(tmp_path, schema, held, records))
    work = task(context(tmp_path, schema), files)

    output = run(work)

    assert rows_of(output) == expected
    read = {"memory_limit_bytes": 512 << 20, "is_cancelled": lambda: False}
    before = digest_rows(work, access_to(tmp_path), **read)
    after = digest_rows(task(work.table, list(output.data_files)), access_to(tmp_path), **read)
    assert (before.rows, before) == (number, after)


def _as_told(schema: Schema, held: tuple[int, ...], row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in schema.fields[1:]:
        leaf = field.field_type.fields[0] if isinstance(field.field_type, StructType) else field
        is_there = leaf.field_id in held
        value = row[f"v{leaf.field_id}"] if is_there else leaf.initial_default
        if leaf is not field:
            found[field.name] = {leaf.name: value} if is_there else None
        else:
            found[field.name] = value
    return found


def _written(root: Path, schema: Schema, held: tuple[int, ...], records: list[dict[str, Any]]) -> Any:
    columns, values = [*COLUMNS], {"n": [record["n"] for record in records]}
    for field in schema.fields[1:]:
        leaf = field.field_type.fields[0] if isinstance(field.field_type, StructType) else field
        if leaf.field_id not in held:
            continue
        own = [record[f"v{leaf.field_id}"] for record in records]
        if isinstance(leaf.field_type, UUIDType):
            own = [None if one is None else one.bytes for one in own]
        arrow = col(leaf.name, _arrow(leaf.field_type), leaf.field_id)
        if leaf is not field:
            arrow, own = col(field.name, pa.struct([arrow]), field.field_id), [{leaf.name: one} for one in own]
        columns.append(arrow)
        values[arrow.name] = own
    return data_file(root, columns, values)


def _arrow(kind: IcebergType) -> pa.DataType:
    match kind:
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case FixedType():
            return pa.binary(len(kind))
    return {
        BooleanType: pa.bool_(), IntegerType: pa.int32(), LongType: pa.int64(), FloatType: pa.float32(),
        DateType: pa.date32(), TimeType: pa.time64("us"), TimestampType: pa.timestamp("us"),
        TimestamptzType: pa.timestamp("us", "UTC"), StringType: pa.string(), BinaryType: pa.binary(),
        UUIDType: pa.binary(16),
    }[type(kind)]  # fmt: skip


def test_the_written_columns_are_those_of_the_schema(tmp_path: Path) -> None:
    schema = Schema(N, with_default(LongType(), 9, required=True))
    output = run(task(context(tmp_path, schema), [data_file(tmp_path, COLUMNS, {"n": [1]})]))
    assert pq.read_schema(output.data_files[0].path).field("c").nullable is False
