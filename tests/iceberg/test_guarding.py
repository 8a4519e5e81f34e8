"""The guard: everything that a table reaches, from any snapshot, in any spelling; and silence where it can't know."""

from __future__ import annotations

import os
import random
import shutil
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import MetadataLogEntry
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile

from amoro_core.errors import (
    AmoroError,
    CatalogUnavailable,
    CommitConflict,
    DataFileMissing,
    TableRefused,
    UnreadableFile,
)
from amoro_core.files.storage.io import ConfinedFileIO
from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance.expiry import stage_expiry
from amoro_core.iceberg.maintenance.reachability_guard import Guard
from amoro_core.iceberg.maintenance.reachable import named, released, would_release
from amoro_core.iceberg.metadata import history_of
from amoro_core.maintenance.snapshots import RetentionConfig, SnapshotSelection, Target, select
from amoro_core.model.maintenance import FileKind, Released
from amoro_core.model.paths import normalise
from amoro_core.model.properties import parse_into
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA as ROWS
from tests.engine.builders import row
from tests.engine.histories import random_history
from tests.engine.oracle import reached
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, delete_where, expire_snapshots, make_catalog, make_table, remove_files, upsert
from tests.faults.storage import shortened
from tests.iceberg.rewriting import current, loaded
from tests.iceberg.scenarios import SCHEMA, rewrite_avro, rows


def guard_of(table: Table, load: Callable[[], Table] | None = None, sequence_number: int = 0) -> Guard:
    return Guard(load or (lambda: loaded(table)), loaded(table), sequence_number)


def stored(table: Table) -> set[str]:
    """Every file below the table's location."""
    root = Path(normalise(table.location()))
    return {str(path) for path in root.rglob("*") if path.is_file()}


def data_of(table: Table) -> list[str]:
    return sorted(one for one in stored(table) if one.endswith(".parquet"))


def manifests_of(table: Table) -> list[str]:
    return [one.manifest_path for snap in table.metadata.snapshots for one in snap.manifests(table.io)]


def test_every_kind_of_file_is_reached_and_nothing_else(table: Table) -> None:
    upsert(table, rows(1), ["x"])
    delete_where(table, lambda row: row["x"] == 4)
    made = Path(normalise(table.location())) / "metadata" / "one.stats"
    made.write_bytes(b"PFA1")
    said: dict[str, Any] = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    said |= {"snapshot-id": table.metadata.current_snapshot_id, "statistics-path": str(made)}
    statistics = StatisticsFile(**said)
    with table.update_statistics() as update:
        update.set_statistics(statistics)
    ours = stored(loaded(table))
    decoys = {f"{path}.orphan" for path in ours}
    found = guard_of(table).reachable({*ours, *decoys})
    assert set(found) == ours
    assert set(found.values()) >= {"statistics of the table", "a manifest of the table", "the table's metadata file"}


def test_the_same_guard_follows_the_table(table: Table) -> None:
    guard = guard_of(table)
    (first, second) = data_of(table)
    assert set(guard.reachable([first, second])) == {first, second}
    append(table, rows(5))
    (third,) = set(data_of(table)) - {first, second}
    assert set(guard.reachable([third])) == {third}
    remove_files(table, [f"file://{first}"])
    for one in (guard, guard_of(table)):
        assert set(one.reachable([first, second, third])) == {first, second, third}, "an older snapshot has it"
    expire_snapshots(table)
    for one in (guard, guard_of(table)):
        assert set(one.reachable([first, second, third])) == {second, third}, "it is named as removed only"


def test_only_new_manifests_are_read(table: Table) -> None:
    guard = guard_of(table)
    guard.reachable([])
    for path in {*manifests_of(table), *(one.manifest_list for one in table.metadata.snapshots)}:
        os.unlink(normalise(path))  # who has read them does not ask for them again
    assert len(guard.reachable(data_of(table))) == 2


