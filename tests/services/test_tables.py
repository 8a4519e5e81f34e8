"""Finding tables, evaluating and enabling them, and looking when events of changes come."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from amoro_core.errors import (
    CatalogNotFound,
    CatalogUnavailable,
    InvalidArgument,
    TableNotFound,
    TableRefused,
    TooManyEvents,
)
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.history_events import ProcessFilter
from amoro_core.model.paging import Window
from amoro_core.model.principals import Throttle
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import (
    BlockedOperation,
    OptimizingStatus,
    OptimizingType,
    TableIdentifier,
    TableRuntime,
    TableState,
    parse_table,
)
from amoro_core.services.catalogs import CatalogChange
from amoro_core.services.discovery import COALESCED_S, REPEATED_S, ChangeNotificationService
from tests.acceptance.processes import wait_until
from tests.engine import writer
from tests.engine.builders import SCHEMA, make, row
from tests.services.rigs import raising
from tests.services.world import START, World, make_small_files
from tests.store import builders
from tests.tiers import seeds

LOW = {"self-optimizing.minor.trigger.file-count": "2"}


def small_files(world: World, count: int = 3, **properties: str) -> None:
    make_small_files(world.catalog, count, properties={**LOW, **properties})


def test_exploring_adds_tables_and_disposes_of_those_that_are_gone_or_of_another_format(world: World) -> None:
    def explored() -> tuple[list[str], list[str]]:
        found = world.discovery.explore("cat")
        return [*map(str, found.added)], [*map(str, found.disposed)]

    make(world.catalog)
    assert [explored(), explored()] == [(["cat.db.t"], []), ([], [])]
    with world.iceberg.catalog(list_tables=raising(CatalogUnavailable("no answer"))), pytest.raises(CatalogUnavailable):
        explored()
    world.iceberg.catalog(list_tables=lambda self, catalog: [])
    assert explored() == ([], []), "a listing that lacks a table proves nothing"
    for reason, disposed in (("metadata", []), ("format", ["cat.db.t"])):
        world.iceberg.catalog(load=raising(TableRefused("is not handled", reason=reason)))
        assert explored() == ([], disposed)
    world.iceberg.restore()
    assert explored() == (["cat.db.t"], [])
    world.catalog.drop_table("db.t")
    assert explored() == ([], ["cat.db.t"])
    assert world.tables.list_tables() == []


def test_a_busy_table_is_left_to_its_process_and_not_disposed_while_it_commits(world: World) -> None:
    small_files(world, **{"self-optimizing.enabled": "true"})
    process_id = world.begin(OptimizingType.MINOR)
    assert world.refresh_with({"self-optimizing.target-size": "big"}).status is OptimizingStatus.MINOR_OPTIMIZING
    assert world.table().status is OptimizingStatus.MINOR_OPTIMIZING
    world.run_all(process_id)
    world.catalog.drop_table("db.t")
    assert world.discovery.explore("cat").disposed == ()
    assert world.table().status is OptimizingStatus.COMMITTING


@pytest.mark.parametrize("by", ["property", "command", "catalog"])
def test_a_table_is_only_observed_until_any_yes_makes_it_pending(world: World, by: str) -> None:
    small_files(world)
    runtime = world.refresh()
    assert (runtime.status, runtime.enabled, runtime.summary.data_files) == (OptimizingStatus.IDLE, False, 3)
    assert runtime.pending_type is OptimizingType.MINOR
    assert runtime.status_reason.endswith("observed only: it was never enabled")
    match by:
        case "property":
            world.set_properties({"self-optimizing.enabled": "true"})
        case "command":
            world.tables.set_enabled(runtime.identifier, True)
        case "catalog":
            world.catalogs.update("cat", CatalogChange({"table.self-optimizing.enabled": "true"}))
    runtime = world.refresh()
    assert (runtime.status, runtime.enabled) == (OptimizingStatus.PENDING, True)


def test_a_property_that_forbids_it_refuses_enable_too_and_says_how_to_remove_it(world: World) -> None:
    small_files(world, **{"self-optimizing.enabled": "false"})
    name = parse_table("cat.db.t")
    world.refresh()
    for act in (lambda: world.tables.set_enabled(name, True), lambda: world.tables.require_optimizable(name)):
        with pytest.raises(TableRefused, match=r"cat\.db\.t is switched off by the table's property") as refused:
            act()
        assert refused.value.hint == "Switch it on with: amoro table set cat.db.t self-optimizing.enabled-"
    assert world.table().enabled_override is None
    world.tables.set_properties(name, {"self-optimizing.enabled": None}, dry_run=False)
    world.tables.set_enabled(name, False)
    with pytest.raises(TableRefused, match="switched off by amoro table disable"):
        world.tables.require_optimizable(name)
    assert world.tables.set_enabled(name, True).enabled
    assert world.tables.require_optimizable(name).enabled
    world.set_properties({"self-optimizing.enabled": "false"})
    with pytest.raises(TableRefused, match=r"cat\.db\.t is switched off by the table's property"):
        world.tables.set_enabled(name, True)


def test_properties_are_set_by_one_commit_and_those_of_others_are_kept(world: World) -> None:
    small_files(world, **{"self-optimizing.target-size": "big", "owner": "ann"})
    name, table = parse_table("cat.db.t"), world.catalog.load_table("db.t")
    assert world.refresh().refusal == "configuration"
    wanted = {"self-optimizing.target-size": "1048576", "owner": None, "comment": "tidy", "absent": None}
    changes = {"self-optimizing.target-size": ("big", "1048576"), "owner": ("ann", None), "comment": (None, "tidy")}
    assert world.tables.set_properties(name, wanted, dry_run=True) == changes
    assert table.refresh().properties["owner"] == "ann"

    def faster() -> None:
        world.set_properties({f"other.{len(sent)}": str(len(sent))})

    sent = world.iceberg.before_sending(faster, faster)
    assert world.tables.set_properties(name, wanted, dry_run=False) == changes
    now = table.refresh().properties
    assert {key: now.get(key) for key in (*wanted, "other.1", "other.2")} == {
        "self-optimizing.target-size": "1048576", "owner": None, "comment": "tidy", "absent": None, "other.1": "1",
        "other.2": "2",
    }  # fmt: skip
    assert world.table().status is OptimizingStatus.IDLE, "it was refreshed at once"
    assert world.tables.set_properties(name, wanted, dry_run=False) == {}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("format-version", "1", "is not changed here: it is reserved, or moves"),
        ("write.data.path", "s3://elsewhere/", "moves"),
        ("gc.enabled", None, "shares"),
        ("write.py-location-provider.impl", "os.system", "is not changed here"),
        ("self-optimizing.enabled", "maybe", "malformed value 'maybe'"),
        ("self-optimizing.minor.trigger.commits", "0", "expected a whole number of at least 1"),
        ("self-optimizing.priority", "10", "expected a whole number of at least 0 and at most 9"),
        ("self-optimizing.qouta", "0.2", "self-optimizing.qouta is not known"),
    ],
)
def test_properties_that_are_reserved_dangerous_or_malformed_are_not_set(
    world: World, key: str, value: str | None, said: str
) -> None:
    small_files(world, count=1)
    before = world.catalog.load_table("db.t").metadata_location
    with pytest.raises(InvalidArgument, match=said) as refused:
        world.tables.set_properties(parse_table("cat.db.t"), {"comment": "x", key: value}, dry_run=False)
    assert (said != "self-optimizing.qouta is not known") or refused.value.hint == "Did you mean self-optimizing.quota?"
    assert world.catalog.load_table("db.t").metadata_location == before


def _settled(world: World) -> int:
    """The id of cat.db.t with settings of its own, a process in its history, and a blocker."""
    small_files(world)
    name = parse_table("cat.db.t")
    table_id = world.tables.set_enabled(name, True).table_id
    assert world.optimize() is ProcessStatus.SUCCESS
    world.services.blockers.block(table_id, frozenset({BlockedOperation.OPTIMIZE}), timedelta(hours=1), "mine")
    return table_id


def _history(world: World, table_id: int) -> list[str]:
    listed = world.services.overview.processes(Window(9), world.optimizers.progress(), ProcessFilter(table_id=table_id))
    return [summary.process.process_id for summary in listed.items]


@pytest.mark.parametrize("by", ["listing", "refresh", "another in its place"])
def test_a_renamed_table_keeps_what_was_set_for_it_and_another_in_its_place_has_nothing_of_it(
    world: World, by: str
) -> None:
    table_id = _settled(world)
    history = _history(world, table_id)
    world.catalog.rename_table("db.t", "db.new")
    if by == "listing":
        explored = world.discovery.explore("cat")
        assert ([*map(str, explored.added)], [*map(str, explored.disposed)]) == (["cat.db.new"], ["cat.db.t"])
    else:
        if by == "another in its place":
            small_files(world, count=1)
            world.tables.ensure(parse_table("cat.db.new"))  # named before anything was seen
        world.tables.refresh(table_id)
    renamed = world.refresh("cat.db.new")
    assert (renamed.table_id, renamed.enabled, renamed.enabled_override) == (table_id, True, True)
    assert [one.blocker.reason for one in world.services.blockers.list_active()] == ["mine"]
    assert _history(world, table_id) == history != []
    if by == "another in its place":
        other = world.refresh()
        assert (other.table_id != table_id, other.enabled_override, other.enabled) == (True, None, False)
    else:
        with pytest.raises(TableNotFound, match=r"cat\.db\.t was renamed to cat\.db\.new, at 2026-03-01 12:00:00Z"):
            world.tables.find_present(parse_table("cat.db.t"))


def test_a_dropped_table_is_gone_for_who_asks_and_later_known_since_when(world: World) -> None:
    table_id = _settled(world)
    world.catalog.drop_table("db.t")
    name = parse_table("cat.db.t")
    with pytest.raises(TableNotFound, match=r"cat\.db\.t"):
        world.tables.find_present(name)
    assert world.tables.refresh(table_id) is None
    with pytest.raises(TableNotFound, match=r"is not known any more, at 2026-03-01 12:00:00Z"):
        world.tables.find_present(name)


def test_one_table_under_two_names_is_refused_under_the_later_one(world: World) -> None:
    small_files(world)
    world.refresh()
    world.catalog.register_table("db.twin", world.catalog.load_table("db.t").metadata_location)
    twin = world.refresh("cat.db.twin")
    assert (twin.status, twin.refusal) == (OptimizingStatus.REFUSED, "duplicate")
    first = world.refresh()
    assert first.status is OptimizingStatus.IDLE


def test_unknown_names_say_so(world: World) -> None:
    with pytest.raises(TableNotFound, match=r"cat\.db\.nothing"):
        world.tables.ensure(parse_table("cat.db.nothing"))
    with pytest.raises(CatalogNotFound, match="'cta' is not known") as error:
        world.catalogs.get("cta")
    assert error.value.hint == "Did you mean cat?"


def test_a_filter_leaves_files_out_and_a_malformed_one_refuses_the_table(world: World) -> None:
    small_files(world, **{"self-optimizing.enabled": "true", "self-optimizing.filter": "id > 100"})
    runtime = world.refresh()
    assert (runtime.status, runtime.pending_type) == (OptimizingStatus.IDLE, None)
    assert runtime.summary.data_files == 3
    runtime = world.refresh_with({"self-optimizing.filter": "id >"})
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, "configuration")
    runtime = world.refresh_with({"self-optimizing.filter": "id < 100"})
    assert (runtime.status, runtime.pending_type) == (OptimizingStatus.PENDING, OptimizingType.MINOR)


FALLBACK = {"self-optimizing.enabled": "true", "self-optimizing.evaluation.fallback-interval": "3600000"}


def test_totals_of_the_snapshot_spare_a_table_of_large_files_its_evaluation_until_the_fallback_interval(
    world: World,
) -> None:
    small_files(world, count=1, **FALLBACK, **{"self-optimizing.target-size": "100"})
    scans: list[object] = []
    scan = IcebergTable.scan
    world.iceberg.table(scan=lambda self: scans.append(None) or scan(self))
    first = world.refresh()
    assert (len(scans), first.scanned_at) == (1, world.now)
    writer.append(world.catalog.load_table("db.t"), [row(9)])
    world.later(60)
    second = world.refresh()
    assert (len(scans), second.scanned_at, second.summary.data_files) == (1, first.scanned_at, 2)
    assert second.evaluated_snapshot_id == second.snapshot_id != first.snapshot_id
    assert "data files are large on average; next evaluation at 2026-03-01 13:00 UTC" in second.status_reason
    assert second.health == first.health
    world.later(3540)
    assert (world.refresh().scanned_at, len(scans)) == (world.now, 2)


def test_totals_do_not_mend_a_table_that_was_refused_for_its_files(world: World) -> None:
    small_files(world, count=1, **FALLBACK, **{"self-optimizing.target-size": "100"})
    world.refresh()

    writer.append(world.catalog.load_table("db.t"), [row(9)])
    world.iceberg.table(scan=raising(TableRefused("a file is elsewhere", reason="location")))
    with world.catalog.load_table("db.t").transaction() as change:
        change.remove_properties("self-optimizing.evaluation.fallback-interval")
    assert world.refresh().status is OptimizingStatus.REFUSED
    assert world.refresh_with(FALLBACK).status is OptimizingStatus.REFUSED


def test_tables_are_due_when_new_then_by_their_interval_then_at_once_after_a_process(world: World) -> None:
    small_files(world, **{"self-optimizing.enabled": "true"})
    table_id = world.table().table_id
    assert world.tables.list_due() == [(table_id, "cat")]
    assert world.refresh().refresh_at == START + timedelta(seconds=60)
    world.later(59.999)
    assert world.tables.list_due() == []
    world.later(0.001)
    assert world.tables.list_due() == [(table_id, "cat")]
    world.refresh()
    assert world.tables.list_due() == []
    assert world.optimize() is ProcessStatus.SUCCESS
    assert world.tables.list_due() == [(table_id, "cat")]


def test_a_table_that_cannot_be_loaded_says_why_and_is_tried_again_after_the_base_interval(world: World) -> None:
    make(world.catalog)
    table_id = world.table().table_id

    with world.iceberg.catalog(load=raising(CatalogUnavailable("no answer"))), pytest.raises(CatalogUnavailable):
        world.tables.refresh(table_id)
    shown = world.table()
    assert (shown.load_failure, shown.failures, shown.state) == ("[AMORO-1010] no answer", 0, TableState.NEW)
    assert world.tables.list_due() == []
    world.later(60)
    assert world.tables.list_due() == [(table_id, "cat")]
    world.tables.refresh(table_id)
    assert world.table().load_failure == ""


def test_filters_of_a_catalog_decide_what_is_found_and_what_is_forgotten(world: World) -> None:
    for table in ("db.orders", "db.lines", "db.kept", "tmp.orders"):
        world.catalog.create_namespace_if_not_exists(table.split(".")[0])
        world.catalog.create_table(table, SCHEMA)
    world.discovery.explore("cat")
    world.tables.set_enabled(parse_table("cat.db.kept"), True)
    world.catalogs.update("cat", CatalogChange({"database-filter": "d.*", "table-filter": "orders|new"}))
    world.catalog.create_table("db.new", SCHEMA)
    world.catalog.create_table("tmp.new", SCHEMA)
    explored = world.discovery.explore("cat")
    assert [str(name) for name in explored.added] == ["cat.db.new"]
    assert [str(name) for name in explored.disposed] == ["cat.db.lines", "cat.tmp.orders"]
    assert [str(item.identifier) for item in world.tables.list_tables()] == [
        *("cat.db.kept", "cat.db.new", "cat.db.orders")
    ]


def test_a_new_table_that_is_asked_for_is_found_unless_a_filter_leaves_it_out(world: World) -> None:
    world.catalogs.update("cat", CatalogChange({"table-filter": "orders"}))
    world.catalog.create_namespace_if_not_exists("db")
    for name in ("orders", "lines"):
        world.catalog.create_table(f"db.{name}", SCHEMA)
    found = world.discovery.find(parse_table("cat.db.orders"))
    assert world.discovery.find(found.identifier) == found == world.tables.find_stored(found.identifier)
    assert world.tables.list_due() == [(found.table_id, "cat")]
    with pytest.raises(TableNotFound, match=r"cat\.db\.lines is not known: the filters of its catalog leave it out"):
        world.discovery.find(parse_table("cat.db.lines"))
    enabled = world.tables.set_enabled(parse_table("cat.db.lines"), True)
    assert world.discovery.find(enabled.identifier).table_id == enabled.table_id
    with pytest.raises(TableNotFound, match=r"cat\.tmp\.orders does not exist"):
        world.discovery.find(parse_table("cat.tmp.orders"))
    assert len(world.tables.list_tables()) == 2


@pytest.mark.parametrize("word", [True, False])
def test_a_word_that_is_said_while_the_table_is_looked_at_holds(world: World, word: bool) -> None:
    small_files(world)
    table = parse_table("cat.db.t")
    runtime = world.tables.set_enabled(table, not word)
    load = IcebergFormat.load
    said: list[bool] = []

    def meanwhile(self: IcebergFormat, *arguments: Any) -> Any:
        if not said:
            said.append(word)
            world.tables.set_enabled(table, word)
        return load(self, *arguments)

    world.iceberg.catalog(load=meanwhile)
    looked = world.tables.refresh(runtime.table_id)
    assert (said, looked.enabled, world.table().enabled) == ([word], word, word)
    assert looked.enabled_origin == f"amoro table {'enable' if word else 'disable'}"


# Events of changed tables: at once, together, not too many, and never lost while a look is going on


class Looks:
    """Notes which tables are looked at; those that are busy are not."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.busy: set[int] = set()

    def look(self, table_id: int, catalog: str) -> bool:
        if table_id in self.busy:
            self.busy.discard(table_id)
            return False
        self.begun.append((table_id, catalog))
        return True


