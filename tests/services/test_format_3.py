"""Format 3: its types and defaults, upgrades to it, what of it is refused, and lineage through random stories."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType, StructType, UnknownType

from amoro_core.errors import (
    CommitConflict,
    CommitRefused,
    DataFileMissing,
    InvalidArgument,
    TableRefused,
    UnreadableFile,
)
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.formats.ports import Readable
from amoro_core.iceberg.commit import committing
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import TableScan
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from amoro_core.model.verification import Verification
from tests.engine import oracle, writer, writer3
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.builders import make as make_known
from tests.engine.commits import Change, commit
from tests.engine.files import write_data_files
from tests.engine.oracle import lineage_of
from tests.engine.parquet_rows import local_path
from tests.engine.writer3 import upgrade as upgrade_table
from tests.faults.rest import RestServer
from tests.iceberg.rewriting import loaded, rewritten, staged
from tests.iceberg.test_contradictions import NANOS, Rewrite, as_format_3, column, only_unknown
from tests.services.world import World, make_small_files
from tests.tiers import sample

KINDS = [OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL]
ID = NestedField(1, "id", LongType(), required=False)


def make(catalog: SqlCatalog, *columns: NestedField, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    """A table of format 3. pyiceberg makes those of format 2 only, whose columns then get their types."""
    unknown = [one for one in columns if isinstance(one.field_type, UnknownType)]
    first = (NestedField(one.field_id, one.name, LongType()) if one in unknown else one for one in columns)
    properties = {"self-optimizing.enabled": "true"}
    table = writer.make_table(catalog, "db.t", Schema(ID, *first), spec, format_version=3, properties=properties)
    with table.update_schema(allow_incompatible_changes=True) as change:
        for one in unknown:
            change.update_column(one.name, one.field_type)
    return table


def fill(table: Table, *values: Mapping[str, Any], first: int = 0) -> None:
    """A file for each value: rows that have it and ids of their own."""
    for at, value in enumerate(values, start=first):
        writer.append(table, [{"id": 10 * at + number, **value} for number in range(3)])


def optimize(world: World, table: Table, kind: OptimizingType = OptimizingType.FULL) -> None:
    """The rows that the slow reader sees stay, and no deletes."""
    before = oracle.live_rows(table)
    assert before
    assert world.optimize(kind) is ProcessStatus.SUCCESS
    oracle.assert_same_rows(before, oracle.live_rows(table))
    found = world.verifying.verify(parse_table("cat.db.t"), None, None, lambda: False)
    assert found.is_sound, found.problems
    assert {file.content for file in oracle.live_files(table)} == {oracle.DATA}


@pytest.mark.parametrize("kind", sample(list(KINDS), every=3))
def test_rows_keep_the_defaults_of_columns_that_their_files_lack(
    world: World, catalog: SqlCatalog, kind: OptimizingType
) -> None:
    inner = StructType(NestedField(3, "a", LongType(), required=False))
    table = make(catalog, NestedField(2, "s", inner, required=False))
    fill(table, *({"s": {"a": at}} for at in range(5)), {"s": None})
    with table.update_schema() as change:
        change.add_column("c", StringType(), default_value="x")
        change.add_column(("s", "d"), LongType(), default_value=7)
    fill(table, *({"c": "x", "s": {"a": 1, "d": 7}}, {"c": None, "s": {"a": 2, "d": None}}), first=6)
    writer.row_delta(
        table,
        equality_deletes=[
            (["id", "c"], [{"id": 0, "c": "x"}, {"id": 11, "c": None}, {"id": 60, "c": "x"}]),
            (["s.d"], [{"s": {"d": None}}]),
        ],
    )
    rows = oracle.live_rows(table)
    # 11 has the default, not null; those with a null struct have a null `s.d`, and so do those that say so.
    assert sorted(row[0] for row in rows) == [*range(1, 3), *range(10, 13), *range(20, 23), *range(30, 33),
                                              *range(40, 43), 61, 62]  # fmt: skip
    assert {row[2] for row in rows} == {"x"}

    optimize(world, table, kind)

    for file in oracle.live_files(table):
        names = pq.read_schema(local_path(file.path)).names
        assert [name for name in names if not name.startswith("_")] == ["id", "s", "c"]


# Upgrades of tables to format 3: by one update without a snapshot, asked for, checked before, and never lost


TABLE = parse_table("cat.db.t")


@pytest.fixture(params=[1, 2])
def table(world: World, request: pytest.FixtureRequest) -> Table:
    made = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, request.param)
    writer.append(made, [row(1), row(2)])
    writer.append(made, [row(3, "b")])
    writer.create_tag(made, "kept")
    return made


def said(table: Table) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(local_path(loaded(table).metadata_location)).read_text())
    return found


def upgrade(world: World, version: int = 3, *, dry_run: bool = False) -> Any:
    return world.services.maintaining.upgrade(TABLE, version, dry_run=dry_run)


def test_a_table_is_upgraded_without_a_snapshot_and_keeps_everything_else(world: World, table: Table) -> None:
    before, rows, was = said(table), oracle.live_rows(table), loaded(table).metadata
    done = upgrade(world)
    after, now = said(table), loaded(table).metadata

    assert (done.before, done.after, done.is_done) == (before["format-version"], 3, True)
    assert (after["format-version"], after["next-row-id"]) == (3, 0)
    assert (now.snapshots, now.refs, now.snapshot_log) == (was.snapshots, was.refs, was.snapshot_log)
    assert len(now.metadata_log) == len(was.metadata_log) + 1
    allowed = {"format-version", "next-row-id", "last-updated-ms", "metadata-log"}
    if before["format-version"] == 1:  # later formats have neither, and all have sequence numbers
        allowed |= {"schema", "partition-spec", "last-sequence-number"}
        assert after["last-sequence-number"] == 0
        before["snapshots"] = [{**one, "sequence-number": 0} for one in before["snapshots"]]
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed <= allowed
    oracle.assert_same_rows(rows, oracle.live_rows(table))


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_dry_run_changes_nothing_and_another_version_or_the_one_that_it_has_is_refused(
    world: World, table: Table
) -> None:
    before = loaded(table).metadata_location
    told = upgrade(world, dry_run=True)
    assert (told.before, told.after, told.is_done) == (2, 3, False)
    assert "can't be undone" in told.notes[0]
    for version in (1, 2, 4):
        for dry_run in (False, True):
            with pytest.raises(InvalidArgument, match=f"can't be upgraded to format version {version}"):
                upgrade(world, version, dry_run=dry_run)
    assert loaded(table).metadata_location == before
    upgrade(world)
    before = loaded(table).metadata_location
    with pytest.raises(InvalidArgument, match=r"cat\.db\.t has format version 3 already"):
        upgrade(world)
    assert loaded(table).metadata_location == before


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [("encryption.key-id", "k", "encryption"), ("write.data.path", "file:///elsewhere/data", "location")],
)
@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_is_not_handled_or_may_not_be_written_is_not_upgraded(
    world: World, table: Table, key: str, value: str, reason: str
) -> None:
    world.set_properties({key: value})
    before = loaded(table).metadata_location
    for dry_run in (False, True):
        with pytest.raises(TableRefused) as refused:
            upgrade(world, dry_run=dry_run)
        assert (refused.value.reason, loaded(table).metadata_location) == (reason, before)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_is_encrypted_meanwhile_is_not_upgraded(world: World, table: Table) -> None:
    sent = world.iceberg.before_sending(lambda: world.set_properties({"encryption.key-id": "k"}))
    with pytest.raises(TableRefused) as refused:
        upgrade(world)
    assert (refused.value.reason, len(sent), loaded(table).metadata.format_version) == ("encryption", 1, 2)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_commits_of_others_meanwhile_are_kept_and_a_writer_that_always_wins_ends_it(world: World, table: Table) -> None:
    sent = world.iceberg.before_sending(*[lambda: writer.create_tag(table, f"t{len(sent)}")] * 20)
    with pytest.raises(CommitConflict):
        upgrade(world)
    assert (len(sent), loaded(table).metadata.format_version) == (20, 2)
    sent = world.iceberg.before_sending(*[lambda: writer.append(table, [row(9)])] * 3)
    upgrade(world)
    assert len(sent) == 4
    metadata = loaded(table).metadata
    assert (metadata.format_version, len(metadata.snapshots), metadata.next_row_id) == (3, 5, 0)
    assert oracle.live_rows(table).total() == 6
    # As after an answer that got lost: the second sending finds the first.
    before = loaded(table).metadata_location
    committing.send(table.catalog, loaded(table), sent[-1])
    assert loaded(table).metadata_location == before


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_commit_staged_before_it_is_refused(world: World, table: Table) -> None:
    fresh, attempt = staged(table, rewritten(table))
    upgrade(world)
    before = loaded(table).metadata_location
    with pytest.raises(CommitRefused, match="lacks its row ids"):
        committing.send(table.catalog, fresh, attempt.payload)
    assert loaded(table).metadata_location == before


def test_equality_deletes_are_told_as_what_blocks_a_later_upgrade(world: World, catalog: SqlCatalog) -> None:
    table = make_known(catalog, 2)
    writer.append(table, [row(1), row(2), row(3)])
    assert not any("format 4" in note for note in upgrade(world, dry_run=True).notes)
    writer.upsert(table, [row(1, value="new"), row(2, value="new")], ["id"])
    told = "Equality deletes (2 keys) block an upgrade to format 4, which has none: amoro optimize cat.db.t --type full"
    assert upgrade(world, dry_run=True).notes[-1].startswith(told)
    with pytest.raises(InvalidArgument, match="can't be upgraded to format version 4") as refused:
        upgrade(world, 4)
    assert refused.value.hint.startswith(f"Say --format-version 3. {told}")
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    with pytest.raises(InvalidArgument) as refused:
        upgrade(world, 4)
    assert refused.value.hint == "Say --format-version 3."


#: Each commits to the table of the test below.
COMMITTING = ("clean-dangling-delete-files", "compute-statistics", "rewrite-manifests", "expire-snapshots")


@pytest.fixture(params=["sql", "rest"])
def world_of_either(request: pytest.FixtureRequest, tmp_path: Path, catalog: SqlCatalog) -> Iterator[World]:
    """With the tables of the catalog, which a server has in between where it is REST."""
    home = tmp_path / "either"
    home.mkdir()
    with RestServer(catalog) as server:
        world = World(home, catalog, config=server.config() if request.param == "rest" else None)
        yield world
        world.close()


def test_no_commit_of_ours_loses_the_next_row_id(world_of_either: World, catalog: SqlCatalog) -> None:
    """pyiceberg sets it to null where a snapshot lacks `added-rows`; ids would be given twice, or never again."""
    world = world_of_either
    properties = {"maintenance.rewrite-manifests.min-count": "2"}
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, format_version=3, properties=properties)
    for number in range(4):
        writer.append(table, [row(number, "a"), row(10 + number, "b")])
    writer.upsert(table, [row(1, "a", "new")], ["id"])

    def next_row_id() -> int:
        """By the metadata file itself; no row of any snapshot has that id or a later one."""
        found: int = said(table)["next-row-id"]
        for snapshot in table.refresh().metadata.snapshots:
            for file in oracle.live_files(table, snapshot.snapshot_id):
                assert file.content or file.first_row_id is None or file.first_row_id + file.record_count <= found
        return found

    seen = [next_row_id()]
    process_id = world.begin_and_run(OptimizingType.FULL)
    writer.append(table, [row(50, "a")])
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    seen.append(next_row_id())
    begun = world.maintaining.undo(process_id)
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    seen.append(next_row_id())
    data = [file for file in oracle.live_files(table) if not file.content]
    writer.remove_files(table, [file.path for file in data if file.partition == ("a",)])
    world.now = datetime.now(UTC) + timedelta(days=40)
    for action in COMMITTING:
        for part in "ab" if action == "rewrite-manifests" else "":
            writer.append(table, [row(100 + ord(part), part)])
        before, at = oracle.lineage_of(table), table.refresh().metadata_location
        assert world.run(action) is ProcessStatus.SUCCESS, action
        assert table.refresh().metadata_location != at, action
        assert oracle.lineage_of(table) == before
        seen.append(next_row_id())
    assert (seen[0], seen) == (9, sorted(seen))


# What of format 3 is not handled: every entry refuses the table by the column or the field, and changes nothing


#: What pyiceberg makes no model of, or one that lacks it.
UNLOADABLE: list[tuple[Rewrite, str, str]] = [
    (column("variant", "v"), "type", "column v has the type variant"),
    (lambda one: one.update({"encryption-keys": [{"key-id": "k"}]}), "encryption", "the metadata has encryption-keys"),
    (column("timestamp_ns", "n", **{"initial-default": NANOS}), "default", "column n has the initial-default"),
    (lambda one: one.update({"format-version": 4}), "format-version", "format version 4 is not handled"),
]
#: What it makes one of.
LOADABLE: list[tuple[Rewrite, str, str]] = [
    (column("geography", "g"), "type", "column g has the type geography, which is not handled"),
    (only_unknown, "type", "the table has no column that Parquet can hold"),
    (column("int", "i", **{"initial-default": "5"}), "default", "column i has the initial-default '5'"),
]


@pytest.fixture
def plain_table(world: World, catalog: SqlCatalog) -> Table:
    made = make_small_files(catalog, spec=BY_PART, properties={"self-optimizing.enabled": "true"})
    world.table()
    return made.refresh()


def entries(world: World) -> dict[str, Callable[[], Any]]:
    """Whatever writes to a table, or says what would be written."""
    table_id = world.table().table_id
    names = [name for name in world.maintaining.names if not name.startswith(("hudi-", "paimon-"))]
    assert CLUSTER in names
    return {
        "plan": lambda: world.tables.preview(TABLE, OptimizingType.FULL, True),
        "optimize": lambda: world.tables.require_optimizable(TABLE),
        "optimize --type full": lambda: world.begin(OptimizingType.FULL),
        "service": lambda: world.planning.begin(table_id, trigger="evaluation"),
        **{f"{name} --dry-run": lambda name=name: world.maintaining.preview(TABLE, name) for name in names},
        **{name: lambda name=name: world.maintaining.begin(table_id, name, trigger="request") for name in names},
    }


def refused(enter: Callable[[], Any]) -> TableRefused:
    with pytest.raises(TableRefused) as found:
        enter()
    return found.value


@pytest.mark.parametrize(("change", "reason", "said"), sample([*UNLOADABLE, *LOADABLE], every=3))
def test_every_entry_refuses_it_by_name_and_changes_nothing(
    world: World, plain_table: Table, change: Rewrite, reason: str, said: str
) -> None:
    metadata = Path(local_path(plain_table.metadata_location))
    metadata.write_text(as_format_3(plain_table, change))
    before = sorted((path, path.stat().st_mtime_ns) for path in metadata.parents[1].rglob("*"))
    every = entries(world)
    if (change, reason, said) in UNLOADABLE:
        for dry_run in (True, False):
            every[f"upgrade, {dry_run=}"] = lambda dry_run=dry_run: upgrade(world, dry_run=dry_run)
    told = {name: refused(enter) for name, enter in every.items()}
    assert {name for name, error in told.items() if error.reason != reason or said not in error.message} == set()
    runtime = world.refresh()
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, reason)
    assert said in runtime.status_reason
    assert sorted((path, path.stat().st_mtime_ns) for path in metadata.parents[1].rglob("*")) == before


# Random tables of format 3 under random writers: no rewrite changes a row's id or its last update


def test_rows_that_got_ids_since_the_plan_keep_them(world: World, catalog: SqlCatalog) -> None:
    """The outputs leave the ids of an upgraded table's rows to the commit, but another commit gave them theirs."""
    table = make_known(catalog, 2)
    for number in range(4):
        writer.append(table, [row(number)])
    upgrade_table(table)
    process_id = world.begin_and_run(OptimizingType.FULL)
    writer.append(table, [row(9)])
    before = lineage_of(table)
    assert None not in {row_id for row_id, _ in before.values()}
    assert world.committing.commit(process_id) is not ProcessStatus.SUCCESS
    assert lineage_of(table) == before