@pytest.mark.parametrize(
    "spell",
    [
        lambda path: f"file:{path}",
        lambda path: f"file://localhost{path}",
        lambda path: path.replace("/data/", "//data/./"),
        quote,
        lambda path: unicodedata.normalize("NFD", path),
        lambda path: f"s3a://bucket{path}",
        lambda path: path.replace("/data/", "/data/../data/"),
    ],
)
def test_another_spelling_of_a_path_is_reached(tmp_path: Path, spell: Callable[[str], str]) -> None:
    catalog = make_catalog(tmp_path)
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", SCHEMA, location=f"file://{tmp_path}/Zürich")
    append(made, rows(1))
    (path,) = data_of(made)
    assert set(guard_of(made).reachable([spell(path), path + "x"])) == {spell(path)}


def test_a_file_is_reached_through_a_link(table: Table, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(normalise(table.location()))
    paths = [path.replace(normalise(table.location()), str(tmp_path / "link")) for path in data_of(table)]
    assert set(guard_of(table).reachable(paths)) == set(paths)


def cut(path: str) -> None:
    Path(path).write_bytes(shortened(Path(path).read_bytes(), path))


def overwrite(path: str) -> None:
    Path(path).write_bytes(b"Obj\x01 and nothing that was there" * 9)


@pytest.mark.parametrize(
    ("damage", "kind"), [(os.unlink, DataFileMissing), (cut, UnreadableFile), (overwrite, UnreadableFile)]
)
@pytest.mark.parametrize("which", ["list", "manifest", "old list"])
def test_a_manifest_or_list_that_is_gone_or_broken_stops_everything(
    table: Table, damage: Callable[[str], None], kind: type[AmoroError], which: str
) -> None:
    first, last = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
    places = {"list": last.manifest_list, "old list": first.manifest_list, "manifest": manifests_of(table)[0]}
    damage(normalise(places[which]))
    with pytest.raises(AmoroError) as raised:
        guard_of(table).reachable(["/nowhere"])
    assert type(raised.value) is kind
    assert f"{'list' if which.endswith('list') else 'manifest'} {places[which]} " in raised.value.message


def test_a_manifest_that_vanishes_meanwhile_stops_the_batches_until_it_is_there_again(table: Table) -> None:
    guard = guard_of(table)
    guard.reachable([])
    append(table, rows(9))
    newest = current(table)
    place = Path(normalise(newest.manifests(table.io)[0].manifest_path))
    away = place.rename(f"{place}.away")
    for _ in range(2):
        with pytest.raises(DataFileMissing):
            guard.reachable(["/nowhere"])
    away.rename(place)
    assert guard.reachable(data_of(table)).keys() == set(data_of(table))


def test_an_older_state_stops_everything(table: Table) -> None:
    old = loaded(table)
    append(table, rows(5))
    new = loaded(table)
    answers = [new, old]
    after_a_newer_one = Guard(lambda: answers.pop(0), old)
    after_a_newer_one.reachable([])
    late = {"last_updated_ms": new.metadata.last_updated_ms + 1, "last_sequence_number": 9}
    of_the_log = loaded(table)  # whatever its clock says
    of_the_log.metadata_location = old.metadata_location
    of_the_log.metadata = old.metadata.model_copy(update=late)
    for guard in (guard_of(table, lambda: old), after_a_newer_one, guard_of(table, lambda: of_the_log)):
        with pytest.raises(CatalogUnavailable, match="older") as raised:
            guard.reachable([])
        assert raised.value.hint == "It is retried automatically."
    assert Guard(lambda: old, old, 2).reachable([]) == {}
    with pytest.raises(CatalogUnavailable, match="older"):
        Guard(lambda: old, old, 3).reachable([])


@pytest.mark.parametrize(("later_ms", "numbers"), [(-1, 1), (1, -1)], ids=["by its clock", "by its number"])
def test_a_state_that_nothing_leads_to_is_older_by_its_clock_or_its_number(
    table: Table, later_ms: int, numbers: int
) -> None:
    """As of a catalog that was restored from a backup and has gone on from there."""
    seen, other = loaded(table), loaded(table)
    told = {
        "last_updated_ms": seen.metadata.last_updated_ms + later_ms,
        "last_sequence_number": seen.metadata.last_sequence_number + numbers,
        "metadata_log": [],
    }
    other.metadata = other.metadata.model_copy(update=told)
    other.metadata_location = f"{table.location()}/metadata/99999-other.metadata.json"
    with pytest.raises(CatalogUnavailable, match="older"):
        Guard(lambda: other, seen).reachable([])
    entry = MetadataLogEntry(metadata_file=seen.metadata_location, timestamp_ms=seen.metadata.last_updated_ms)
    other.metadata = other.metadata.model_copy(update={"metadata_log": [entry]})
    assert Guard(lambda: other, seen).reachable(data_of(table))


def test_a_list_or_manifest_that_must_not_be_opened_stops_everything(table: Table) -> None:
    head = current(table)
    manifest = head.manifests(table.io)[0].manifest_path
    lists = [one.manifest_list for one in table.metadata.snapshots]
    others = [one for one in manifests_of(table) if one != manifest]
    for readable, refused in (((), lists[0]), ((*lists, *others), manifest)):
        narrow = loaded(table)
        narrow.io = ConfinedFileIO(narrow.io, readable, ())
        with pytest.raises(TableRefused, match=Path(refused).name):
            Guard(lambda state=narrow: state, loaded(table)).reachable(["/nowhere"])


def test_a_state_of_the_same_number_is_no_older_one_though_the_log_has_forgotten_the_one_before(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    guard = guard_of(table)
    for value in "ab":
        with table.transaction() as change:
            change.set_properties({"note": value})
    assert set(guard.reachable(data_of(table))) == set(data_of(table))


def test_another_table_of_the_name_and_one_that_has_moved_stop_everything(table: Table, tmp_path: Path) -> None:
    before = loaded(table)
    moved = loaded(table)
    moved.metadata = moved.metadata.model_copy(update={"location": f"file://{tmp_path}/elsewhere"})
    with pytest.raises(CommitConflict, match="has moved"):
        Guard(lambda: moved, before).reachable([])
    table.catalog.drop_table("db.t")
    shutil.rmtree(normalise(before.location()))
    other = make_table(table.catalog, "db.t", SCHEMA)
    with pytest.raises(CommitConflict, match="was replaced"):
        Guard(lambda: other, before).reachable([])


def test_a_snapshot_whose_list_leads_to_none_of_its_files_stops_everything(table: Table) -> None:
    empty = make_table(table.catalog, "db.empty", SCHEMA)
    append(empty, rows(1))
    remove_files(empty, [f"file://{path}" for path in data_of(empty)])
    last = current(empty)
    Path(normalise(current(table).manifest_list)).write_bytes(Path(normalise(last.manifest_list)).read_bytes())
    with pytest.raises(UnreadableFile, match="leads to none"):
        guard_of(table).reachable([])


def test_a_snapshot_that_says_nothing_of_its_files_may_lead_to_none(table: Table) -> None:
    snapshot = current(table)
    remove_files(table, [f"file://{path}" for path in data_of(table)])
    silent = loaded(table)
    summary = snapshot.summary.model_copy()
    summary._additional_properties = {}
    snapshots = [one.model_copy(update={"summary": summary}) for one in silent.metadata.snapshots]
    silent.metadata = silent.metadata.model_copy(update={"snapshots": snapshots[-1:]})
    assert guard_of(table, lambda: silent).reachable(data_of(table)) == {}


def test_a_directory_table_keeps_its_hint_and_versions(table: Table) -> None:
    found = loaded(table)
    directory = Path(normalise(found.metadata_location)).parent
    found.metadata_location = f"file://{directory}/v7.metadata.json"
    paths = [
        f"{directory}/{name}" for name in ("version-hint.text", "v3.metadata.json", "v4.gz.metadata.json", "v.txt")
    ]
    assert list(Guard(lambda: found, found).reachable(paths)) == paths[:3]


@pytest.mark.parametrize(
    ("change", "codec", "words"),
    [
        (lambda record: [record], "null", "its list says"),  # the same entries in another number of bytes
        (lambda record: [record, record], "deflate", "2 entries, and its list says 1"),
        (lambda record: [{**record, "status": 7}], "deflate", "status 7"),
    ],
)
def test_a_manifest_that_is_not_what_its_list_says_stops_everything(
    table: Table, change: Callable[[dict[str, Any]], list[dict[str, Any]]], codec: str, words: str
) -> None:
    path = manifests_of(table)[0]
    rewrite_avro(path, lambda records: [made for one in records for made in change(one)], codec)
    length = Path(normalise(path)).stat().st_size

    def told(records: list[Any]) -> list[Any]:
        """Let the list say how long the manifest is by now."""
        return [{**one, "manifest_length": length} if one["manifest_path"] == path else one for one in records]

    for snapshot in table.metadata.snapshots if codec != "null" else ():
        rewrite_avro(snapshot.manifest_list, told)
    with pytest.raises(UnreadableFile, match=words):
        guard_of(table).reachable([])


@pytest.mark.parametrize(
    ("spelled", "path"),
    [
        ("file:/x/partition-stats-1.parquet", "/x/partition-stats-1.parquet"),
        ("file:/x/Zu\u0308%20s.parquet", "/x/Z\u00fc s.parquet"),
    ],
)
def test_partition_statistics_are_reached_and_named_in_any_spelling(table: Table, spelled: str, path: str) -> None:
    found = loaded(table)
    said = {"snapshot-id": 1, "statistics-path": spelled, "file-size-in-bytes": 1}
    changed = {"partition_statistics": [PartitionStatisticsFile(**said)]}
    found.metadata = found.metadata.model_copy(update=changed)
    assert Guard(lambda: found, found).reachable([path]) == {path: "partition statistics of the table"}
    assert list(map(bool, named(found).places_of([path, path + "x"]))) == [True, False]


# What an expiry releases, on random tables: exactly what nothing else reaches, by the tests' own readers


_KINDS = tuple(FileKind)


@pytest.fixture
def own_catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = InMemoryCatalog("cat", warehouse=tmp_path.as_uri())
    yield made
    made.close()


def test_what_goes_is_what_nothing_else_reaches_before_and_after_the_commit(own_catalog: SqlCatalog) -> None:
    kinds: set[FileKind] = set()
    refs = shared = equalities = 0
    for seed in range(25):
        table = random_history(own_catalog, f"db.t{seed}", random.Random(seed))
        history, base = history_of(table.refresh()), table.metadata
        config = parse_into(RetentionConfig, history.properties)
        now = datetime.now(UTC) + timedelta(seconds=1)
        found = select(history.snapshots, history.refs, config, Target(), now)
        gone = _expired(table, found)
        kinds |= {one.kind for one in gone}
        told = {one.path for one in gone if one.has_equality_deletes}
        files = (file for one in base.snapshots for file in oracle.files_in(base, one.snapshot_id))
        by_equality = {file.path for file in files if file.content == oracle.EQUALITY_DELETES}
        assert told == by_equality & {one.path for one in gone}
        equalities += len(told)
        refs += len(found.refs)
        paths = [one.statistics_path for one in base.partition_statistics]
        shared += len(paths) > len(set(paths))
    assert kinds >= {FileKind.DATA, FileKind.DELETE, FileKind.MANIFEST, FileKind.MANIFEST_LIST, FileKind.STATISTICS}
    assert refs >= 5
    assert equalities
    assert shared


def _expired(table: Table, found: SnapshotSelection) -> list[Released]:
    """What one expiry releases, as it said before and says after its commit, and as the tests' own reader says."""
    base, going = table.metadata, frozenset(found.go)
    staying = [one.snapshot_id for one in base.snapshots if one.snapshot_id not in going]
    expected = reached(base) - reached(base, staying) if going else set()
    before = list(would_release(table, going))
    payload, evidence = stage_expiry(table, going, sorted(found.refs), clean=False, own_metadata=True)
    if going or found.refs:
        committing.send(table.catalog, table, payload)
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
    return list(map(bool, named(table).places_of(sorted(paths))))


def test_files_of_six_spellings_are_one_file(own_catalog: SqlCatalog) -> None:
    """amoro #877, iceberg PR #1471: written with another scheme, authority or slashes, they were deleted."""
    table = writer.make_table(own_catalog, "db.t", ROWS)
    writer.append(table, [row(1)])
    path = oracle.live_files(table)[0].path
    local = path.removeprefix("file://")
    assert (
        are_named(table, {path, local, f"file:{local}", f"file://localhost{local}", f"file:///{local}"}) == [True] * 5
    )
    assert are_named(table, {local.replace("/data/", "/data//"), f"s3://bucket{local}"}) == [True] * 2
    assert are_named(table, {f"{local}x"}) == [False]


@pytest.fixture
def own_table(own_catalog: SqlCatalog) -> Table:
    """The second snapshot has a file less, in a manifest of its own."""
    made = writer.make_table(own_catalog, "db.t", ROWS)
    writer.append(made, [row(1), row(2)], 2)
    writer.remove_files(made, [oracle.live_files(made)[0].path])
    return made.refresh()


def _list_of(table: Table, at: int) -> Path:
    return Path(local_path(table.metadata.snapshots[at].manifest_list))


def _manifest_of(table: Table, at: int) -> Path:
    return Path(local_path(oracle.read_avro(table.metadata.snapshots[at].manifest_list)[1][0]["manifest_path"]))


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("of", [_list_of, _manifest_of])
def test_what_is_missing_or_cut_releases_nothing(own_table: Table, at: int, of: object) -> None:
    assert callable(of)
    file, first = of(own_table, at), frozenset({own_table.metadata.snapshots[0].snapshot_id})
    assert list(would_release(own_table, first))
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    with pytest.raises(UnreadableFile):
        list(would_release(own_table, first))
    file.unlink()
    with pytest.raises(DataFileMissing):
        list(would_release(own_table, first))
    with pytest.raises((DataFileMissing, UnreadableFile)):
        named(own_table)


def test_a_manifest_with_fewer_entries_than_its_list_counts_releases_nothing(own_table: Table) -> None:
    """paimon #6479: the live set was short."""
    file = _manifest_of(own_table, 1)
    rewrite_avro(file.as_uri(), lambda records: records[:1], padding="x" * 4000)
    first = frozenset({own_table.metadata.snapshots[0].snapshot_id})
    for read in (lambda: list(would_release(own_table, first)), lambda: [named(own_table)]):
        with pytest.raises(UnreadableFile, match="counts"):
            read()


def test_a_list_that_names_no_manifest_of_a_snapshot_with_files_releases_nothing(own_table: Table) -> None:
    """paimon #7710: the live set was empty."""
    first, second = own_table.metadata.snapshots
    rewrite_avro(second.manifest_list, lambda records: [])
    with pytest.raises(UnreadableFile, match="names none"):
        list(would_release(own_table, frozenset({first.snapshot_id})))


def gone_from(table: Table, snapshot_id: int) -> None:
    """Expire the snapshot."""
    payload, _ = stage_expiry(table, {snapshot_id}, (), clean=False, own_metadata=True)
    committing.send(table.catalog, table, payload)
    table.refresh()


def test_what_an_earlier_expiry_released_is_not_released_again(own_table: Table) -> None:
    """Its removal is still named by an entry of a later snapshot."""
    assert are_named(own_table, {own_table.metadata_location}) == [True]
    writer.append(own_table, [row(7)])
    first, removing, _ = (one.snapshot_id for one in own_table.metadata.snapshots)
    had, has = ({one.path for one in oracle.live_files(own_table, at)} for at in (first, removing))
    (path,) = had - has
    for gone in (first, removing):
        found = {one.path for one in would_release(own_table, {gone})}
        assert (path in found) == (gone == first)
        gone_from(own_table, gone)


def test_what_somebody_else_removed_of_the_gone_ones_is_passed_over(own_table: Table) -> None:
    base, first = own_table.metadata, own_table.metadata.snapshots[0].snapshot_id
    every = list(would_release(own_table, {first}))
    with pytest.raises(CatalogUnavailable, match="still has snapshot"):
        list(released(base, {first}, own_table))
    gone_from(own_table, first)
    manifest = next(one for one in every if one.kind is FileKind.MANIFEST)
    Path(local_path(manifest.path)).unlink()
    left = list(released(base, {first}, own_table))
    assert left == [one for one in every if one.kind is not FileKind.DATA]
    Path(local_path(base.snapshots[0].manifest_list)).unlink()
    assert {one.kind for one in released(base, {first}, own_table)} == {FileKind.MANIFEST_LIST}
