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


def is_disputed(table: Table, ids: tuple[int, ...], held: ColumnMetrics, deleted: ColumnMetrics) -> bool:
    data = DataFile("d", FileFormat.PARQUET, 0, (), 10, 1, 1, held)
    delete = DeleteFile("e", DeleteKind.EQUALITY, FileFormat.PARQUET, 0, (), 10, 1, 2, ids, metrics=deleted)
    position = DeleteFile("p", DeleteKind.POSITION, FileFormat.PARQUET, 0, (), 10, 1, 2)
    found = disputed_deletes(table.metadata, [ScannedFile(data, (delete, position)), ScannedFile(data)])
    assert found in (frozenset(), {delete.identity})
    return bool(found)


@pytest.mark.parametrize(
    ("held", "deleted", "expected"),
    [
        ((LOW, TOP), (LOW, TOP), True),  # both on both sides
        ((LOW, MIDDLE), (LOW, TOP), True),
        ((HIGH, TOP), (LOW, TOP), True),
        ((LOW, TOP), (MIDDLE, MIDDLE), True),
        ((LEFT, RIGHT), (LEFT, RIGHT), True),
        ((LOW, MIDDLE), (LOW, MIDDLE), False),  # one side: the order is the same
        ((HIGH, TOP), (TOP, TOP), False),
        ((LOW, LOW), (MIDDLE, TOP), False),  # no value in common: nothing is deleted, whoever reads
        ((MIDDLE, MIDDLE), (LOW, LOW), False),
    ],
)
def test_a_delete_by_uuid_is_disputed_when_bounds_with_sign_are_the_wrong_way_round(
    table: Table, held: tuple[str, str], deleted: tuple[str, str], expected: bool
) -> None:
    assert is_disputed(table, (1,), uuids(*held), uuids(*deleted)) is expected


def test_without_bounds_nobody_passes_over_a_delete(table: Table) -> None:
    assert not is_disputed(table, (1,), ColumnMetrics(), uuids(LOW, TOP))
    assert not is_disputed(table, (1,), uuids(LOW, TOP), ColumnMetrics(lower_bounds={1: uuid.UUID(LOW).bytes}))


@pytest.mark.parametrize(("of_data", "of_delete", "expected"), [(1, 1, False), (None, 2, False), (0, 1, True)])
def test_nulls_on_both_sides_make_everybody_apply_the_delete(
    table: Table, of_data: int | None, of_delete: int | None, expected: bool
) -> None:
    assert is_disputed(table, (1,), uuids(LOW, TOP, of_data), uuids(LOW, TOP, of_delete)) is expected


@pytest.mark.parametrize(("deleted", "expected"), [((5, 6), True), ((-9, -1), False)])
def test_another_key_that_cannot_match_ends_the_dispute(table: Table, deleted: tuple[int, int], expected: bool) -> None:
    held, wanted = both(uuids(LOW, TOP), numbers(2, 0, 9)), both(uuids(LOW, TOP), numbers(2, *deleted))
    assert is_disputed(table, (1, 2), held, wanted) is expected


@pytest.mark.parametrize(
    ("of_data", "of_delete", "deleted", "expected"),
    [
        (3, 1, (20, 30), True),  # null meets null, by the struct
        (10, 10, (20, 30), True),
        (3, 1, (5, 6), False),  # Java applies it for other reasons
        (0, 1, (20, 30), False),
    ],
)
def test_a_required_column_may_be_null_with_the_struct_around_it(
    table: Table, of_data: int, of_delete: int, deleted: tuple[int, int], expected: bool
) -> None:
    assert is_disputed(table, (4,), numbers(4, 0, 9, of_data), numbers(4, *deleted, of_delete)) is expected


def test_deletes_by_other_columns_are_not_disputed(table: Table) -> None:
    assert not is_disputed(table, (2,), numbers(2, 0, 9), numbers(2, -5, 5))
    assert not is_disputed(table, (99,), numbers(2, 0, 9), numbers(2, -5, 5))
