"""Lists of tables: in every order, with every filter, page by page, as the runtimes say."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Window
from amoro_core.model.tables import (
    FileSummary,
    OptimizingStatus,
    OptimizingType,
    Order,
    Saving,
    TableFilter,
    TableIdentifier,
    TableKey,
    TableOrder,
    TableRuntime,
    TableState,
)
from amoro_core.store import table_listing, tables
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from tests.services.rigs import Limits
from tests.store.builders import NOW, minutes, query_plan, runtime, services
from tests.tiers import sample

#: Between two pages; a list of at least ten pages meets 1,000 of them.
CHANGES = 100
_LATE = datetime.max.replace(tzinfo=NOW.tzinfo)
_EARLY = datetime.min.replace(tzinfo=NOW.tzinfo)


def _name(one: TableRuntime) -> object:
    namespace = str(list(one.identifier.namespace)).replace("'", '"')
    return one.identifier.catalog, namespace, one.identifier.name


#: What each list is ordered by, from the runtime alone.
KEYS: dict[TableKey, Callable[[TableRuntime], object]] = {
    TableKey.NAME: _name,
    TableKey.STATUS: lambda one: one.status.value,
    TableKey.HEALTH: lambda one: 101 if one.summary.health_score < 0 else one.summary.health_score,
    TableKey.FILES: lambda one: one.summary.data_files,
    TableKey.SMALL_FILES: lambda one: one.summary.fragment_files + one.summary.undersized_files,
    TableKey.DELETES: lambda one: one.summary.equality_delete_files + one.summary.position_delete_files,
    TableKey.SIZE: lambda one: one.summary.data_bytes,
    TableKey.LAST_OPTIMIZED: lambda one: one.last_optimized_at or _EARLY,
    TableKey.NEXT_DUE: lambda one: one.next_due_at or _LATE,
    TableKey.GROUP: lambda one: one.group,
    TableKey.SAVING: lambda one: -one.saving.files,  # of those that save as much the first that was found leads
}
FILTERS: dict[str, tuple[TableFilter, Callable[[TableRuntime], bool]]] = {
    "all": (TableFilter(), lambda one: True),
    "catalog": (TableFilter(catalog="dog"), lambda one: one.identifier.catalog == "dog"),
    "namespace": (TableFilter(namespace=("a.b", "c")), lambda one: one.identifier.namespace == ("a.b", "c")),
    "text": (TableFilter(text="ÄRGER_1"), lambda one: "ärger_1" in one.identifier.name.lower()),
    "text of parts": (TableFilter(text="`a.b`.c"), lambda one: one.identifier.namespace == ("a.b", "c")),
    "status": (TableFilter(status=OptimizingStatus.PENDING), lambda one: one.status is OptimizingStatus.PENDING),
    "state": (TableFilter(state=TableState.FAILING), lambda one: one.state is TableState.FAILING),
    "group": (TableFilter(group="b"), lambda one: one.group == "b"),
    "enabled": (TableFilter(enabled=True), lambda one: one.enabled),
    "not enabled": (TableFilter(enabled=False), lambda one: not one.enabled),
    "refusal": (TableFilter(refusal="format"), lambda one: one.refusal == "format"),
    "health": (TableFilter(health_below=40), lambda one: 0 <= one.summary.health_score < 40),
    "health of all": (TableFilter(health_below=1000), lambda one: one.summary.health_score >= 0),
    "several": (
        TableFilter(group="b", enabled=True, health_below=90),
        lambda one: one.group == "b" and one.enabled and 0 <= one.summary.health_score < 90,
    ),
}


def _figures(chance: random.Random) -> dict[str, object]:
    refused = chance.random() < 0.2
    status = OptimizingStatus.REFUSED if refused else chance.choice(list(OptimizingStatus)[:7])
    return {
        "status": status,
        "refusal": chance.choice(["format", "encryption"]) if refused else "",
        "group": chance.choice(["a", "b", "c"]),
        "enabled": chance.random() < 0.5,
        "summary": FileSummary(*(chance.randrange(5) for _ in range(9)), health_score=chance.randrange(-1, 101)),
        "saving": Saving(chance.randrange(5)),
        "failures": chance.choice([0, 0, 1]),
        "pending_type": chance.choice([None, OptimizingType.MINOR]),
        "evaluated_at": chance.choice([None, NOW]),
        "last_optimized_at": chance.choice([None, minutes(chance.randrange(9))]),
        "next_due_at": chance.choice([None, minutes(chance.randrange(9))]),
    }


def _table(chance: random.Random, number: int) -> TableRuntime:
    namespace = chance.choice([("db",), ("a.b", "c"), ("DB",)])
    name = TableIdentifier(chance.choice(["cat", "dog"]), namespace, f"Ärger_{number}")
    return runtime(identifier=name, uuid=f"uuid-{number}", **_figures(chance))


@pytest.fixture
def chance() -> random.Random:
    return random.Random(20260102)


@pytest.fixture
def known(store: Store, chance: random.Random) -> list[TableRuntime]:
    """Tables that were added, and then saved with other figures."""

    def fill(db: Connection) -> list[TableRuntime]:
        added = [tables.add(db, _table(chance, number)) for number in range(60)]
        return [tables.save(db, replace(one, **_figures(chance))) for one in added]

    return store.write(fill)


def _all_pages(service: Any, wanted: TableFilter, order: TableOrder, limit: int) -> tuple[list[TableRuntime], int]:
    found: list[TableRuntime] = []
    after = ""
    while True:
        page = service.tables(wanted, order, Window(limit, after))
        assert len(page.items) <= limit
        found += page.items
        if not page.next:
            return found, page.total
        after = page.next


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("most", [1, 10_000])
def test_pages_hold_the_wanted_tables_in_every_order(
    store: Store, known: list[TableRuntime], name: str, most: int, limits: Limits
) -> None:
    limits(exact_totals=most)  # both ways of searching: few of many, and many
    service = services(store).overview
    wanted, admits = FILTERS[name]
    meant = [one for one in known if admits(one)]
    assert meant
    for key, by in KEYS.items():
        for order in Order:
            found, total = _all_pages(service, wanted, TableOrder(key, order), 7)
            is_reversed = (order is Order.DESC) != (key is TableKey.SAVING)
            expected = sorted(meant, key=lambda one, by=by: (by(one), one.table_id), reverse=is_reversed)
            assert found == expected, (key, order)
            assert total == min(len(meant), most)


def test_totals_are_exact_up_to_the_limit(store: Store, limits: Limits) -> None:
    service = services(store).overview

    def totals(wanted: TableFilter) -> tuple[int, bool]:
        page = service.tables(wanted, window=Window(1))
        return page.total, page.total_is_exact

    limits(exact_totals=3)
    for number, expected in enumerate([(0, True), (1, True), (2, True), (3, True), (3, False)]):
        assert totals(TableFilter()) == totals(TableFilter(group="default")) == expected
        store.write(lambda db, number=number: tables.add(db, runtime(f"t{number}")))


def test_saving_a_runtime_whose_figures_stay_writes_no_listing(store: Store, known: list[TableRuntime]) -> None:
    def writes(db: Connection, one: TableRuntime) -> int:
        before = db.raw.total_changes
        table_listing.save(db, one)
        return db.raw.total_changes - before

    assert store.write(lambda db: writes(db, replace(known[0], refreshed_at=minutes(99)))) == 0
    assert store.write(lambda db: writes(db, replace(known[0], group="other"))) == 1


def test_names_are_listed_in_order_with_their_ids(store: Store, known: list[TableRuntime]) -> None:
    expected = [(one.table_id, one.identifier) for one in sorted(known, key=_name)]
    assert store.read(table_listing.list_names) == expected
    dogs = [pair for pair in expected if pair[1].catalog == "dog"]
    assert store.read(lambda db: table_listing.list_names(db, "dog")) == dogs


@pytest.mark.parametrize("key", sample(list(TableKey), every=4))
def test_changes_between_pages_neither_repeat_nor_hide_other_tables(
    store: Store, known: list[TableRuntime], chance: random.Random, key: TableKey
) -> None:
    """Tables are added, removed and changed between pages; those that stay as they are come once each, in order."""
    service, order = services(store).overview, TableOrder(key, Order.DESC)
    still = {one.table_id for one in known if one.table_id % 2}
    moving = {one.table_id: one for one in known if not one.table_id % 2}
    seen: list[int] = []
    made, after = 1000, ""
    while True:
        page = service.tables(TableFilter(), order, Window(3, after))
        seen += [one.table_id for one in page.items]
        if not page.next or len(seen) > 1000:
            break
        after = page.next
        made += CHANGES
        store.write(lambda db, made=made: _change(db, chance, moving, range(made, made + CHANGES)))
    assert not [one for one in still if seen.count(one) != 1]
    assert 30 <= len(seen) < 1000


def _change(db: Connection, chance: random.Random, moving: dict[int, TableRuntime], numbers: range) -> None:
    for number in numbers:
        match chance.randrange(3):
            case 0 if len(moving) < 40:
                added = tables.add(db, _table(chance, number))
                moving[added.table_id] = added
            case 1 if len(moving) > 20:
                gone = moving.pop(chance.choice(sorted(moving)))
                tables.remove(db, gone.table_id)
            case _:
                table_id = chance.choice(sorted(moving))
                moving[table_id] = tables.save(db, replace(moving[table_id], **_figures(chance)))


def test_a_cursor_of_another_list_is_refused(store: Store, known: list[TableRuntime]) -> None:
    service = services(store).overview
    cursor = service.tables(TableFilter(), TableOrder(TableKey.HEALTH), Window(1)).next
    others = [
        (TableFilter(group="a"), TableOrder(TableKey.HEALTH)),
        (TableFilter(), TableOrder(TableKey.FILES)),
        (TableFilter(), TableOrder(TableKey.HEALTH, Order.DESC)),
    ]
    for wanted, order in others:
        with pytest.raises(InvalidArgument, match="other filters or another order"):
            service.tables(wanted, order, Window(1, cursor))
    assert service.tables(TableFilter(), TableOrder(TableKey.HEALTH), Window(5, cursor)).items


@pytest.mark.parametrize("broken", ["x", "a b", "é", "AAAA", "A" * 40, "~" * 9])
def test_a_broken_cursor_is_refused(store: Store, known: list[TableRuntime], broken: str) -> None:
    service, order = services(store).overview, TableOrder(TableKey.HEALTH)
    cursor = service.tables(TableFilter(), order, Window(1)).next
    for text in (
        broken,
        cursor[:-3],
        f"{cursor}{broken}",
        cursor[:9] + ("A" if cursor[9] != "A" else "B") + cursor[10:],
    ):
        with pytest.raises(InvalidArgument, match="is not a cursor"):
            service.tables(TableFilter(), order, Window(1, text))


def test_the_list_by_name_begins_after_any_name(store: Store, known: list[TableRuntime]) -> None:
    service, ordered = services(store).overview, sorted(known, key=_name)
    third = ordered[2].identifier
    assert list(service.tables(TableFilter(), window=Window(2, str(third))).items) == ordered[3:5]
    unknown = str(replace(third, name=f"{third.name}0"))
    assert service.tables(TableFilter(), window=Window(1, unknown)).items != ()
    with pytest.raises(InvalidArgument):
        service.tables(TableFilter(), TableOrder(TableKey.SIZE), Window(1, str(third)))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("key", TableKey)
def test_a_page_of_many_tables_follows_the_index_of_its_order(
    store: Store, known: list[TableRuntime], key: TableKey, order: Order
) -> None:
    first = table_listing.list_places
    wanted, by = TableFilter(group="a", status=OptimizingStatus.IDLE, catalog="cat"), TableOrder(key, order)
    (place,) = store.read(lambda db: first(db, TableFilter(), by, None, 1))
    for meant, after in ((TableFilter(), None), (TableFilter(), place.values), (wanted, place.values)):
        steps = query_plan(store, lambda db, meant=meant, after=after: first(db, meant, by, after, 50))
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
        assert "table_listing_by_" in steps[0]


def test_the_tables_of_a_catalog_are_found_and_counted_by_their_names(
    store: Store, known: list[TableRuntime], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = TableFilter(catalog="cat")
    list_some, count = table_listing.list_places, table_listing.count
    (place,) = store.read(lambda db: list_some(db, wanted, TableOrder(), None, 1))
    for ask in (
        lambda db: list_some(db, wanted, TableOrder(), None, 1),
        lambda db: list_some(db, wanted, TableOrder(), place.values, 1),
        lambda db: count(db, wanted, 10),
    ):
        steps = query_plan(store, ask)
        assert [step for step in steps if "catalog_name=?" in step or "(catalog_name,namespace_json" in step], steps
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
    with monkeypatch.context() as patched:
        patched.setattr(table_listing, "list_ids", lambda *arguments: pytest.fail("every table of it was read"))
        services(store).overview.tables(wanted)
