"""Expiry of snapshots as a process: what goes, what is condemned and deleted, and what is never touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from amoro_core.errors import AccessDenied, CatalogUnavailable, InvalidArgument, TableBusy
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.maintenance import Ended, Removal
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import processes, snapshot_leases
from tests.condemning import Sweeping
from tests.engine import oracle, writer
from tests.engine.aging import DAY_MS, aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.rigs import Limits, dying_at, raising, reaching
from tests.services.world import World, make_small_files

NAME = "expire-snapshots"

SEND = IcebergTable.send
DAY_S = timedelta(days=1).total_seconds()
AT_ONCE = {"maintenance.expire-snapshots.trash-keep": "0"}


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def made(world: World, snapshots: int = 4, properties: dict[str, str] | None = None, days: float = 30) -> Table:
    """A table of so many appends, all so many days old, and the clock at the moment."""
    table = make_small_files(world.catalog, snapshots, spec=BY_PART, properties=properties or {})
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    return aged(table, days)


@pytest.fixture
def table(world: World) -> Table:
    return made(world)


def expire(world: World, **options: Any) -> OptimizingProcess:
    return world.process(world.done(NAME, **options))


def whole(table: Table) -> None:
    """Every snapshot that the table has can be read."""
    for one in table.refresh().metadata.snapshots:
        oracle.live_rows(table, one.snapshot_id)


# A plain run


def test_old_snapshots_go_and_their_files_after_their_time(world: World, table: Table) -> None:
    """Files of every kind that only they needed: data, deletes of both kinds, manifests, lists, statistics."""
    first = ids(table)[0]
    with table.update_statistics() as update:
        update.set_statistics(puffin(table, first))
    writer.upsert(table, [row(0, "a", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 1)
    old = [one.path for one in oracle.live_files(table)]
    writer.append(table, [row(9)])
    writer.remove_files(table, old)
    *going, head = ids(aged(table, 30))
    before, rows = reached(table.metadata), oracle.live_rows(table)
    process = expire(world)
    assert ids(table) == [head]
    assert set(world.condemned()) == before - reached(table.metadata)
    assert len(world.condemned()) == len(set(world.condemned()))
    assert all(Path(local_path(path)).exists() for path in world.condemned())
    world.later(DAY_S)
    gone = world.condemned()
    world.done("empty-trash")
    assert not any(Path(local_path(path)).exists() for path in gone)
    assert (oracle.live_rows(table), world.condemned()) == (rows, [])
    marked = f"marked {len(gone)} files"
    assert process.receipt.words.startswith(f"expired {len(going)} of {len(going) + 1} snapshots; {marked} (")
    figures = {one.name: one.value for one in process.receipt.figures}
    assert figures["snapshots_expired"] == len(going)
    assert figures["statistics_files_condemned"] == 1


def puffin(table: Table, snapshot_id: int) -> StatisticsFile:
    path = f"{table.location()}/metadata/{snapshot_id}.stats"
    Path(local_path(path)).write_bytes(b"puffin")
    said: dict[str, Any] = {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 6}
    return StatisticsFile(**said, **{"file-footer-size-in-bytes": 1, "blob-metadata": []})


def test_the_preview_tells_by_sparks_names_what_goes_and_why_and_changes_nothing(world: World, table: Table) -> None:
    *going, head = ids(table)
    writer.create_tag(table, "kept", going[1])
    location = table.refresh().metadata_location
    found = world.maintaining.preview(world.table().identifier, NAME)
    assert found.plan.reason == "2 of 4 snapshots to expire; 2 stay (1 branch, 1 tag)"
    document = json.loads(json.dumps(found.plan.document))
    kinds = ("data_files", "position_delete_files", "equality_delete_files", "manifest_files", "statistics_files")
    assert [document[f"deleted_{kind}_count"] for kind in kinds] == [0] * 5
    assert document["deleted_manifest_lists_count"] == 2
    assert [one["snapshot_id"] for one in document["expired_snapshots"]] == [going[0], going[2]]
    reasons = {one["snapshot_id"]: one["reason"] for one in document["kept_snapshots"]}
    assert reasons == {head: "branch main", going[1]: "tag kept"}
    assert table.refresh().metadata_location == location


def test_a_named_snapshot_goes_alone_and_what_can_not_be_asked_for_is_refused(world: World) -> None:
    table = made(world, days=1)
    first, second, *rest = ids(table)
    writer.create_tag(table, "held", second)
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"older_than": timedelta(hours=23, minutes=59)}, "below 24 h"),
        ({"retain_last": 0}, "--retain-last is 0"),
        ({"snapshot_ids": (7,)}, "no snapshot 7"),
        ({"snapshot_ids": (second,)}, f"snapshot {second} is needed: tag held"),
    ]
    for options, told in refusals:
        with pytest.raises(InvalidArgument, match=told):
            world.begin_action(NAME, **options)
    expire(world, snapshot_ids=(first,))
    assert ids(table) == [second, *rest]


def test_an_age_and_a_count_that_were_asked_for_win_over_the_tables(world: World) -> None:
    table = made(world, properties={"history.expire.max-snapshot-age-ms": str(60 * 86400000)})
    expire(world, older_than=timedelta(days=2), retain_last=2)
    assert len(ids(table)) == 2


def test_of_too_many_files_the_oldest_snapshots_go_first_and_the_rest_next_time(world: World, limits: Limits) -> None:
    table = made(world, 8)
    every = ids(table)
    writer.create_tag(table, "late", every[5], max_ref_age_ms=86_400_000)
    aged(table, {one: 8.0 - at for at, one in enumerate(every)})
    limits(files_of_an_expiry=3)
    first = expire(world)
    assert first.reason.endswith("; 4 more left for the next run")
    assert (ids(table), set(table.metadata.refs)) == (every[3:], {"main", "late"})  # the tag's snapshot is left, too
    limits(files_of_an_expiry=4)
    expire(world)
    assert (ids(table), set(table.metadata.refs)) == (every[7:], {"main"})
    whole(table)


# What happens meanwhile


#: What others do after the plan, and what the expiry comes to: which of four snapshots are left.
MEANWHILE: dict[str, tuple[Callable[[Table], object], ProcessStatus, list[int]]] = {
    "a tag": (lambda table: writer.create_tag(table, "mine", ids(table)[0]), ProcessStatus.SUCCESS, [0, 2, 3]),
    "a rollback": (lambda table: writer.rollback(table, ids(table)[1]), ProcessStatus.FAILED, [0, 1, 2, 3]),
    "a longer retention": (
        lambda table: set_property(table, "history.expire.max-snapshot-age-ms", str(90 * DAY_MS)),
        ProcessStatus.FAILED,
        [0, 1, 2, 3],
    ),
    "no deletions": (lambda table: set_property(table, "gc.enabled", "false"), ProcessStatus.FAILED, [0, 1, 2, 3]),
}


def set_property(table: Table, key: str, value: str) -> None:
    with table.transaction() as change:
        change.set_properties({key: value})


@pytest.mark.parametrize("what", MEANWHILE)
def test_what_others_do_after_planning_counts(world: World, what: str) -> None:
    table = made(world, properties={"snapshot.keep.min-count": "2"})
    every, (change, status, left) = ids(table), MEANWHILE[what]
    process_id = world.begin_action(NAME)
    change(table)
    assert world.committing.commit(process_id) is status
    assert ids(table) == [every[at] for at in left]
    whole(table)


def test_what_an_undo_brings_files_back_from_stays_with_its_chain(world: World, table: Table) -> None:
    rewrite = world.optimized()
    writer.append(table, [row(50)])
    *_, before, after, head = ids(aged(table, 30))
    rows = oracle.live_rows(table)
    undo = world.maintaining.undo(rewrite).process_id
    expire(world)
    assert ids(table) == [before, after, head]
    assert world.committing.commit(undo) is ProcessStatus.SUCCESS
    assert oracle.live_rows(table) == rows


def test_a_lease_taken_while_it_is_planned_stops_it_once(world: World, table: Table) -> None:
    first, *_ = ids(table)

    def planned(point: str) -> None:
        if point == "plan.before_store":
            world.later(1)
            world.leasing.take(world.table(), first, "bob", since=True)

    with reaching(planned), pytest.raises(TableBusy, match="of bob was taken while this was planned"):
        world.begin_action(NAME)
    begun = world.maintaining.begin(world.table().table_id, NAME, trigger="request")
    assert "3 lease" in begun.reason
    assert len(ids(table)) == 4


def test_a_lease_of_what_has_gone_meanwhile_is_refused(world: World, table: Table) -> None:
    first, *_ = ids(table)
    loads: list[int] = []

    def load(plain: IcebergFormat, *given: Any) -> Any:
        loads.append(first)
        if len(loads) == 2:
            writer.expire_snapshots(table, [first])
        return IcebergFormat.load(plain, *given)

    world.iceberg.catalog(load=load)
    with pytest.raises(InvalidArgument, match=f"no snapshot {first}"):
        world.leasing.take(world.table(), first, "bob")
    assert world.store.read(lambda db: snapshot_leases.list_leases(db, world.now)) == []


# Unknown


def test_an_unknown_expiry_that_others_have_overtaken_is_made_anew(world: World, table: Table) -> None:
    process_id = world.begin_action(NAME)
    world.commit_unknown(process_id, arrives=False)
    writer.create_tag(table, "mine", ids(table)[0])
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert len(ids(table)) == 2


def test_a_branch_in_mains_history_that_has_aged_goes_alone(world: World) -> None:
    """As Iceberg tests `TestRemoveSnapshots`."""
    table = made(world, 2, {"history.expire.max-snapshot-age-ms": str(90 * DAY_MS)})
    writer.create_branch(table, "branch", ids(table)[0], max_ref_age_ms=1)
    assert expire(world).receipt.words == "expired 0 of 2 snapshots, removed branch"
    assert (len(ids(table)), set(table.metadata.refs)) == (2, {"main"})


# REST


class RestWorld(World):
    """With a second catalog, of the same tables, by REST."""

    def _commit_due(self, process_id: str, catalog: str) -> None:
        self.heard.commits.append(process_id)


def test_a_tag_lost_in_the_window_of_a_rest_catalog_is_back_with_its_rows_and_told(
    new_world: Callable[..., World], catalog: Any
) -> None:
    world = new_world(kind=RestWorld)
    with RestServer(catalog) as server:
        world.catalogs.add(server.config("rest"))
        table = made(world, properties=AT_ONCE)
        first = ids(table)[0]
        files, rows = {one.path for one in oracle.live_files(table, first)}, oracle.live_rows(table, first)

        def send(self: IcebergTable, payload: bytes) -> None:
            world.iceberg.restore()
            writer.create_tag(table, "mine", first)
            SEND(self, payload)
            assert "mine" not in table.refresh().metadata.refs

        world.iceberg.table(send=send)
        process_id = world.begin_action(NAME, "rest.db.t")
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        table.refresh()
        back = table.metadata.refs["mine"].snapshot_id
        assert back != first
        assert (oracle.live_rows(table, back), {one.path for one in oracle.live_files(table, back)}) == (rows, files)
        receipt = world.receipt(process_id)
        assert receipt.words.endswith("; restored mine, which was created meanwhile")
        begun = world.maintaining.begin(world.table("rest.db.t").table_id, "empty-trash", trigger="request")
        assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
        whole(table)


# What a process removes after its work, and metadata files that fall out of the log with its commits


class Swept:
    """A table with files that nothing names, and the services."""

    def __init__(self, new_world: Callable[..., World]) -> None:
        self.listed: list[str] = []
        self.world = new_world(Sweeping(lambda table: self.listed))
        self.table = writer.make_table(self.world.catalog, "db.t", SCHEMA, BY_PART)
        writer.append(self.table, [row(1, "a"), row(2, "a")])
        self.data = Path(self.table.location().removeprefix("file://")) / "data"

    def stray(self, number: int) -> list[str]:
        """So many more files that are to be removed."""
        made = [self.data / f"stray-{len(self.listed) + one}.parquet" for one in range(number)]
        for path in made:
            path.write_bytes(b"x")
        self.listed += [path.as_uri() for path in made]
        return [path.as_uri() for path in made]

    def left(self) -> list[str]:
        return sorted(path.name for path in self.data.rglob("stray-*"))

    def begin(self) -> str:
        return self.world.maintaining.begin(self.world.table().table_id, "sweep", trigger="request").process_id

    def written(self, process_id: str) -> list[str]:
        return self.world.store.read(lambda db: processes.list_clearing(db, process_id, 100))


@pytest.fixture
def swept(new_world: Callable[..., World]) -> Swept:
    return Swept(new_world)


def test_a_file_that_the_table_names_stays_and_is_told(swept: Swept) -> None:
    swept.stray(2)
    live = [file.path for file in oracle.live_files(swept.table)]
    swept.listed += live
    process_id = swept.begin()
    assert swept.world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert swept.left() == []
    assert all(Path(path.removeprefix("file://")).exists() for path in live)
    kept = f"{len(live)} file not removed: the table names them, or they could not be removed"
    assert swept.world.process(process_id).failure == kept


@pytest.mark.parametrize("point", ["clear.before_delete", "clear.after_delete", "clear.after_done"])
def test_killed_anywhere_it_goes_on_with_what_was_written_down(swept: Swept, limits: Limits, point: str) -> None:
    limits(cleared_at_once=2)
    listed = swept.stray(5)
    process_id = swept.begin()
    with dying_at(point):
        swept.world.committing.commit(process_id)
    if point != "clear.after_done":
        assert swept.world.process(process_id).status is ProcessStatus.CLEARING
        assert swept.written(process_id) == listed  # all of them before the first goes
        swept.listed.clear()
    swept.world.restart()
    assert swept.world.heard.commits == ([] if point == "clear.after_done" else [process_id])
    assert swept.world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert (swept.left(), swept.written(process_id)) == ([], [])


def test_what_storage_refuses_for_good_is_given_up_and_told(swept: Swept) -> None:
    swept.stray(3)
    process_id = swept.begin()

    swept.world.iceberg.table(delete_unreferenced=raising(AccessDenied("no right to delete")))
    for _ in range(2):
        with pytest.raises(AccessDenied):
            swept.world.committing.commit(process_id)
    assert swept.world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert swept.world.process(process_id).failure == "3 files not removed: no right to delete"
    assert len(swept.left()) == 3


def test_what_commits_nothing_can_be_cancelled_between_two_batches_and_ends_with_its_table(
    swept: Swept, limits: Limits
) -> None:
    limits(cleared_at_once=1)
    swept.stray(3)
    process_id = swept.begin()
    remove = IcebergTable.delete_unreferenced

    def cancel_meanwhile(self: IcebergTable, paths: Iterable[str]) -> tuple[str, ...]:
        swept.world.optimizing.cancel(process_id, "by hand")
        return remove(self, paths)

    with swept.world.iceberg.table(delete_unreferenced=cancel_meanwhile):
        assert swept.world.committing.commit(process_id) is ProcessStatus.CLOSED
    assert (len(swept.left()), swept.world.process(process_id).failure) == (2, "by hand")
    process_id = swept.begin()
    swept.world.catalog.drop_table("db.t")
    assert swept.world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert (len(swept.left()), "not removed: " in swept.world.process(process_id).failure) == (2, True)


# Metadata files that fall out of the log: deleted after our own commits where the table says so, and kept else


ON = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
OFF = {"write.metadata.previous-versions-max": "2"}


def stored(table: Table) -> set[str]:
    folder = Path(local_path(table.refresh().metadata_location)).parent
    return {path.name for path in folder.glob("*.metadata.json")}


def in_log(table: Table) -> set[str]:
    """The names of the newest metadata file and of those that its log has."""
    table.refresh()
    places = [table.metadata_location, *(one.metadata_file for one in table.metadata.metadata_log)]
    return {Path(local_path(swept)).name for swept in places}


def rewritten_often(world: World, table: Table, times: int = 3) -> set[str]:
    """Rewrite all files so many times, nobody else commits; the names of what fell out of the log."""
    fallen: set[str] = set()
    for _ in range(times):
        before = in_log(table)
        world.optimized(force=True)
        fallen |= before - in_log(table)
    return fallen


@pytest.mark.parametrize(
    ("properties", "go"),
    [(ON, True), ({**ON, "table-trash.enabled": "true"}, False), (OFF, False)],
    ids=["on", "deleted files are moved", "off"],
)
def test_those_that_fall_out_of_the_log_go_with_our_commits_where_the_table_says_so(
    world: World, properties: dict[str, str], go: bool
) -> None:
    table = make_small_files(world.catalog, properties=properties)
    fallen = rewritten_often(world, table)
    assert len(fallen) == 3
    assert fallen & stored(table) == (set() if go else fallen)
    assert in_log(table) <= stored(table)
    assert oracle.live_rows(table).total() == 3


def test_a_rest_catalog_s_are_its_own_matter(new_world: Callable[..., World], catalog: SqlCatalog) -> None:
    world = new_world(kind=RestWorld)
    with RestServer(catalog) as server:
        world.catalogs.add(server.config("rest"))
        table = make_small_files(catalog, properties=ON)
        before = stored(table)
        process_id = world.begin_and_run(OptimizingType.FULL, "rest.db.t")
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        assert len(in_log(table)) == 3
        assert stored(table) == before | in_log(table)
        assert len(stored(table)) == len(before) + 1


def test_what_an_expiry_was_based_on_stays_until_it_can_t_be_undone_any_more(world: World) -> None:
    table = made(world, properties=ON)
    rows = oracle.live_rows(table, ids(table)[0])
    first = ids(table)[0]
    base = Path(local_path(table.metadata_location)).name
    expired = expire(world).process_id
    fallen = rewritten_often(world, table)
    assert base in fallen
    assert fallen & stored(table) == {base}
    undo = world.maintaining.undo(expired).process_id
    assert world.committing.commit(undo) is ProcessStatus.SUCCESS
    back = table.refresh().snapshot_by_name(f"restored-{first}")
    assert oracle.live_rows(table, back.snapshot_id) == rows


def test_once_its_files_are_deleted_what_an_expiry_was_based_on_goes_as_others_do(world: World) -> None:
    table = made(world, properties={**ON, "maintenance.expire-snapshots.trash-keep": "0"})
    base = Path(local_path(table.metadata_location)).name
    expire(world)
    assert world.run("empty-trash") is ProcessStatus.SUCCESS
    fallen = rewritten_often(world, table)
    assert base in fallen
    assert fallen.isdisjoint(stored(table))


def test_an_expiry_that_has_not_condemned_yet_finds_its_files(world: World) -> None:
    table = made(world, properties=ON)
    base = Path(local_path(table.metadata_location)).name
    process_id = world.begin_action(NAME)

    world.iceberg.table(released=raising(CatalogUnavailable("not now")))
    with pytest.raises(CatalogUnavailable):
        world.committing.commit(process_id)
    assert base in rewritten_often(world, table)
    assert base in stored(table)
    world.iceberg.restore()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    receipt = world.receipt(process_id)
    assert {one.name for one in receipt.figures if one.name.endswith("_condemned")} >= {"manifest_list_files_condemned"}


@pytest.mark.parametrize("answers", [True, False])
def test_one_that_can_t_be_deleted_is_no_failure_nor_is_a_storage_that_does_not_answer(
    world: World, answers: bool
) -> None:
    def delete(self: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
        if not answers:
            raise CatalogUnavailable("no answer")
        return {path: Removal(Ended.FAILED, "denied") for path in paths}

    table = make_small_files(world.catalog, properties=ON)
    world.iceberg.files(delete_many=delete)
    assert rewritten_often(world, table) <= stored(table)


def test_after_a_commit_of_which_nobody_knows_none_goes(world: World) -> None:
    table = make_small_files(world.catalog, properties=ON)
    before = stored(table)
    process_id = world.begin_and_run(OptimizingType.FULL)
    world.commit_unknown(process_id, arrives=True)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert stored(table) > before
