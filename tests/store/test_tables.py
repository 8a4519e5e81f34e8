"""Tables, scans of them, and files that are condemned."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoro_core.errors import (
    AlreadyExists,
    CatalogNotFound,
    GroupNotFound,
    IllegalState,
    TableBusy,
    TableNotFound,
    UnknownToken,
)
from amoro_core.maintenance.trash import Trash
from amoro_core.model.clustering import Strategy
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import ProcessStatus, ResourceGroup
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.model.tables import LastOptimized, OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.store import catalogs, groups, pending_deletions, processes, table_stats, tables
from amoro_core.store.connection import from_ms, to_ms
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import MOST_IN_A_BATCH, Batch, BatchStatus, batches_of
from amoro_core.transactions.file_holds import needed_text, split_batch, unmark_needed
from tests.store.builders import NOW, add_stages, catalog, full_runtime, minutes, optimizer, process, runtime

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
