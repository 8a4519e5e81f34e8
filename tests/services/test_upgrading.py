"""Upgrades of tables to format 3: by one update without a snapshot, asked for, checked before, and never lost."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from amoro_core.errors import CommitConflict, CommitRefused, InvalidArgument, TableRefused
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.iceberg import commit
from amoro_core.model.tables import parse_table
from amoro_core.services.upgrading import Upgrade, UpgradeService
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.iceberg.rewriting import loaded, optimized, rewritten, staged
from tests.services.rigs import Limits
from tests.services.world import World

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


def upgrade(world: World, version: int = 3, *, dry_run: bool = False) -> Upgrade:
    return UpgradeService(world.tables_of).upgrade(TABLE, version, dry_run=dry_run)


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


def test_the_first_commit_after_it_gives_ids(world: World, table: Table) -> None:
    rows = oracle.live_rows(table)
    upgrade(world)
    assert {file.first_row_id for file in oracle.live_files(table)} == {None}
    (path,) = (file.path for file in oracle.live_files(table) if file.partition == ("b",))
    optimized(table, rewritten(table, only=[path]))
    assert sorted(str(file.first_row_id) for file in oracle.live_files(table)) == ["0", "1"]
    assert loaded(table).metadata.next_row_id == 3
    oracle.assert_same_rows(rows, oracle.live_rows(table))


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_dry_run_changes_nothing_and_says_what_it_means(world: World, table: Table) -> None:
    before = loaded(table).metadata_location
    told = upgrade(world, dry_run=True)
    assert (told.before, told.after, told.is_done, loaded(table).metadata_location) == (2, 3, False, before)
    assert "can't be taken back" in told.notes[0]


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("version", [-1, 0, 1, 2, 4])
@pytest.mark.parametrize("table", [2], indirect=True)
def test_another_version_is_refused(world: World, table: Table, version: int, dry_run: bool) -> None:
    before = loaded(table).metadata_location
    with pytest.raises(InvalidArgument, match=f"can't be upgraded to format version {version}"):
        upgrade(world, version, dry_run=dry_run)
    assert loaded(table).metadata_location == before


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_has_the_format_is_refused(world: World, table: Table) -> None:
    upgrade(world)
    before = loaded(table).metadata_location
    with pytest.raises(InvalidArgument, match=r"cat\.db\.t has format version 3 already"):
        upgrade(world)
    assert loaded(table).metadata_location == before


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_is_not_handled_is_not_upgraded(world: World, table: Table, limits: Limits, dry_run: bool) -> None:
    before = loaded(table).metadata_location
    with limits(formats=(1, 2)), pytest.raises(TableRefused, match="format version 3 is not handled"):
        upgrade(world, dry_run=dry_run)
    assert loaded(table).metadata_location == before

    with table.transaction() as changing:
        changing.set_properties({"encryption.key-id": "k"})
    before = loaded(table).metadata_location
    with pytest.raises(TableRefused) as refused:
        upgrade(world, dry_run=dry_run)
    assert (refused.value.reason, loaded(table).metadata_location) == ("encryption", before)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_may_not_be_written_is_not_upgraded(world: World, table: Table, dry_run: bool) -> None:
    with table.transaction() as changing:
        changing.set_properties({"write.data.path": "file:///elsewhere/data"})
    before = loaded(table).metadata_location
    with pytest.raises(TableRefused) as refused:
        upgrade(world, dry_run=dry_run)
    assert (refused.value.reason, loaded(table).metadata_location) == ("location", before)


def between(world: World, happens: Callable[[], object], times: int) -> list[bytes]:
    """Let something happen before each of the first sendings; returns what was sent."""
    send, sent = IcebergTable.send, list[bytes]()

    def sending(self: IcebergTable, payload: bytes) -> None:
        sent.append(payload)
        if len(sent) <= times:
            happens()
        send(self, payload)

    world.iceberg.table(send=sending)
    return sent


@pytest.mark.parametrize("table", [2], indirect=True)
def test_commits_of_others_meanwhile_are_kept(world: World, table: Table) -> None:
    sent = between(world, lambda: writer.append(table, [row(9)]), times=3)
    upgrade(world)
    assert len(sent) == 4
    metadata = loaded(table).metadata
    assert (metadata.format_version, len(metadata.snapshots), metadata.next_row_id) == (3, 5, 0)
    assert oracle.live_rows(table).total() == 6


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_table_that_is_encrypted_meanwhile_is_not_upgraded(world: World, table: Table) -> None:
    def encrypted() -> None:
        with loaded(table).transaction() as changing:
            changing.set_properties({"encryption.key-id": "k"})

    sent = between(world, encrypted, times=1)
    with pytest.raises(TableRefused) as refused:
        upgrade(world)
    assert (refused.value.reason, len(sent), loaded(table).metadata.format_version) == ("encryption", 1, 2)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_writer_that_always_wins_ends_it(world: World, table: Table) -> None:
    sent = between(world, lambda: writer.create_tag(table, f"t{len(sent)}"), times=20)
    with pytest.raises(CommitConflict):
        upgrade(world)
    assert (len(sent), loaded(table).metadata.format_version) == (20, 2)


@pytest.mark.parametrize("table", [2], indirect=True)
def test_sent_twice_it_is_applied_once(world: World, table: Table) -> None:
    """As after an answer that got lost: the second sending finds the first."""
    sent = between(world, lambda: None, times=0)
    upgrade(world)
    before = loaded(table).metadata_location
    commit.send(table.catalog, loaded(table), sent[0])
    assert loaded(table).metadata_location == before


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_commit_staged_before_it_is_refused(world: World, table: Table) -> None:
    fresh, attempt = staged(table, rewritten(table))
    upgrade(world)
    before = loaded(table).metadata_location
    with pytest.raises(CommitRefused, match="lacks its row ids"):
        commit.send(table.catalog, fresh, attempt.payload)
    assert loaded(table).metadata_location == before
