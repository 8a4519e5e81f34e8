"""The commit of an expiry on real catalogs: what it leaves as Java does, what it never takes, and what tells of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import AddSnapshotUpdate, SetPartitionStatisticsUpdate, SetSnapshotRefUpdate

from amoro_core.errors import CommitConflict, CommitUnknown
from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.commit.committing import trace_of
from amoro_core.iceberg.maintenance.expiry import (
    RESTORED_FROM,
    LostRef,
    bring_back,
    lost_refs,
    stage_expiry,
    stage_restored,
    state_before,
    unused_metadata,
)
from amoro_core.iceberg.manifest.reading import read_list
from amoro_core.model.commits import SnapshotsRemoved, Trace
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.faults.rest import RestServer
from tests.tiers import count


@pytest.fixture
def rest(catalog: SqlCatalog) -> Iterator[Catalog]:
    with RestServer(catalog) as server:
        made = load_catalog("rest", type="rest", uri=server.uri)
        yield made
        made.close()


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = writer.make_table(catalog, "db.t", SCHEMA)
    for number in range(4):
        writer.append(made, [row(number)])
    return made.refresh()


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def expire(table: Table, *gone: int, refs: tuple[str, ...] = (), own: bool = True) -> SnapshotsRemoved:
    payload, evidence = stage_expiry(table.refresh(), set(gone), refs, clean=False, own_metadata=own)
    committing.send(table.catalog, table, payload)
    table.refresh()
    return evidence


def tag(table: Table, name: str, snapshot_id: int) -> None:
    table.catalog.load_table(table.name()).manage_snapshots().create_tag(snapshot_id, name).commit()


def answering(catalog: Catalog, first: Callable[[], object]) -> None:
    """Let something happen once, after the commit was prepared and before the catalog is asked for it."""
    asked = catalog.commit_table

    def ask(*arguments: Any) -> Any:
        catalog.commit_table = asked
        first()
        return asked(*arguments)

    catalog.commit_table = ask


def test_a_change_of_something_else_lets_the_same_be_sent_again_on_rest(rest: Catalog, table: Table) -> None:
    def refuse() -> None:
        raise CommitFailedException("somebody was faster")

    first, *_ = ids(table)
    seen = rest.load_table("db.t")
    payload, _ = stage_expiry(seen, {first}, (), clean=False, own_metadata=False)
    answering(rest, refuse)
    committing.send(rest, seen, payload)
    assert first not in ids(table)


# What is left


def test_parents_stay_named_and_the_log_has_no_gap(table: Table) -> None:
    first, second, third, fourth = ids(table)
    expire(table, second)
    left = {one.snapshot_id: one.parent_snapshot_id for one in table.metadata.snapshots}
    assert left == {first: None, third: second, fourth: third}
    assert [one.snapshot_id for one in table.metadata.snapshot_log] == [third, fourth]
    assert len(oracle.live_rows(table)) == 4


def test_statistics_of_both_kinds_go_with_their_snapshot(rest: Catalog, table: Table) -> None:
    """By REST those of partitions go by their own word: a server that is as pyiceberg leaves them behind."""
    first, second, third, _ = ids(table)
    said: dict[str, Any] = {"statistics-path": "file:///nowhere/a", "file-size-in-bytes": 9}
    more: dict[str, Any] = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
    kept = (first, second, third)
    with table.update_statistics() as update:
        for one in kept:
            update.set_statistics(StatisticsFile(snapshot_id=one, **said, **more))
    files = [PartitionStatisticsFile(snapshot_id=one, **said) for one in kept]
    updates = tuple(SetPartitionStatisticsUpdate(partition_statistics=one) for one in files)
    table.catalog.commit_table(table.refresh(), (), updates)
    expire(table, first)
    seen = rest.load_table("db.t")
    payload, evidence = stage_expiry(seen, {second}, (), clean=False, own_metadata=False)
    committing.send(rest, seen, payload)
    left = rest.load_table("db.t")
    assert trace_of(left, evidence) is Trace.LANDED
    assert [one.snapshot_id for one in left.metadata.statistics] == [third]
    assert [one.snapshot_id for one in left.metadata.partition_statistics] == [third]


def test_references_go_alone_or_with_their_snapshots_and_such_ones_are_not_lost(table: Table) -> None:
    first, second, *rest = ids(table)
    for name, target in (("old", first), ("kept", second), ("elsewhere", rest[0])):
        tag(table, name, target)
    only = expire(table, refs=("kept",))
    assert (table.metadata.refs.keys(), trace_of(table, only)) == ({"main", "old", "elsewhere"}, Trace.LANDED)
    evidence = expire(table, first, refs=("old",))
    assert (ids(table), set(table.metadata.refs)) == ([second, *rest], {"main", "elsewhere"})
    assert trace_of(table, evidence) is Trace.LANDED
    assert lost_refs(table, evidence) == ()


def test_what_is_gone_or_held_is_no_more_to_be_removed(table: Table) -> None:
    first, second, *_ = ids(table)
    tag(table, "held", second)
    for gone, refs, told in (
        ({first, 7}, (), "snapshot 7 is not in the table any more"),
        ({second}, (), f"tag held holds snapshot {second}"),
        ({first}, ("lost",), "the table has no branch or tag lost any more"),
    ):
        with pytest.raises(CommitConflict, match=told):
            stage_expiry(table.refresh(), gone, refs, clean=False, own_metadata=True)


# What nothing needs any more


def test_unused_schemas_and_specs_go_where_it_is_asked_for(catalog: SqlCatalog) -> None:
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART)
    writer.append(table, [row(1)])
    with table.update_schema() as schema:
        schema.add_column("second", SCHEMA.find_type("id"))
    with table.update_spec() as spec:
        spec.remove_field("part")
    writer.append(table, [row(2)])
    with table.update_schema() as schema:
        schema.add_column("third", SCHEMA.find_type("id"))
    first, second = ids(table)
    assert unused_metadata(table.refresh(), {first}) == ([], [0])  # files of the first spec are live
    writer.remove_files(table, [one.path for one in oracle.live_files(table) if one.spec_id == 0])
    newest = ids(table)[-1]
    writer.append(table, [row(3)])
    gone = {first, second, newest}
    specs, schemas = unused_metadata(table.refresh(), gone)
    payload, _ = stage_expiry(table, gone, (), clean=True, own_metadata=True)
    committing.send(table.catalog, table, payload)
    table.refresh()
    assert schemas == [0, 1]
    assert {one.schema_id for one in table.metadata.schemas} == {2}
    assert {one.spec_id for one in table.metadata.partition_specs} == {0, 1} - set(specs)


def test_a_schema_that_an_equality_delete_compares_by_stays(catalog: SqlCatalog) -> None:
    """Java lets it go, and then nobody knows the type of the column."""
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1), row(2)])
    writer.upsert(table, [row(1)], ["value"])
    with table.update_schema() as schema:
        schema.delete_column("value")
    writer.append(table, [{"id": 3, "part": "a"}])
    *gone, head = ids(table)
    snapshot = table.snapshot_by_id(head)
    assert any(one.content == ManifestContent.DELETES for one in read_list(table.io, snapshot.manifest_list))
    assert unused_metadata(table, set(gone)) == ([], [])


# Tags that are made meanwhile


def test_also_without_the_state_we_ourselves_write_no_metadata_that_loses_a_reference(table: Table) -> None:
    first, *_ = ids(table)
    payload, _ = stage_expiry(table, {first}, (), clean=False, own_metadata=False)
    answering(table.catalog, lambda: tag(table, "mine", first))
    with pytest.raises((CommitConflict, CommitUnknown)):
        committing.send(table.catalog, table, payload)
    assert table.refresh().metadata.refs["mine"].snapshot_id == first


class Watched(InMemoryCatalog):
    """Something happens before it writes metadata."""

    before_writing: Callable[[], object] = staticmethod(lambda: None)

    def _write_metadata(self, *arguments: Any, **named: Any) -> None:
        self.before_writing()
        InMemoryCatalog._write_metadata(*arguments, **named)


def test_of_tags_made_at_random_moments_none_is_lost(tmp_path: Path) -> None:
    """Before loading, between any two steps, and within the commit; without data files, so that they are many."""
    chance, made, refused = random.Random(7), 0, 0
    catalog = Watched("cat", warehouse=tmp_path.as_uri())
    table = _of_snapshots(catalog, 0)
    tags = count(80, 500)
    for number in range(tags):
        if number % 9 == 8:
            table = _of_snapshots(catalog, number)
        target, name, moment = ids(table)[0], f"tag{number}", chance.randrange(5)

        def tagged(at: int, moment: int = moment, name: str = name, target: int = target, table: Table = table) -> None:
            nonlocal made, refused
            if at != moment:
                return
            try:
                tag(table, name, target)
                made += 1
            except (CommitFailedException, ValueError):
                refused += 1

        open_moments = [3]

        tagged(0)
        table.refresh()
        tagged(1)
        if target not in [ref.snapshot_id for ref in table.metadata.refs.values()]:
            payload, _ = stage_expiry(table, {target}, (), clean=False, own_metadata=True)
            tagged(2)
            catalog.before_writing = lambda left=open_moments, tagged=tagged: left and tagged(left.pop())
            try:
                committing.send(catalog, table, payload)
            except CommitConflict:
                assert moment in (1, 2, 3)
            catalog.before_writing = lambda: None
        tagged(4)
        table.refresh()
        found = table.metadata.refs.get(name)
        assert (found is not None) == (target in ids(table))
        if found is not None:
            table.manage_snapshots().remove_tag(name).commit()
            expire(table, target)
    assert made + refused == tags
    assert min(made, refused) > tags // 6
    catalog.close()


def _of_snapshots(catalog: SqlCatalog, number: int) -> Table:
    """A table of ten snapshots without files."""
    table = writer.make_table(catalog, f"db.t{number}", SCHEMA)
    snapshots = [
        Snapshot(
            **{"snapshot-id": at, "parent-snapshot-id": at - 1 or None, "sequence-number": at, "timestamp-ms": at},
            **{"manifest-list": f"file:///nowhere/{at}.avro", "summary": Summary(operation=Operation.APPEND)},
        )
        for at in range(1, 11)
    ]
    updates = [AddSnapshotUpdate(snapshot=one) for one in snapshots]
    head = SetSnapshotRefUpdate(**{"ref-name": "main", "type": "branch", "snapshot-id": 10})
    catalog.commit_table(table, (), (*updates, head))
    return table.refresh()


# REST: a window of one request


def test_a_lost_tag_is_found_in_the_state_that_the_catalog_built_on_and_brought_back(
    rest: Catalog, table: Table
) -> None:
    first, *_ = ids(table)
    rows = oracle.live_rows(table, first)
    seen = rest.load_table("db.t")
    payload, evidence = stage_expiry(seen, {first}, (), clean=False, own_metadata=False)
    assert "metadata-location" not in json.loads(payload)
    answering(rest, lambda: tag(table, "mine", first))
    committing.send(rest, seen, payload)
    now = rest.load_table("db.t")
    assert "mine" not in now.metadata.refs
    assert trace_of(now, evidence) is Trace.LANDED
    writer.append(table, [row(8)])  # the log goes on
    now = rest.load_table("db.t")
    (lost,) = lost_refs(now, evidence)
    assert (lost.name, lost.snapshot.snapshot_id) == ("mine", first)
    payload, ref = stage_restored(now, lost, own_metadata=False)
    committing.send(rest, now, payload)
    now = rest.load_table("db.t")
    back = now.snapshot_by_id(ref.snapshot_id)
    assert (back.parent_snapshot_id, back.manifest_list) == (None, lost.snapshot.manifest_list)
    assert back.summary.additional_properties[RESTORED_FROM] == str(first)
    assert oracle.live_rows(table, ref.snapshot_id) == rows
    again = bring_back(lambda: rest.load_table("db.t"), lambda _: pytest.fail("it is back"), evidence, False)
    assert again == ("mine",)
    assert sorted(now.scan(snapshot_id=ref.snapshot_id).to_arrow()["id"].to_pylist()) == [0]


def test_a_snapshot_comes_back_only_while_every_reference_is_as_it_was(table: Table) -> None:
    """Catalogs take any sequence number of a snapshot without parent: a late one would set the table's back."""
    first, *_ = ids(table)
    snapshot = table.snapshot_by_id(first)
    assert snapshot is not None
    expire(table, first)
    payload, _ = stage_restored(table, LostRef("back", snapshot), own_metadata=False)
    writer.append(table, [row(9)])
    number = table.metadata.last_sequence_number
    with pytest.raises(CommitConflict):
        committing.send(table.catalog, table, payload)
    assert table.refresh().metadata.last_sequence_number == number
    with pytest.raises(CommitConflict, match="a branch or tag main already"):
        stage_restored(table, LostRef("main", snapshot), own_metadata=True)


