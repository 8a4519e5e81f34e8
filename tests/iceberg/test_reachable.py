"""What an expiry releases, on random tables: exactly what nothing else reaches, by the tests' own readers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from amoro_core.errors import CatalogUnavailable, DataFileMissing, UnreadableFile
from amoro_core.iceberg import commit
from amoro_core.iceberg.expiry import stage_expiry
from amoro_core.iceberg.metadata import history_of
from amoro_core.iceberg.reachable import named, released, would_release
from amoro_core.maintaining.retention import RetentionConfig
from amoro_core.maintaining.snapshots import Selection, Target, select
from amoro_core.model.maintenance import FileKind, Released
from amoro_core.model.properties import parse_into
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.histories import random_history
from tests.engine.parquet_rows import local_path
from tests.engine.reached import reached

_KINDS = tuple(FileKind)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = InMemoryCatalog("cat", warehouse=tmp_path.as_uri())
    yield made
    made.close()


def selected(table: Table) -> Selection:
    history = history_of(table.refresh())
    config = parse_into(RetentionConfig, history.properties)
    return select(history.snapshots, history.refs, config, Target(), datetime.now(UTC) + timedelta(seconds=1))


def test_what_goes_is_what_nothing_else_reaches_before_and_after_the_commit(catalog: SqlCatalog) -> None:
    kinds: set[FileKind] = set()
    refs = shared = equalities = 0
    for seed in range(25):
        table = random_history(catalog, f"db.t{seed}", random.Random(seed))
        base, found = table.metadata, selected(table)
        gone = _expired(table, found)
        kinds |= {one.kind for one in gone}
        told = {one.path for one in gone if one.has_equality_deletes}
        assert told == _equality_deletes(base) & {one.path for one in gone}
        equalities += len(told)
        refs += len(found.refs)
        paths = [one.statistics_path for one in base.partition_statistics]
        shared += len(paths) > len(set(paths))
    assert kinds >= {FileKind.DATA, FileKind.DELETE, FileKind.MANIFEST, FileKind.MANIFEST_LIST, FileKind.STATISTICS}
    assert refs >= 5
    assert equalities
    assert shared


def _equality_deletes(metadata: TableMetadata) -> set[str]:
    """Files of equality deletes of any snapshot."""
    files = (file for one in metadata.snapshots for file in oracle.files_in(metadata, one.snapshot_id))
    return {file.path for file in files if file.content == oracle.EQUALITY_DELETES}


def _expired(table: Table, found: Selection) -> list[Released]:
    """What one expiry releases, as it said before and says after its commit, and as the tests' own reader says."""
    base, going = table.metadata, frozenset(found.go)
    staying = [one.snapshot_id for one in base.snapshots if one.snapshot_id not in going]
    expected = reached(base) - reached(base, staying) if going else set()
    before = list(would_release(table, going))
    payload, evidence = stage_expiry(table, going, sorted(found.refs), clean=False, own_metadata=True)
    if going or found.refs:
        commit.send(table.catalog, table, payload)
    after = list(released(base, going, table.refresh()))
    assert {one.path for one in before} == expected
    assert sorted(before, key=str) == sorted(after, key=str)
    assert len(after) == len(expected)
    assert [one.kind for one in after] == sorted((one.kind for one in after), key=_KINDS.index)
    assert not expected & reached(table.metadata)
    assert table.metadata.refs.keys() == base.refs.keys() - found.refs.keys()
    for one in table.metadata.snapshots:
        oracle.live_rows(table, one.snapshot_id)
    assert evidence.snapshot_ids == tuple(sorted(going))
    assert all(are_named(table, reached(table.metadata)))
    return after


def are_named(table: Table, paths: set[str]) -> list[bool]:
    return list(named(table).are_named(sorted(paths)))


def test_files_of_six_spellings_are_one_file(catalog: SqlCatalog) -> None:
    """amoro #877, iceberg PR #1471: written with another scheme, authority or slashes, they were deleted."""
    table = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(table, [row(1)])
    path = oracle.live_files(table)[0].path
    local = path.removeprefix("file://")
    assert (
        are_named(table, {path, local, f"file:{local}", f"file://localhost{local}", f"file:///{local}"}) == [True] * 5
    )
    assert are_named(table, {local.replace("/data/", "/data//"), f"s3://bucket{local}"}) == [True] * 2
    assert are_named(table, {f"{local}x"}) == [False]


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    """The second snapshot has a file less, in a manifest of its own."""
    made = writer.make_table(catalog, "db.t", SCHEMA)
    writer.append(made, [row(1), row(2)], 2)
    writer.remove_files(made, [oracle.live_files(made)[0].path])
    return made.refresh()