TABLES = {
    made.identifier: made for made in (replace(builders.runtime(f"t{number}"), table_id=number) for number in (1, 2))
}
FIRST, SECOND = TABLES


def found(identifier: TableIdentifier) -> TableRuntime:
    if identifier not in TABLES:
        raise TableNotFound(f"table {identifier} does not exist")
    return TABLES[identifier]


def test_events_of_one_while_are_one_look_for_each_table_and_a_fault_in_it_ends_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks, timers, faults = Looks(), list[Any](), list[OSError]()

    class Timer:
        """Runs out when the test says so."""

        def __init__(self, interval_s: float, function: Callable[[], None]) -> None:
            self.interval, self.function = interval_s, function
            timers.append(self)

        def start(self) -> None: ...

    monkeypatch.setattr("amoro_core.services.discovery.threading.Timer", Timer)

    def look(table_id: int, catalog: str) -> bool:
        if faults:
            raise faults.pop()
        return looks.look(table_id, catalog)

    hearing = ChangeNotificationService(found, look)
    for table in (FIRST, SECOND, FIRST, FIRST):
        assert hearing.changed(table, "appended", "the token op") == TABLES[table]
    (timer,) = timers
    assert (timer.interval, looks.begun) == (COALESCED_S, [])
    timer.function()
    assert sorted(looks.begun) == [(1, "cat"), (2, "cat")]
    hearing.note_changes(1, 1)
    faults.append(OSError("a fault"))
    hearing.changed(FIRST, "", "the token op")
    with pytest.raises(OSError, match="a fault"):
        timers[1].function()
    hearing.changed(FIRST, "", "the token op")
    timers[2].function()
    assert looks.begun[2:] == [(1, "cat")]