# Deletion vectors: optimized, undone and maintained, without a row that changes


MINOR, MAJOR, FULL = OptimizingType
#: Everything is a segment, so that minor converts.
SEGMENTS = {
    "self-optimizing.fragment-ratio": "1000000000",
    "self-optimizing.target-size": "1048576",
    "self-optimizing.major.trigger.duplicate-ratio": "0.5",
}
PARTS = ("a", 0), ("b", 100)
AT_ONCE = {
    "maintenance.expire-snapshots.trash-keep": "0",
    "maintenance.clean-orphan-files.trash-keep": "0",
    "snapshot.min-count": "1",
}


def eight_files(world: World, version: int = 3, **properties: str) -> Table:
    """Four files in each of two partitions."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA, BY_PART, version, {**AT_ONCE, **properties})
    for number in range(4):
        writer.append(table, [row(number * 20 + at + first, part) for part, first in PARTS for at in range(20)])
    return table


def vectors_of(table: Table) -> list[oracle.LiveFile]:
    table.refresh()
    return [one for one in oracle.live_files(table) if one.is_vector]


def by_kind(table: Table) -> Counter[str]:
    """How many vectors, position delete files and equality delete files the head has."""
    names = {0: "data", 1: "files", 2: "equality"}
    return Counter("vectors" if one.is_vector else names[one.content] for one in oracle.live_files(table.refresh()))


def has_nothing_to_do(world: World, kind: OptimizingType) -> bool:
    return world.planning.begin(world.table().table_id, trigger="request", requested=kind).process_id is None


def converted(world: World) -> Table:
    """Segments with vectors, a position delete file for each partition and an equality delete."""
    table = eight_files(world, 2, **SEGMENTS)
    writer.delete_where(table, lambda item: item["id"] % 20 == 2)
    writer3.upgrade(table)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20, 60))
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (1, 61))
    writer.upsert(table, [row(3, "a", "new")], ["id"])
    assert by_kind(table) == {"data": 9, "vectors": 6, "files": 2, "equality": 1}
    return table


@pytest.mark.parametrize("kind", list(OptimizingType))
def test_no_row_changes_by_rewriting_files_with_vectors(world: World, kind: OptimizingType) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] % 4 == 1)
    writer3.delete_rows(table, lambda item: item["id"] in (2, 102, 162))
    writer.upsert(table, [row(4, "a", "new")], ["id"])
    before, rows = lineage_of(table), oracle.live_rows(table)
    world.optimized(kind)
    assert (oracle.live_rows(table), lineage_of(table)) == (rows, before)
    assert by_kind(table) == {"data": 2}
    assert has_nothing_to_do(world, kind)


def test_conversions_leave_one_vector_for_each_file_and_nothing_else(world: World) -> None:
    table = converted(world)
    rows = oracle.live_rows(table)
    start = world.table_head()
    process_id = world.optimized(MINOR)
    assert oracle.live_rows(table) == rows
    assert verified(world, start).is_sound
    assert by_kind(table) == {"data": 9, "vectors": 8}
    assert sorted(one.record_count for one in vectors_of(table)) == [1, 1, 2, 2, 3, 3, 3, 4]
    # The vectors of b's other files stayed as they were; each of two tasks has written a file.
    written = {one.path for one in vectors_of(table) if process_id in one.path}
    assert len(written) == len(world.tasks(process_id)) == 2
    assert has_nothing_to_do(world, MINOR)
    writer3.delete_rows(table, lambda item: item["id"] in (4, 44))
    rows = oracle.live_rows(table)
    world.optimized(FULL)
    assert oracle.live_rows(table) == rows
    assert by_kind(table) == {"data": 2}


def test_undoing_a_conversion_puts_vectors_back_beside_others_of_the_same_file(world: World) -> None:
    """With a limit of files only some are converted: their old vectors lie in a file with some that are still live."""
    table = converted(world)
    world.set_properties({"self-optimizing.max-file-count": "4"})
    before, rows = {(one.path, one.offset) for one in oracle.live_files(table.refresh())}, oracle.live_rows(table)
    process_id = world.optimized(MINOR)
    after = {(one.path, one.offset) for one in oracle.live_files(table.refresh())}
    gone = {path for path, offset in before - after if offset}
    assert gone & {path for path, _ in after}
    begun = world.maintaining.undo(process_id)
    assert begun.process_id, begun.reason
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS, world.process(begun.process_id).failure
    assert {(one.path, one.offset) for one in oracle.live_files(table.refresh())} == before
    assert oracle.live_rows(table) == rows


def test_a_conversion_whose_vector_was_replaced_since_is_not_undone(world: World) -> None:
    table = converted(world)
    process_id = world.optimized(MINOR)
    writer3.delete_rows(table, lambda item: item["id"] == 45)
    rows = oracle.live_rows(table)
    with pytest.raises(Exception, match=r"that it wrote is no longer live"):
        world.maintaining.undo(process_id)
    assert oracle.live_rows(table) == rows


def delete_meanwhile(table: Table, times: int) -> tuple[Counter[Any], Any]:
    """Others delete four rows so often; the rows then, and their lineage."""
    for at in range(times):
        writer3.delete_rows(table, lambda item, at=at: item["id"] in (4 + at, 44 + at, 65 + at, 150 + at))
    return oracle.live_rows(table), lineage_of(table)


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_that_come_while_files_are_converted_are_joined(world: World, times: int) -> None:
    """Of files with an old vector, with a position delete file alone, and without deletes of rows so far."""
    table = converted(world)
    process_id = world.begin_and_run(MINOR)
    rows, _ = delete_meanwhile(table, times)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
    assert oracle.live_rows(table) == rows
    assert by_kind(table) == {"data": 9, "vectors": 8}
    # The files in which all vectors were joined with others are gone.
    named = {local_path(one.path) for one in vectors_of(table)}
    there = {str(path) for path in Path(local_path(table.location())).rglob(f"{process_id}*.puffin")}
    assert there <= named
    assert has_nothing_to_do(world, MINOR)


@pytest.mark.parametrize("times", [1, 2])
def test_vectors_that_come_while_files_are_rewritten_follow_into_the_outputs(world: World, times: int) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] in (2, 21, 102))
    process_id = world.begin_and_run(FULL)
    left = delete_meanwhile(table, times)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS, world.process(process_id).failure
    assert (oracle.live_rows(table), lineage_of(table)) == left
    assert by_kind(table) == {"data": 2, "vectors": 2}
    assert sum(one.record_count for one in vectors_of(table)) == 4 * times
    world.optimized(FULL)
    assert (oracle.live_rows(table), lineage_of(table)) == left


def test_a_conversion_of_rows_that_came_back_meanwhile_is_dropped(world: World) -> None:
    table = converted(world)
    process_id = world.begin_and_run(MINOR)
    old = next(one for one in vectors_of(table) if one.record_count == 3)
    data = next(one for one in oracle.live_files(table) if one.path == old.referenced)
    kept = oracle.vector_positions(old)[1:]
    change = Change(tuple(writer3.vectors(table, {data: kept})), removed_vectors=frozenset({(old.path, old.offset)}))
    commit(table, lambda head: change)
    rows, head = oracle.live_rows(table), world.table_head()
    world.committing.commit(process_id)
    assert oracle.live_rows(table) == rows
    assert old.referenced in {one.referenced for one in vectors_of(table)}
    assert world.table_head() != head or "rows of it have come back" in world.process(process_id).failure


def test_only_the_vectors_that_dangle_go(world: World) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20))
    first = min(oracle.live_files(table), key=lambda one: one.data_sequence).path
    writer.remove_files(table, {first})
    assert by_kind(table) == {"data": 7, "vectors": 4}
    rows = oracle.live_rows(table)
    assert world.run("clean-dangling-delete-files") is ProcessStatus.SUCCESS
    assert by_kind(table) == {"data": 7, "vectors": 3}
    assert {one.referenced for one in vectors_of(table)}.isdisjoint({first})
    assert oracle.live_rows(table) == rows


def test_a_puffin_file_is_deleted_with_the_last_snapshot_that_has_one_of_its_vectors(world: World) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] % 100 in (0, 20))
    (path,) = {local_path(one.path) for one in vectors_of(table)}
    # Of one file of each partition: two old vectors stay.
    writer3.delete_rows(table, lambda item: item["id"] % 100 == 1)
    sweep(world, table)
    assert len([one for one in vectors_of(table) if local_path(one.path) == path]) == 2
    assert Path(path).exists()
    rows = oracle.live_rows(table)
    writer3.delete_rows(table, lambda item: item["id"] % 100 == 21)
    assert path not in {local_path(one.path) for one in vectors_of(table)}
    sweep(world, table)
    assert not Path(path).exists()
    assert set(oracle.live_rows(table)) < set(rows)
    for one in vectors_of(table):
        assert Path(local_path(one.path)).exists()


def sweep(world: World, table: Table) -> None:
    """Expire all snapshots but the head, and delete the files that are then due."""
    aged(table, 30)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    world.done("expire-snapshots")
    assert len(table.refresh().metadata.snapshots) == 1
    world.later(86_400)
    world.done("empty-trash")


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_vector_fails_the_task_by_its_place_and_nothing_changes(world: World, is_gone: bool) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] == 0)
    (vector,) = vectors_of(table)
    path = Path(local_path(vector.path))
    content = path.read_bytes()
    path.unlink()
    if not is_gone:
        path.write_bytes(content[: vector.offset + 9] + b"?" + content[vector.offset + 10 :])
    head, files = world.table_head(), {one.path for one in oracle.live_files(table)}
    process_id = world.begin(FULL)
    where = f"{vector.path} does not exist" if is_gone else f"{vector.path} at {vector.offset} has another checksum"
    with pytest.raises(DataFileMissing if is_gone else UnreadableFile, match=where):
        world.run_all(process_id)
    assert (world.table_head(), {one.path for one in oracle.live_files(table)}) == (head, files)


def test_a_head_with_two_vectors_for_one_file_is_refused_and_nothing_changes(world: World) -> None:
    table = eight_files(world)
    writer3.delete_rows(table, lambda item: item["id"] == 0)
    first = vectors_of(table)[0]
    data = next(one for one in oracle.live_files(table) if one.path == first.referenced)
    commit(table, lambda head: Change(tuple(writer3.vectors(head, {data: [1]}))))
    head = world.table_head()
    with pytest.raises(TableRefused, match=f"two deletion vectors name {data.path}") as refused:
        world.begin(FULL)
    assert refused.value.reason == "deletion-vector"
    assert f"{first.path} at {first.offset}" in refused.value.message
    assert world.table_head() == head


# Optimizing tables of format 3 from the plan to the commit: every row keeps its id and its last update


MERGE = "self-optimizing.rewrite.use-parquet-row-group-merge"


def verified(world: World, before: int | None = None) -> Verification:
    return world.verifying.verify(TABLE, before, None, lambda: False)


def written(catalog: SqlCatalog, version: int = 3) -> Table:
    """Rows in many small files of two partitions, some of which were written anew."""
    table = make_known(catalog, version, BY_PART)
    for first in range(0, 60, 10):
        writer.append(table, [row(first + number, "ab"[number % 2]) for number in range(10)])
    writer.upsert(table, [row(3, "b", "new"), row(40, "a", "new")], ["id"])
    return table


@pytest.mark.parametrize(
    ("kind", "copies"),
    sample([*product((OptimizingType.MINOR, OptimizingType.MAJOR, OptimizingType.FULL), ("true", "false"))], every=3),
)
def test_every_row_keeps_its_lineage_however_often_it_is_rewritten(
    world: World, catalog: SqlCatalog, kind: OptimizingType, copies: str
) -> None:
    table = written(catalog)
    world.set_properties({f"{MERGE}.enabled": copies, f"{MERGE}.min-avg-row-group-size-bytes": "0"})
    start = table.refresh().metadata.current_snapshot_id
    before = lineage_of(table)
    assert len({row_id for row_id, _ in before.values()}) == len(before) == 60
    assert {updated for _, updated in before.values()} == set(range(1, 8))
    assert world.optimize(kind) is ProcessStatus.SUCCESS
    assert lineage_of(table) == before
    writer.append(table, [row(100 + number, "ab"[number % 2]) for number in range(10)])
    before = lineage_of(table)
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    assert lineage_of(table) == before
    assert world.files_copied == (2 if copies == "true" else 0)  # outputs of the first: they store the lineage
    found = verified(world, start)
    assert (found.is_sound, len(found.comparisons)) == (True, 2)


def test_rows_of_an_upgraded_table_get_their_ids_with_the_rewrite_and_keep_their_last_updates(
    world: World, catalog: SqlCatalog
) -> None:
    table = upgrade_table(written(catalog, 2))
    before = lineage_of(table)
    assert {row_id for row_id, _ in before.values()} == {None}
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    after = lineage_of(table)
    assert {key: updated for key, (_, updated) in after.items()} == {key: one for key, (_, one) in before.items()}
    assert sorted(row_id for row_id, _ in after.values() if row_id is not None) == list(range(60))
    assert verified(world).is_sound


@pytest.mark.parametrize(("rows", "problems"), [([0, 1, 2, 3], 1), ([0, 1, 2, 4], 0)], ids=["the same", "other rows"])
def test_a_rewrite_that_loses_the_lineage_of_the_same_rows_is_found(
    world: World, catalog: SqlCatalog, rows: list[int], problems: int
) -> None:
    table = make_known(catalog, 3)
    writer.append(table, [row(number) for number in range(4)])
    replaced = frozenset(file.path for file in oracle.live_files(table))
    added = tuple(write_data_files(table, [row(number) for number in rows]))
    commit(table, lambda head: Change(added, replaced, summary={PROCESS_ID: "careless"}))
    found = verified(world)
    (partition,) = found.comparisons[0].partitions
    assert (partition.before.rows, partition.after.rows, partition.is_equal) == (4, 4, False)
    assert len(found.problems) == problems
    for problem in found.problems:
        assert problem.startswith("the rows of the table are the same in snapshots ")
        assert problem.endswith(", but not their ids or last updates")


@pytest.mark.parametrize(("number", "other", "is_wrong"), [(0, None, True), (0, 7, True), (None, 7, False)])
def test_a_file_that_stays_but_whose_rows_get_other_ids_is_found(
    world: World, catalog: SqlCatalog, number: int | None, other: int | None, is_wrong: bool
) -> None:
    table = make_known(catalog, 3)
    writer.append(table, [row(1)])
    writer.append(table, [row(2)])
    before, head = (one.snapshot_id for one in table.refresh().metadata.snapshots)
    read = IcebergTable.scan_of

    def scanned(opened: Readable, snapshot_id: int) -> TableScan:
        """As if a careless rewrite of manifests had lost what the first file's rows are numbered from."""
        found = read(opened, snapshot_id)
        first = other if snapshot_id == head else number
        return replace(found, files=[replace(one, data=replace(one.data, first_row_id=first)) for one in found.files])

    world.iceberg.table(scan_of=scanned)
    found = world.verifying.verify(TABLE, None, head, lambda: False)
    (path,) = (file.path for file in oracle.live_files(table, before))
    assert [problem for problem in found.problems if path in problem] == [
        f"the first row id of {path} is {number} in snapshot {before}, and {other} in {head}"
    ] * is_wrong
