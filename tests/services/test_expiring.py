"""Expiry of snapshots as a process: what goes, what is condemned and deleted, and what is never touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from amoro_core.errors import InvalidArgument, TableBusy
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.model.processes import CatalogConfig, OptimizingProcess, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import pending_deletions, snapshot_leases
from amoro_core.store.pending_deletions import BatchStatus
from tests.engine import oracle, writer
from tests.engine.aging import DAY_MS, aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.faults.rest import RestServer
from tests.services.rigs import Limits, reaching
from tests.services.world import World

NAME = "expire-snapshots"

SEND = IcebergTable.send
DAY_S = timedelta(days=1).total_seconds()
AT_ONCE = {"maintenance.expire-snapshots.trash-keep": "0"}


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def made(world: World, snapshots: int = 4, properties: dict[str, str] | None = None, days: float = 30) -> Table:
    """A table of so many appends, all so many days old, and the clock at the moment."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, properties=properties or {})
    for number in range(snapshots):
        writer.append(table, [row(number)])
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    return aged(table, days)


@pytest.fixture
def table(world: World) -> Table:
    return made(world)


def expire(world: World, **options: Any) -> OptimizingProcess:
    return world.process(world.done(NAME, **options))


def condemned_paths(world: World) -> list[str]:
    table_id = world.table().table_id

    def read(db: Any) -> list[str]:
        facts = pending_deletions.list_facts(db, table_id, statuses=tuple(BatchStatus))
        batches = [pending_deletions.get(db, one.batch_id) for one in facts]
        return [file.path for batch in batches if batch is not None for file in batch.files]

    return world.store.read(read)


def whole(table: Table) -> None:
    """Every snapshot that the table has can be read."""
    for one in table.refresh().metadata.snapshots:
        oracle.live_rows(table, one.snapshot_id)


# A plain run


def test_old_snapshots_go_and_their_files_after_their_time(world: World, table: Table) -> None:
    """Files of every kind that only they needed: data, deletes of both kinds, manifests, lists, statistics."""
    first = ids(table)[0]
    with table.update_statistics() as update:
        update.set_statistics(_puffin(table, first))
    writer.upsert(table, [row(0, "a", "new")], ["id"])
    writer.delete_where(table, lambda item: item["id"] == 1)
    old = [one.path for one in oracle.live_files(table)]
    writer.append(table, [row(9)])
    writer.remove_files(table, old)
    *going, head = ids(aged(table, 30))
    before, rows = reached(table.metadata), oracle.live_rows(table)
    process = expire(world)
    assert ids(table) == [head]
    assert set(condemned_paths(world)) == before - reached(table.metadata)
    assert len(condemned_paths(world)) == len(set(condemned_paths(world)))
    assert all(Path(local_path(path)).exists() for path in condemned_paths(world))
    world.later(DAY_S)
    gone = condemned_paths(world)
    world.done("empty-trash")
    assert not any(Path(local_path(path)).exists() for path in gone)
    assert (oracle.live_rows(table), condemned_paths(world)) == (rows, [])
    marked = f"marked {len(gone)} files"
    assert process.receipt.words.startswith(f"expired {len(going)} of {len(going) + 1} snapshots; {marked} (")
    figures = {one.name: one.value for one in process.receipt.figures}
    assert figures["snapshots_expired"] == len(going)
    assert figures["statistics_files_condemned"] == 1


def _puffin(table: Table, snapshot_id: int) -> StatisticsFile:
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


def test_the_base_of_a_running_process_stays_with_its_chain(world: World, table: Table) -> None:
    """amoro #1190, #1736: it was expired under the process."""
    base = ids(table)[-1]
    rewrite = world.begin(OptimizingType.FULL)
    writer.append(table, [row(50)])
    writer.append(table, [row(51)])
    _, _, _, middle, newer, head = ids(aged(table, 30))
    assert middle == base
    expire(world)
    assert ids(table) == [base, newer, head]
    world.run_all(rewrite)
    assert world.committing.commit(rewrite) is ProcessStatus.SUCCESS


def test_what_an_undo_brings_files_back_from_stays_with_its_chain(world: World, table: Table) -> None:
    rewrite = world.begin_and_run(OptimizingType.FULL)
    assert world.committing.commit(rewrite) is ProcessStatus.SUCCESS
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


# REST


