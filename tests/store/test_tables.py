"""Tables, scans of them, and files that are condemned."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoro_core.errors import (
    AlreadyExists,
    CatalogNotFound,
    GroupNotFound,
    IllegalState,
    InvalidArgument,
    TableBusy,
    TableNotFound,
    UnknownToken,
)
from amoro_core.maintenance.trash import Trash
from amoro_core.model.clustering import Strategy
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.paging import Window
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.model.tables import (
    FileSummary,
    LastOptimized,
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
from amoro_core.store import catalogs, groups, pending_deletions, processes, table_listing, table_stats, tables
from amoro_core.store.connection import from_ms, to_ms
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import MOST_IN_A_BATCH, Batch, BatchStatus, batches_of
from amoro_core.transactions.file_holds import needed_text, split_batch, unmark_needed
from tests.services.rigs import Limits
from tests.store.builders import (
    NOW,
    add_stages,
    catalog,
    full_runtime,
    minutes,
    optimizer,
    process,
    query_plan,
    runtime,
    services,
)
from tests.tiers import sample

# Locations


def test_a_path_belongs_to_the_table_with_the_longest_location_above_it(store: Store) -> None:
    places = {
        "wide": "s3a://lake/wh",
        "t": "s3://lake/wh/db/t/",
        "deep": "s3n://lake/wh/db/t/in",
        "second": "s3://lake/wh/db/t",
        "local": "file:///wh/db/local",
        "never": "",
    }
    for name, location in places.items():
        store.write(lambda db, name=name, location=location: tables.add(db, runtime(name, location=location)))
    expected = {
        "s3://lake/wh/db/t/metadata/1.metadata.json": "t",  # known before the second one
        "s3://lake/wh/db/t/in/metadata/1.metadata.json": "deep",
        "s3://lake/wh/db/t2/metadata/1.metadata.json": "wide",  # not t: at a boundary of segments only
        "/wh/db/local/metadata/1.metadata.json": "local",
    }
    others = ["s3://other/wh/db/t/metadata/1.metadata.json", "/wh/db/locally/metadata/x", "s3://lake", ""]
    found = store.read(lambda db: tables.list_by_paths(db, [*expected, *others]))
    assert {path: table.name for path, table in found.items()} == expected


# Catalogs


def test_a_catalog_of_a_name_is_added_once_replaced_and_removed(store: Store) -> None:
    with pytest.raises(CatalogNotFound):
        store.write(lambda db: catalogs.save(db, catalog()))
    store.write(lambda db: catalogs.add(db, catalog()))
    assert store.read(lambda db: catalogs.find(db, "cat")) == catalog()
    assert store.read(lambda db: catalogs.find(db, "Cat")) is None
    with pytest.raises(AlreadyExists, match="'cat'"):
        store.write(lambda db: catalogs.add(db, catalog(origin="pyiceberg")))
    changed = catalog(properties=(("z", "1"), ("a", "2")), allowed_locations=())
    assert store.write(lambda db: catalogs.save(db, changed)) == changed
    assert store.read(catalogs.list_catalogs) == [changed]
    store.write(lambda db: catalogs.remove(db, "cat"))
    assert store.read(catalogs.list_catalogs) == []
    with pytest.raises(CatalogNotFound):
        store.write(lambda db: catalogs.remove(db, "cat"))


# Tables


@pytest.mark.parametrize("made", [runtime(), full_runtime()], ids=["new", "full"])
@pytest.mark.parametrize("override", [None, True, False])
def test_table_is_read_as_it_was_added_and_saved_whole(store: Store, made: TableRuntime, override: bool | None) -> None:
    added = store.write(lambda db: tables.add(db, replace(made, identifier=full_runtime().identifier)))
    assert added == replace(made, identifier=added.identifier, table_id=added.table_id)
    assert added.table_id > 0
    assert store.read(lambda db: tables.find(db, added.identifier)) == added
    changed = replace(full_runtime(), table_id=added.table_id, enabled_override=override)
    assert store.write(lambda db: tables.save(db, changed)) == changed
    assert store.read(lambda db: tables.get(db, added.table_id)) == changed


def test_table_is_known_once_by_its_whole_name(store: Store) -> None:
    store.write(lambda db: tables.add(db, runtime()))
    with pytest.raises(AlreadyExists, match=r"cat\.db\.t"):
        store.write(lambda db: tables.add(db, runtime()))
    others = [("cat", ("db",), "u"), ("cat", ("db", "t"), "t"), ("dog", ("db",), "t"), ("cat", ("d", "b"), "t")]
    for name in others:
        store.write(partial(tables.add, runtime=runtime(identifier=TableIdentifier(*name))))
    assert len(store.read(tables.list_tables)) == 5
    assert store.read(lambda db: tables.find(db, TableIdentifier("cat", ("d.b",), "t"))) is None


def test_tables_are_listed_by_name_of_one_catalog_or_in_one_status_and_the_first_of_a_uuid_is_found(
    store: Store,
) -> None:
    found = [("cat", ("db",), "b"), ("cat", ("db",), "a"), ("ant", ("z",), "c")]
    made = [
        store.write(partial(tables.add, runtime=runtime(identifier=TableIdentifier(*one), uuid=uuid)))
        for one, uuid in zip(found, ("same", "same", "other"), strict=True)
    ]
    store.write(lambda db: tables.save(db, replace(made[2], status=OptimizingStatus.PENDING)))
    for wanted, expected in (
        ({}, ["ant.z.c", "cat.db.a", "cat.db.b"]),
        ({"catalog": "cat"}, ["cat.db.a", "cat.db.b"]),
        ({"status": OptimizingStatus.PENDING}, ["ant.z.c"]),
        ({"catalog": "cat", "status": OptimizingStatus.PENDING}, []),
    ):
        listed = store.read(lambda db, wanted=wanted: tables.list_tables(db, **wanted))
        assert [str(each.identifier) for each in listed] == expected
    assert store.read(lambda db: tables.first_of_uuid(db, "same")) == (made[0].table_id, made[0].identifier)
    assert store.read(lambda db: tables.first_of_uuid(db, "none")) is None


def test_table_is_removed_with_all_that_is_its_own_once_no_process_is_active_and_its_id_is_not_given_again(
    store: Store,
) -> None:
    table = store.write(lambda db: tables.add(db, runtime()))
    table_id, key = table.table_id, PartitionKey(0, ())
    store.write(lambda db: tables.record_partitions(db, table_id, [key], OptimizingType.FULL, NOW))
    made = store.write(lambda db: processes.add(db, process(table)))
    for status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING, ProcessStatus.COMMIT_UNKNOWN):
        store.write(lambda db, status=status: processes.save(db, replace(made, status=status)))
        with pytest.raises(TableBusy, match=status.value):
            store.write(lambda db: tables.remove(db, table_id))
        assert store.read(lambda db: tables.get(db, table_id)).table_id == table_id
    store.write(lambda db: processes.save(db, replace(made, status=ProcessStatus.FAILED, finished_at=NOW)))
    store.write(lambda db: tables.remove(db, table_id))
    assert store.read(tables.list_tables) == []
    assert store.read(processes.list_processes) == []
    assert store.read(lambda db: tables.partitions_last_optimized(db, table_id)) == {}
    assert store.write(lambda db: tables.add(db, runtime())).table_id > table_id
    for unknown in (tables.get, tables.remove):
        with pytest.raises(TableNotFound, match="77"):
            store.write(partial(unknown, table_id=77))
    with pytest.raises(TableNotFound):
        store.write(lambda db: tables.save(db, runtime(table_id=77)))


# Times


@given(st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2300, 1, 1), timezones=st.just(UTC)))
def test_times_are_kept_to_the_millisecond_as_moments(moment: datetime) -> None:
    assert from_ms(to_ms(moment)) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    assert to_ms(NOW.astimezone(timezone(timedelta(hours=5)))) == to_ms(NOW)
    with pytest.raises(ValueError, match="no time zone"):
        to_ms(datetime(2026, 1, 1))


# Partitions

_keys = st.builds(PartitionKey, st.integers(0, 3), st.lists(st.none() | st.binary(max_size=9), max_size=3).map(tuple))


def test_last_times_are_kept_by_type_and_partition(store: Store) -> None:
    first, second, other_spec = PartitionKey(0, (b"\x01",)), PartitionKey(0, (None,)), PartitionKey(1, (b"\x01",))

    def fill(db: Connection) -> int:
        table_id = tables.add(db, runtime()).table_id
        tables.record_partitions(db, table_id, [first, second], OptimizingType.MINOR, minutes(1))
        tables.record_partitions(db, table_id, [first], OptimizingType.MAJOR, minutes(2))
        tables.record_partitions(db, table_id, [first, other_spec], OptimizingType.FULL, minutes(3))
        tables.record_partitions(db, table_id, [first], OptimizingType.MINOR, minutes(4))
        return table_id

    table_id = store.write(fill)
    assert store.read(lambda db: tables.partitions_last_optimized(db, table_id)) == {
        first: LastOptimized(minor=minutes(4), major=minutes(2), full=minutes(3)),
        second: LastOptimized(minor=minutes(1)),
        other_spec: LastOptimized(full=minutes(3)),
    }


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.sets(_keys, max_size=8))
def test_partitions_never_run_into_each_other(store: Store, keys: set[PartitionKey]) -> None:
    def fill(db: Connection) -> int:
        table_id = tables.add(db, runtime(f"t{len(tables.list_tables(db))}")).table_id
        tables.record_partitions(db, table_id, keys, OptimizingType.FULL, NOW)
        return table_id

    table_id = store.write(fill)
    found = store.read(lambda db: tables.partitions_last_optimized(db, table_id))
    assert found == dict.fromkeys(keys, LastOptimized(full=NOW))


# Groups, optimizers, tokens


def test_an_optimizer_of_an_id_and_a_token_is_added_once_saved_and_removed(store: Store) -> None:
    made = optimizer(labels=(("b", "1"), ("a", "2")))
    with pytest.raises(GroupNotFound, match="'nowhere'"):
        store.write(lambda db: groups.add_optimizer(db, replace(made, group="nowhere")))
    store.write(lambda db: groups.add_optimizer(db, made))
    assert store.read(lambda db: groups.get_optimizer(db, "optimizer-1")) == made
    assert store.read(lambda db: groups.find_by_token_hash(db, "hash-of-optimizer-1")) == made
    assert store.read(lambda db: groups.find_by_token_hash(db, "another")) is None
    same_id = replace(optimizer("optimizer-9"), optimizer_id="optimizer-1")
    same_token = replace(optimizer(), optimizer_id="optimizer-9")
    for twin in (same_id, same_token):
        with pytest.raises(AlreadyExists, match="optimizer-1"):
            store.write(partial(groups.add_optimizer, optimizer=twin))
    changed = optimizer(threads=0, memory_bytes=1)
    assert store.write(lambda db: groups.save_optimizer(db, changed)) == changed
    assert store.read(lambda db: groups.get_optimizer(db, "optimizer-1")) == changed
    for _ in range(2):
        store.write(lambda db: groups.remove_optimizer(db, "optimizer-1"))
    with pytest.raises(UnknownToken):
        store.read(lambda db: groups.get_optimizer(db, "optimizer-1"))
    with pytest.raises(UnknownToken):
        store.write(lambda db: groups.save_optimizer(db, changed))


def test_optimizers_are_listed_by_registration_and_one_that_holds_tasks_is_not_removed(store: Store) -> None:
    def fill(db: Connection) -> None:
        groups.add(db, ResourceGroup("spark"))
        groups.add_optimizer(db, optimizer("b", registered_at=minutes(2)))
        groups.add_optimizer(db, optimizer("c", registered_at=minutes(1), group="spark"))
        groups.add_optimizer(db, optimizer("a", registered_at=minutes(2)))

    store.write(fill)
    assert [each.optimizer_id for each in store.read(groups.list_optimizers)] == ["c", "a", "b"]
    of_group = store.read(lambda db: groups.list_optimizers(db, "default"))
    assert [each.optimizer_id for each in of_group] == ["a", "b"]


def test_optimizer_that_holds_tasks_is_not_removed(store: Store) -> None:
    store.write(add_stages)
    with pytest.raises(IllegalState, match="optimizer-1 still holds tasks"):
        store.write(lambda db: groups.remove_optimizer(db, "optimizer-1"))
    assert store.read(groups.list_optimizers) == [optimizer()]


# How tables were read, day by day


DAY = date(2026, 3, 1)
FILTERS = (ColumnFilter("a", Operator.EQUAL), ColumnFilter("b.c", Operator.RANGE))


def added(store: Store, name: str = "t") -> int:
    return store.write(lambda db: tables.add(db, runtime(name))).table_id


def test_scans_of_a_day_with_the_same_filters_are_added_up_and_those_before_a_day_forgotten(store: Store) -> None:
    table, other = added(store), added(store, "u")
    one = ScanUse(DAY, FILTERS, 3, 10, 20, 1000)
    whole = ScanUse(date(2026, 2, 28), (), 1)
    store.write(lambda db: table_stats.add_scans(db, table, [one, whole, one]))
    store.write(lambda db: table_stats.add_scans(db, table, [one]))
    store.write(lambda db: table_stats.add_scans(db, other, [one]))
    assert store.read(lambda db: table_stats.list_scans(db, table)) == (whole, ScanUse(DAY, FILTERS, 9, 30, 60, 3000))
    assert store.read(lambda db: table_stats.list_scans(db, other)) == (one,)

    store.write(lambda db: table_stats.forget_scans_before(db, DAY))
    assert [one.day for one in store.read(lambda db: table_stats.list_scans(db, table))] == [DAY]


def test_the_choice_of_a_table_is_the_last_one(store: Store) -> None:
    table = added(store)
    assert store.read(lambda db: table_stats.find_choice(db, table)) is None
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for columns in (("a",), ("a", "b.c")):
        choice = ColumnChoice(columns, Strategy.HILBERT, at, 250, 0.5, {"a": 0.25, "b.c": 0.25})
        store.write(lambda db, one=choice: table_stats.save_choice(db, table, one))
    assert store.read(lambda db: table_stats.find_choice(db, table)) == choice
    store.write(lambda db: table_stats.save_choice(db, table, None))
    assert store.read(lambda db: table_stats.find_choice(db, table)) is None


# Condemned files as they are written down: batches of one kind, none too large


WHEN = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_batch_has_one_kind_and_at_most_a_thousand_files() -> None:
    kinds = (FileKind.MANIFEST, FileKind.DATA)
    files = [Condemned(f"{number:05}", kinds[number % 2], 1, None, "") for number in range(2 * MOST_IN_A_BATCH + 3)]
    batches = list(batches_of(files, "p", 1, "uuid", WHEN))
    assert [(one.kind, len(one.files)) for one in batches] == [
        (FileKind.MANIFEST, MOST_IN_A_BATCH),
        (FileKind.DATA, MOST_IN_A_BATCH),
        (FileKind.DATA, 1),
        (FileKind.MANIFEST, 2),
    ]
    assert sorted(file.path for one in batches for file in one.files) == [one.path for one in files]
    assert {(one.status, one.purge_at) for one in batches} == {(BatchStatus.WRITTEN, WHEN)}


def condemn(store: Store, *batches: str) -> int:
    """A table whose files of these names wait in batches; its id."""
    owner = store.write(lambda db: tables.add(db, runtime("t")))
    made = store.write(lambda db: processes.add(db, process(owner, "0199aaaa-0001-7000-8000-000000000001")))
    for names in batches:
        files = tuple(Condemned(name, FileKind.DATA, 1, None, "") for name in names.split())
        one = Batch(0, made.process_id, owner.table_id, "uuid", FileKind.DATA, BatchStatus.WAITING, WHEN, files)
        store.write(lambda db, one=one: pending_deletions.add_many(db, [one]))
    return owner.table_id


def stored(store: Store, table_id: int, status: BatchStatus) -> list[Batch]:
    facts = store.read(lambda db: pending_deletions.list_facts(db, table_id, statuses=(status,)))
    batches = [store.read(lambda db, one=one: pending_deletions.get(db, one.batch_id)) for one in facts]
    return [batch for batch in batches if batch is not None]


def paths(batches: list[Batch]) -> list[str]:
    return sorted(" ".join(file.path for file in one.files) for one in batches)


def test_what_is_spared_is_restored_and_the_others_of_its_batch_wait(store: Store) -> None:
    table_id = condemn(store, "a b c", "d")
    store.write(lambda db: pending_deletions.unmark_files(db, table_id, ["b", "d", "unknown"]))
    assert paths(stored(store, table_id, BatchStatus.WAITING)) == ["a c"]
    assert paths(stored(store, table_id, BatchStatus.RESTORED)) == ["b", "d"]


def test_a_batch_is_split_by_what_the_trash_takes_and_ends_once_all_of_it_is_needed(store: Store) -> None:
    table_id = condemn(store, "a.parquet b c.parquet")
    (batch,) = stored(store, table_id, BatchStatus.WAITING)
    taken = store.write(lambda db: split_batch(db, batch, Trash("/bin", timedelta(), r".+\.parquet")))
    assert paths([taken]) == ["a.parquet c.parquet"]
    assert paths(stored(store, table_id, BatchStatus.WAITING)) == ["a.parquet c.parquet", "b"]

    needed = {"a.parquet": "manifest m", "c.parquet": "manifest m"}
    store.write(lambda db: unmark_needed(db, taken, needed))
    assert paths(stored(store, table_id, BatchStatus.WAITING)) == ["b"]
    assert needed_text(needed) == "the table needs a.parquet (manifest m) and 1 more, which was marked for deletion"
    assert needed_text({"b": "manifest m"}) == "the table needs b (manifest m), which was marked for deletion"


# Lists of tables: in every order, with every filter, page by page, as the runtimes say


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
WANTED: dict[str, tuple[TableFilter, Callable[[TableRuntime], bool]]] = {
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
def listed(store: Store, chance: random.Random) -> list[TableRuntime]:
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


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("most", [1, 10_000])
def test_pages_hold_the_wanted_tables_in_every_order(
    store: Store, listed: list[TableRuntime], name: str, most: int, limits: Limits
) -> None:
    limits(exact_totals=most)  # both ways of searching: few of many, and many
    service = services(store).overview
    wanted, admits = WANTED[name]
    meant = [one for one in listed if admits(one)]
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


def test_saving_a_runtime_whose_figures_stay_writes_no_listing(store: Store, listed: list[TableRuntime]) -> None:
    def writes(db: Connection, one: TableRuntime) -> int:
        before = db.raw.total_changes
        table_listing.save(db, one)
        return db.raw.total_changes - before

    assert store.write(lambda db: writes(db, replace(listed[0], refreshed_at=minutes(99)))) == 0
    assert store.write(lambda db: writes(db, replace(listed[0], group="other"))) == 1


def test_names_are_listed_in_order_with_their_ids(store: Store, listed: list[TableRuntime]) -> None:
    expected = [(one.table_id, one.identifier) for one in sorted(listed, key=_name)]
    assert store.read(table_listing.list_names) == expected
    dogs = [pair for pair in expected if pair[1].catalog == "dog"]
    assert store.read(lambda db: table_listing.list_names(db, "dog")) == dogs


@pytest.mark.parametrize("key", sample(list(TableKey), every=4))
def test_changes_between_pages_neither_repeat_nor_hide_other_tables(
    store: Store, listed: list[TableRuntime], chance: random.Random, key: TableKey
) -> None:
    """Tables are added, removed and changed between pages; those that stay as they are come once each, in order."""
    service, order = services(store).overview, TableOrder(key, Order.DESC)
    still = {one.table_id for one in listed if one.table_id % 2}
    moving = {one.table_id: one for one in listed if not one.table_id % 2}
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


def test_a_cursor_of_another_list_is_refused(store: Store, listed: list[TableRuntime]) -> None:
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
def test_a_broken_cursor_is_refused(store: Store, listed: list[TableRuntime], broken: str) -> None:
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


def test_the_list_by_name_begins_after_any_name(store: Store, listed: list[TableRuntime]) -> None:
    service, ordered = services(store).overview, sorted(listed, key=_name)
    third = ordered[2].identifier
    assert list(service.tables(TableFilter(), window=Window(2, str(third))).items) == ordered[3:5]
    unknown = str(replace(third, name=f"{third.name}0"))
    assert service.tables(TableFilter(), window=Window(1, unknown)).items != ()
    with pytest.raises(InvalidArgument):
        service.tables(TableFilter(), TableOrder(TableKey.SIZE), Window(1, str(third)))


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("key", TableKey)
def test_a_page_of_many_tables_follows_the_index_of_its_order(
    store: Store, listed: list[TableRuntime], key: TableKey, order: Order
) -> None:
    first = table_listing.list_places
    wanted, by = TableFilter(group="a", status=OptimizingStatus.IDLE, catalog="cat"), TableOrder(key, order)
    (place,) = store.read(lambda db: first(db, TableFilter(), by, None, 1))
    for meant, after in ((TableFilter(), None), (TableFilter(), place.values), (wanted, place.values)):
        steps = query_plan(store, lambda db, meant=meant, after=after: first(db, meant, by, after, 50))
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
        assert "table_listing_by_" in steps[0]


def test_the_tables_of_a_catalog_are_found_and_counted_by_their_names(
    store: Store, listed: list[TableRuntime], monkeypatch: pytest.MonkeyPatch
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


def test_the_loops_ask_indexes_which_tables_are_due_or_wait(store: Store, listed: list[TableRuntime]) -> None:
    for ask in (lambda db: tables.list_due(db, NOW), tables.list_pending):
        steps = query_plan(store, ask)
        assert not [step for step in steps if step.startswith("SCAN") and "USING" not in step], steps