def _list_of(table: Table, at: int) -> Path:
    return Path(local_path(table.metadata.snapshots[at].manifest_list))


def _manifest_of(table: Table, at: int) -> Path:
    return Path(local_path(oracle.read_avro(table.metadata.snapshots[at].manifest_list)[1][0]["manifest_path"]))


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("of", [_list_of, _manifest_of])
def test_what_is_missing_or_cut_releases_nothing(table: Table, at: int, of: object) -> None:
    assert callable(of)
    file, first = of(table, at), frozenset({table.metadata.snapshots[0].snapshot_id})
    assert list(would_release(table, first))
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(UnreadableFile):
        list(would_release(table, first))
    file.unlink()
    with pytest.raises(DataFileMissing):
        list(would_release(table, first))
    with pytest.raises((DataFileMissing, UnreadableFile)):
        named(table)


def test_a_manifest_with_fewer_entries_than_its_list_counts_releases_nothing(table: Table) -> None:
    """paimon #6479: the live set was short."""
    file = _manifest_of(table, 1)
    schema, records = oracle.read_avro(file.as_uri())
    with file.open("wb") as output:
        fastavro.writer(output, schema, records[:1], metadata={"padding": "x" * 4000, **_METADATA})
    assert len(records) == 2
    first = frozenset({table.metadata.snapshots[0].snapshot_id})
    for read in (lambda: list(would_release(table, first)), lambda: [named(table)]):
        with pytest.raises(UnreadableFile, match="counts"):
            read()


_METADATA = {"schema": "{}", "partition-spec": "[]", "content": "data", "format-version": "2"}


def test_a_list_that_names_no_manifest_of_a_snapshot_with_files_releases_nothing(table: Table) -> None:
    """paimon #7710: the live set was empty."""
    first, second = table.metadata.snapshots
    schema, _ = oracle.read_avro(second.manifest_list)
    with _list_of(table, 1).open("wb") as file:
        fastavro.writer(file, schema, [])
    with pytest.raises(UnreadableFile, match="names none"):
        list(would_release(table, frozenset({first.snapshot_id})))


def test_what_an_earlier_expiry_released_is_not_released_again(table: Table) -> None:
    """Its removal is still named by an entry of a later snapshot."""
    writer.append(table, [row(7)])
    first, removing, _ = (one.snapshot_id for one in table.metadata.snapshots)
    had, has = ({one.path for one in oracle.live_files(table, at)} for at in (first, removing))
    (path,) = had - has
    for gone in (first, removing):
        found = {one.path for one in would_release(table, {gone})}
        assert (path in found) == (gone == first)
        payload, _ = stage_expiry(table, {gone}, (), clean=False, own_metadata=True)
        commit.send(table.catalog, table, payload)
        table.refresh()


def test_the_metadata_file_itself_is_named(table: Table) -> None:
    assert are_named(table, {table.metadata_location}) == [True]


def test_a_state_that_still_has_the_snapshot_releases_nothing(table: Table) -> None:
    with pytest.raises(CatalogUnavailable, match="still has snapshot"):
        list(released(table.metadata, {table.metadata.snapshots[0].snapshot_id}, table))


def test_what_somebody_else_removed_of_the_gone_ones_is_passed_over(table: Table) -> None:
    base, first = table.metadata, table.metadata.snapshots[0].snapshot_id
    every = list(would_release(table, {first}))
    payload, _ = stage_expiry(table, {first}, (), clean=False, own_metadata=True)
    commit.send(table.catalog, table, payload)
    manifest = next(one for one in every if one.kind is FileKind.MANIFEST)
    Path(local_path(manifest.path)).unlink()
    left = list(released(base, {first}, table.refresh()))
    assert left == [one for one in every if one.kind is not FileKind.DATA]
    Path(local_path(base.snapshots[0].manifest_list)).unlink()
    assert {one.kind for one in released(base, {first}, table)} == {FileKind.MANIFEST_LIST}


def test_nothing_is_shared_between_threads(table: Table) -> None:
    first = frozenset({table.metadata.snapshots[0].snapshot_id})
    found: list[list[Released]] = []
    threads = [threading.Thread(target=lambda: found.append(list(would_release(table, first)))) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 4
    assert all(one == found[0] for one in found)