class RestWorld(World):
    """With a second catalog, of the same tables, by REST."""

    def _commit_due(self, process_id: str, catalog: str) -> None:
        self.heard.commits.append(process_id)


def test_a_tag_lost_in_the_window_of_a_rest_catalog_is_back_with_its_rows_and_told(
    new_world: Callable[..., World], catalog: Any
) -> None:
    world = new_world(kind=RestWorld)
    warehouse = catalog.properties["warehouse"]
    with RestServer(catalog) as server:
        world.catalogs.add(CatalogConfig("rest", (("type", "rest"), ("uri", server.uri), ("warehouse", warehouse))))
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


# Real losses


def test_a_file_that_a_kept_snapshot_removed_is_released(world: World) -> None:
    """Subtracting what is named, instead of what is live, would leak it for ever."""
    table = made(world, 2, AT_ONCE)
    path = oracle.live_files(table)[0].path
    writer.remove_files(table, [path])
    aged(table, 30)
    expire(world)
    world.done("empty-trash")
    assert lost_files(table) == set()
    assert not Path(local_path(path)).exists()


def test_a_manifest_that_is_missing_or_a_list_without_files_stops_everything(world: World, table: Table) -> None:
    """paimon #7710, #6479: the live set was short."""
    writer.remove_files(table, [oracle.live_files(table)[0].path])
    head, before = aged(table, 30).current_snapshot(), reached(table.metadata)
    manifest = Path(local_path(oracle.read_avro(head.manifest_list)[1][0]["manifest_path"]))
    kept = manifest.read_bytes()
    process_id = world.begin_action(NAME)
    manifest.unlink()
    with pytest.raises(Exception, match="does not exist"):
        world.committing.commit(process_id)
    assert world.status(process_id) is ProcessStatus.CLEARING
    assert condemned_paths(world) == []
    manifest.write_bytes(kept)
    world.later(3600)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert set(condemned_paths(world)) == before - reached(table.refresh().metadata)


# As Iceberg tests `TestRemoveSnapshots` and `TestExpireSnapshotsAction`


def lost_files(table: Table) -> set[str]:
    return {path for path in reached(table.refresh().metadata) if not Path(local_path(path)).exists()}


def test_expire_with_statistics_files_with_reuse(world: World) -> None:
    table = made(world, 2, AT_ONCE)
    first, second = ids(table)
    path = f"{table.location()}/metadata/shared.stats"
    Path(local_path(path)).write_bytes(b"puffin")
    for one in (first, second):
        said: dict[str, Any] = {"snapshot-id": one, "statistics-path": path, "file-size-in-bytes": 6}
        with table.update_statistics() as update:
            update.set_statistics(StatisticsFile(**said, **{"file-footer-size-in-bytes": 1, "blob-metadata": []}))
    aged(table, 30)
    expire(world)
    world.done("empty-trash")
    assert [one.snapshot_id for one in table.refresh().metadata.statistics] == [second]
    assert lost_files(table) == set()


def test_retain_files_on_retained_branches(world: World) -> None:
    """A file that main has removed stays as long as a branch has it, and goes with the branch."""
    table = made(world, 1, AT_ONCE)
    writer.create_branch(table, "test", max_ref_age_ms=60 * DAY_MS)
    path = oracle.live_files(table)[0].path
    writer.append(table, [row(5)], branch="test")
    writer.remove_files(table, [path])
    writer.append(table, [row(6)])
    aged(table, 30)
    expire(world)
    world.done("empty-trash")
    assert Path(local_path(path)).exists()
    whole(table)
    aged(table, 40)
    expire(world)
    world.done("empty-trash")
    assert not Path(local_path(path)).exists()
    assert (set(table.refresh().metadata.refs), lost_files(table)) == ({"main"}, set())


def test_cleanup_when_branch_on_main_aged_off(world: World) -> None:
    """The branch stands in main's history: only its name goes."""
    table = made(world, 2, {**AT_ONCE, "history.expire.max-snapshot-age-ms": str(90 * DAY_MS)})
    writer.create_branch(table, "branch", ids(table)[0], max_ref_age_ms=1)
    process = expire(world)
    assert (len(ids(table)), set(table.metadata.refs), lost_files(table)) == (2, {"main"}, set())
    assert process.receipt.words == "expired 0 of 2 snapshots, removed branch"
