"""Equality deletes that Java passes over; tests/spark/test_matching.py holds the same function against Java itself."""

import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StructType, UUIDType

from amoro_core.iceberg.table_support import disputed_deletes
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, FileFormat, ScannedFile
from tests.engine.writer import make_catalog, make_table

SCHEMA = Schema(
    NestedField(1, "uid", UUIDType(), required=False),
    NestedField(2, "number", LongType(), required=False),
    NestedField(3, "box", StructType(NestedField(4, "inner", LongType(), required=True)), required=False),
)
LOW, MIDDLE, HIGH, TOP = ("00" + "0" * 30, "7f" + "0" * 30, "80" + "0" * 30, "f0" + "0" * 30)
#: Equal first halves, second halves on both sides.
LEFT, RIGHT = ("00" * 8 + "7f" + "0" * 14, "00" * 8 + "80" + "0" * 14)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    catalog = make_catalog(tmp_path_factory.mktemp("lake"))
    made = make_table(catalog, "db.t", SCHEMA)
    assert made.schema().find_field("box.inner").field_id == 4
    yield made
    catalog.close()


def uuids(low: str, high: str, nulls: int | None = 0) -> ColumnMetrics:
    counts = {} if nulls is None else {1: nulls}
    return ColumnMetrics(
        value_counts={1: 10},
        null_value_counts=counts,
        lower_bounds={1: uuid.UUID(low).bytes},
        upper_bounds={1: uuid.UUID(high).bytes},
    )


def numbers(field_id: int, low: int, high: int, nulls: int = 0) -> ColumnMetrics:
    bounds = [{field_id: one.to_bytes(8, "little", signed=True)} for one in (low, high)]
    return ColumnMetrics(
        value_counts={field_id: 10}, null_value_counts={field_id: nulls}, lower_bounds=bounds[0], upper_bounds=bounds[1]
    )


def both(one: ColumnMetrics, other: ColumnMetrics) -> ColumnMetrics:
    return ColumnMetrics(
        value_counts={**one.value_counts, **other.value_counts},
        null_value_counts={**one.null_value_counts, **other.null_value_counts},
        lower_bounds={**one.lower_bounds, **other.lower_bounds},
        upper_bounds={**one.upper_bounds, **other.upper_bounds},
    )


SOME = uuids(LOW, TOP)


@pytest.mark.parametrize(
    ("ids", "held", "deleted", "expected"),
    [
        # By UUID: where bounds with a sign are the wrong way round
        ((1,), SOME, SOME, True),  # both on both sides
        ((1,), uuids(LOW, MIDDLE), SOME, True),
        ((1,), uuids(HIGH, TOP), SOME, True),
        ((1,), SOME, uuids(MIDDLE, MIDDLE), True),
        ((1,), uuids(LEFT, RIGHT), uuids(LEFT, RIGHT), True),
        ((1,), uuids(LOW, MIDDLE), uuids(LOW, MIDDLE), False),  # one side: the order is the same
        ((1,), uuids(HIGH, TOP), uuids(TOP, TOP), False),
        ((1,), uuids(LOW, LOW), uuids(MIDDLE, TOP), False),  # no value in common: nothing is deleted, whoever reads
        ((1,), uuids(MIDDLE, MIDDLE), uuids(LOW, LOW), False),
        # Without bounds nobody passes over a delete; with nulls on both sides everybody applies it
        ((1,), ColumnMetrics(), SOME, False),
        ((1,), SOME, ColumnMetrics(lower_bounds={1: uuid.UUID(LOW).bytes}), False),
        ((1,), uuids(LOW, TOP, 1), uuids(LOW, TOP, 1), False),
        ((1,), uuids(LOW, TOP, None), uuids(LOW, TOP, 2), False),
        ((1,), SOME, uuids(LOW, TOP, 1), True),
        # Another key that cannot match ends the dispute
        ((1, 2), both(SOME, numbers(2, 0, 9)), both(SOME, numbers(2, 5, 6)), True),
        ((1, 2), both(SOME, numbers(2, 0, 9)), both(SOME, numbers(2, -9, -1)), False),
        # A required column may be null with the struct around it
        ((4,), numbers(4, 0, 9, 3), numbers(4, 20, 30, 1), True),
        ((4,), numbers(4, 0, 9, 10), numbers(4, 20, 30, 10), True),
        ((4,), numbers(4, 0, 9, 3), numbers(4, 5, 6, 1), False),  # Java applies it for other reasons
        ((4,), numbers(4, 0, 9), numbers(4, 20, 30, 1), False),
        # By other columns
        ((2,), numbers(2, 0, 9), numbers(2, -5, 5), False),
        ((99,), numbers(2, 0, 9), numbers(2, -5, 5), False),
    ],
)
def test_deletes_that_java_passes_over_by_bounds_are_disputed(
    table: Table, ids: tuple[int, ...], held: ColumnMetrics, deleted: ColumnMetrics, expected: bool
) -> None:
    data = DataFile("d", FileFormat.PARQUET, 0, (), 10, 1, 1, held)
    delete = DeleteFile("e", DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), 10, 1, 2, ids, metrics=deleted)
    position = DeleteFile("p", DeleteKind.POSITION, FileFormat.PARQUET, 0, (), 10, 1, 2)
    found = disputed_deletes(table.metadata, [ScannedFile(data, (delete, position)), ScannedFile(data)])
    assert found == ({delete.identity} if expected else frozenset())