def test_a_look_beside_another_or_that_found_nothing_is_repeated_once_later() -> None:
    looks, begun_s = Looks(), time.monotonic()
    looks.busy = {1}

    def look(table_id: int, catalog: str) -> bool:
        if not looks.look(table_id, catalog):
            return False
        if table_id == 2:
            hearing.note_changes(2, 1)
        hearing.refreshed(table_id)
        return True

    hearing = ChangeNotificationService(found, look, coalesced_s=0.01)
    for table in (FIRST, SECOND):
        hearing.changed(table, "", "the token op")
    wait_until(lambda: len(looks.begun) >= 3, "three looks have begun")
    assert time.monotonic() - begun_s >= REPEATED_S
    time.sleep(0.1)
    hearing.stop()
    assert sorted(looks.begun) == [(1, "cat"), (1, "cat"), (2, "cat")]


def test_every_commit_is_counted_once_though_events_are_lost_and_doubled(world: World) -> None:
    """Also those that lie between a refresh and a commit of ours, which is none of them."""
    names, chance = [f"db.t{number}" for number in range(3)], random.Random(seeds(1, 1)[0])
    made = [writer.make_table(world.catalog, name, SCHEMA) for name in names]
    for name in names:
        world.refresh(f"cat.{name}")
    telling = world.services.change_notifications
    for number in range(60):
        table = chance.randrange(3)
        if number == 40:
            process_id = world.begin_and_run(OptimizingType.MINOR, "cat.db.t0", force=True)
        writer.append(made[table], [row(number)])
        for _ in range(chance.choices((0, 1, 2), (0.05, 0.9, 0.05))[0]):
            telling.changed(parse_table(f"cat.{names[table]}"), "", "the proxy")
        if number == 40:
            writer.append(made[0], [row(100)])
            assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    wait_until(lambda: not telling._due and telling._timer is None, "all looks have ended")
    writer.append(made[1], [row(101)])  # nobody tells of it
    for name in names:
        assert world.refresh(f"cat.{name}").snapshot_id == world.table_head(f"cat.{name}")
    seen = {one.labels[0]: one.value for one in world.meters.samples() if one.name == "amoro_changes_seen_total"}
    assert seen["event"] + seen["look"] == 62
    assert seen["event"] >= 50
    assert seen["look"] >= 1


def test_nobody_tells_more_than_is_taken_of_one_within_a_minute() -> None:
    looks, now_s = Looks(), 0.0
    hearing = ChangeNotificationService(found, looks.look, Throttle(2, timedelta(minutes=1), lambda: now_s))
    hearing.changed(FIRST, "", "the token op")
    with pytest.raises(TableNotFound):  # its catalog was asked, so it counts
        hearing.changed(replace(FIRST, name="none"), "", "the token op")
    with pytest.raises(TooManyEvents, match=r"the token op has sent .*cat\.db\.t1 is refreshed on schedule"):
        hearing.changed(FIRST, "", "the token op")
    hearing.changed(FIRST, "", "the token other")
    now_s = 60.0
    hearing.changed(FIRST, "", "the token op")
    hearing.stop()


def test_nothing_is_looked_at_after_the_end() -> None:
    looks = Looks()
    hearing = ChangeNotificationService(found, looks.look, coalesced_s=5.0)
    hearing.changed(FIRST, "", "the token op")
    timer = hearing._timer
    hearing.stop()
    assert not timer.is_alive()
    hearing.changed(FIRST, "", "the token op")
    assert hearing._timer is timer
    assert looks.begun == []
