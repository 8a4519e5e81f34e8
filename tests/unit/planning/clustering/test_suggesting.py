"""Columns that are suggested where nobody told how a table is read."""

from __future__ import annotations

from amoro_core.model.clustering import LayoutKey
from amoro_core.model.sorting import Column, SortOrder
from amoro_core.planning.clustering.suggesting import Suggested, Suggestion, suggest
from tests.unit.planning.builders import equality_delete
from tests.unit.planning.clustering.test_planning import rng
from tests.unit.planning.clustering.world import COLUMNS, TARGET, Table, config, of_size, sorting, whole


def table() -> Table:
    found = Table(config())
    points = whole(rng(), 4, 3)
    for at, one in enumerate(points):
        one[:, 2] = at  # c is in order
    found.append(of_size(points, TARGET))
    return found


def names(found: Suggested) -> list[str]:
    return [one.column for one in found.columns]


def test_what_the_table_says_of_its_rows_comes_before_what_lies_deep() -> None:
    some = table()
    some.deletes = [equality_delete("e")]
    order = SortOrder(1, (LayoutKey(4),))
    known = sorting(identifiers=(5,), orders=(order,), default_order_id=1)
    found = suggest(some.facts(sorting=known), filtered={"f"})
    assert found.columns == (
        Suggestion("e", "it is an identifier field"),
        Suggestion("a", "equality deletes go by it", 4.0),
        Suggestion("d", "the table's sort order names it"),
        Suggestion("f", "self-optimizing.filter names it"),
        Suggestion("b", "it lies deep", 4.0),
    )
    assert found.files == 4
    assert found.auto.choice is None


def test_deep_columns_with_many_values_come_first() -> None:
    assert names(suggest(table().facts(), distinct={1: 10, 2: 2000})) == ["b", "a"]
    assert names(suggest(table().facts(), distinct={1: 10, 2: 5})) == ["a", "b"]
    assert suggest(table().facts(), distinct={1: 10, 2: 2000}).columns[0].reason == (
        "it lies deep and has about 2,000 values"
    )


def test_several_reasons_are_told_of_one_column() -> None:
    found = suggest(table().facts(sorting=sorting(identifiers=(1,))), filtered={"a"})
    assert found.columns[0] == Suggestion("a", "it is an identifier field; self-optimizing.filter names it", 4.0)


def test_columns_that_nothing_can_be_ordered_by_are_not_suggested() -> None:
    columns = (Column(1, "a", "list", "is a list"), *COLUMNS[1:])
    known = sorting(columns=columns, identifiers=(1, 2), partitioned_by=frozenset({2}))
    assert names(suggest(table().facts(sorting=known))) == []


def test_a_table_without_files_has_what_its_schema_says() -> None:
    found = suggest(Table(config()).facts(sorting=sorting(identifiers=(1,))))
    assert (names(found), found.files) == (["a"], 0)