def test_the_state_before_is_found_by_its_location_or_in_the_log(table: Table) -> None:
    first, *_ = ids(table)
    location = table.metadata_location
    evidence = expire(table, first)
    for known in (location, "file:///nowhere/v1.metadata.json"):
        state = state_before(table, known, evidence)
        assert first in {one.snapshot_id for one in state.snapshots}
    bare = Table(table.name(), table.metadata.model_copy(update={"metadata_log": []}), "", table.io, table.catalog)
    assert state_before(bare, "file:///nowhere/v1.metadata.json", evidence) is None


# Evidence


@pytest.mark.parametrize("version", [1, 2])
def test_a_state_from_before_says_nothing_though_it_lacks_the_snapshots(catalog: SqlCatalog, version: int) -> None:
    """It is older by its number, or where there are none by its time: clocks differ a little."""
    table = writer.make_table(catalog, "db.t", SCHEMA, format_version=version)
    for number in range(2):
        writer.append(table, [row(number)])
    _, evidence = stage_expiry(table.refresh(), {ids(table)[0]}, (), clean=False, own_metadata=False)
    metadata = table.metadata
    key, older, same = (
        ("last_sequence_number", 1, 2)
        if version == 2
        else ("last_updated_ms", metadata.last_updated_ms - 3_600_000, metadata.last_updated_ms - 1000)
    )
    for value, expected in ((older, Trace.OPEN), (same, Trace.LANDED)):
        state = metadata.model_copy(update={"snapshots": [], key: value})
        assert trace_of(Table(table.name(), state, "", table.io, table.catalog), evidence) is expected


def test_on_rest_it_may_still_land_until_a_reference_moves(table: Table) -> None:
    first, second, *_ = ids(table)
    _, evidence = stage_expiry(table, {first}, (), clean=False, own_metadata=False)
    with table.transaction() as change:
        change.set_properties({"a": "b"})
    tag(table, "new", second)
    assert trace_of(table.refresh(), evidence) is Trace.OPEN
    writer.append(table, [row(9)])
    assert trace_of(table.refresh(), evidence) is Trace.REFUTED
