"""The cache of decoded manifests: a scan with it finds what a scan without it finds, whatever happens to its files."""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from amoro_core.errors import AmoroError
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.manifest.columns import ColumnCache
from amoro_core.iceberg.manifest.entries import PartitionTypes
from amoro_core.iceberg.manifest.reading import Manifest, read_list, read_manifest
from amoro_core.iceberg.scan import Known, scan
from amoro_core.model.files import Partition, TableScan
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import OptimizingType, TableIdentifier
from amoro_core.scan.columns import SCHEMA, ColumnPart
from tests.engine import builders, writer
from tests.engine.chance import seed_ids
from tests.engine.histories import random_history
from tests.model.lake import Lake, row
from tests.services.world import World
from tests.tiers import sample, seeds

ROOM = 2**30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "manifests"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.created(writer.make_catalog(tmp_path), partitioned=True)
    for number in range(4):
        made.append([row(3 * number + at, part) for at, part in enumerate(("a", "b", None))])
    made.upsert([row(1, "b", "new")])
    return made


class Reader:
    """Counts the data manifests that are read."""

    def __init__(self) -> None:
        self.data = 0

    def __call__(self, io: FileIO, listed: ManifestFile) -> Manifest:
        self.data += listed.content == ManifestContent.DATA
        return read_manifest(io, listed)


def scanned(table: Table, cache: ColumnCache | None = None, read: Reader | None = None) -> TableScan | None:
    """The head's scan, of the table as it is now."""
    return scan(table.refresh(), [table.location()], read or Reader(), known=Known(cache))


def said(found: TableScan | None) -> object:
    """All that a scan says, file by file."""
    return found and (
        found.snapshot_id,
        found.sequence_number,
        tuple(found.files),
        found.dangling,
        found.unpartitioned_specs,
    )


class Noted(ColumnCache):
    """Notes the parts that are kept."""

    def __init__(self, directory: Path, noted: list[ColumnPart]) -> None:
        super().__init__(directory, ROOM, least_files=1)
        self._noted = noted

    def keep(self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, part: ColumnPart) -> None:
        self._noted.append(part)
        super().keep(table_uuid, listed, types, part)


def partitions(found: TableScan | None) -> set[Partition]:
    assert found is not None
    return {file.data.partition for file in found.files}


def small(directory: Path, most_bytes: int = ROOM) -> ColumnCache:
    """A cache in which the smallest manifests have a file, too."""
    return ColumnCache(directory, most_bytes, least_files=1)


def files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir())


def test_a_second_scan_reads_new_data_manifests_alone(lake: Lake, directory: Path) -> None:
    cache, first, second, third = small(directory), Reader(), Reader(), Reader()
    plain = said(scanned(lake.table))
    assert said(scanned(lake.table, cache, first)) == plain
    assert said(scanned(lake.table, cache, second)) == plain
    assert (first.data, second.data) == (5, 0)
    lake.append([row(50, "c")])
    assert said(scanned(lake.table, small(directory), third)) == said(scanned(lake.table))
    assert third.data == 1, "after a restart, too"


def test_manifests_of_few_files_have_none_in_the_cache(lake: Lake, directory: Path) -> None:
    assert said(scanned(lake.table, ColumnCache(directory, ROOM))) == said(scanned(lake.table))
    assert not directory.exists()


def test_files_are_their_owners_alone(lake: Lake, directory: Path) -> None:
    scanned(lake.table, small(directory))
    assert {path.stat().st_mode & 0o777 for path in files(directory)} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700


def _cut(path: Path, others: list[Path], chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size or 1))  # it may be cut already


def _flip(path: Path, others: list[Path], chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _swap(path: Path, others: list[Path], chance: random.Random) -> None:
    others = [one for one in others if one != path and one.exists()]
    path.write_bytes(chance.choice(others).read_bytes() if others else b"")


def _remove(path: Path, others: list[Path], chance: random.Random) -> None:
    path.unlink()


def test_random_histories_are_scanned_as_without_a_cache_that_breaks_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make prove` goes on with other seeds."""
    [seed] = seeds(1, 1)
    chance, broken, used = random.Random(seed), 0, 0
    seed_ids(monkeypatch, chance)
    catalog = writer.make_catalog(tmp_path)
    for number in range(6):
        directory = tmp_path / f"cache{number}"
        table, cache = random_history(catalog, f"db.t{number}", chance, 6), small(directory)
        for _ in range(4):
            read = Reader()
            assert said(scanned(table, cache, read)) == said(scanned(table))
            used += len(_data_manifests(table)) - read.data
            known = files(directory)
            for path in chance.sample(known, k=min(2, len(known))):
                chance.choice((_cut, _flip, _swap, _remove))(path, known, chance)
                broken += 1
            if chance.random() < 0.5:
                writer.append(table, [builders.row(1000)])
    assert used > 0
    assert broken > 0


def _data_manifests(table: Table) -> list[ManifestFile]:
    head = table.refresh().current_snapshot()
    listed = [] if head is None else read_list(table.io, head.manifest_list)
    live = [one for one in listed if one.has_added_files() or one.has_existing_files()]
    return [one for one in live if one.content == ManifestContent.DATA]


def test_a_promoted_partition_column_is_read_anew(tmp_path: Path, directory: Path) -> None:
    schema = Schema(NestedField(1, "id", IntegerType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = builders.make(writer.make_catalog(tmp_path), spec=spec, schema=schema)
    writer.append(table, [{"id": 7}])
    cache = small(directory)
    assert partitions(scanned(table, cache)) == {(struct.pack("<i", 7),)}
    with table.update_schema() as change:
        change.update_column("id", LongType())
    assert partitions(scanned(table, cache)) == {(struct.pack("<q", 7),)}


def test_what_is_not_of_the_listed_number_of_files_is_dropped(lake: Lake, directory: Path) -> None:
    cache = small(directory)
    (listed, *_) = _data_manifests(lake.table)
    empty = ColumnPart((), pa.RecordBatch.from_arrays([pa.array([], one.type) for one in SCHEMA], schema=SCHEMA))
    ColumnCache(directory, ROOM, least_files=0).keep("uuid", listed, (), empty)
    assert len(files(directory)) == 1
    assert cache.find("uuid", listed, (), unusable := []) is None
    assert len(unusable) == 1
    assert files(directory) == []


def _of_other_bytes(path: Path, others: list[Path], chance: random.Random) -> None:
    """A file whose digest is right and that Arrow does not read."""
    payload = bytes(100)
    path.write_bytes(hashlib.sha256(path.stem.encode() + payload).digest() + payload)


def _directory(path: Path, others: list[Path], chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path, others: list[Path], chance: random.Random) -> None:
    """A link to itself, which not even root opens."""
    path.unlink()
    path.symlink_to(path.name)


#: What becomes of a file, what is told of it, and whether its place can be taken again.
UNUSABLE = {
    "cut": (_cut, "it is damaged, or of another version, and was removed", True),
    "flipped": (_flip, "it is damaged, or of another version, and was removed", True),
    "of another version of Arrow": (_of_other_bytes, "it is damaged, or of another version, and was removed", True),
    "not a file": (_directory, "Is a directory", False),
    "not to be opened": (_loop, "Too many levels of symbolic links", True),
}


@pytest.mark.parametrize(("spoil", "why", "is_replaced"), UNUSABLE.values(), ids=UNUSABLE)
def test_files_that_can_not_be_used_are_read_anew_and_told_in_one_line(
    lake: Lake,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path, list[Path], random.Random], None],
    why: str,
    is_replaced: bool,
) -> None:
    cache, again, after = small(directory), Reader(), Reader()
    expected = said(scanned(lake.table, cache))
    known = files(directory)
    assert len(known) == 5
    for path in known[:3]:
        spoil(path, [], random.Random(1))
    assert said(scanned(lake.table, cache, again)) == expected
    assert again.data == 3
    (line,) = [record.getMessage() for record in caplog.records if record.name == "amoro.cache"]
    assert line.startswith("cache.files_not_used table=db.t count=3 first=")
    assert line.endswith(f".arrow: {why}")
    caplog.clear()
    assert said(scanned(lake.table, small(directory), after)) == expected
    assert after.data == (0 if is_replaced else 3)
    assert len([record for record in caplog.records if record.name == "amoro.cache"]) == (not is_replaced)


def test_files_of_another_version_are_never_found_and_go_as_the_least_recently_used(
    lake: Lake, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("amoro_core.iceberg.manifest.columns._LAYOUT", 2)
    scanned(lake.table, small(directory))
    before = files(directory)
    for path in before:
        os.utime(path, (1, 1))
    monkeypatch.undo()
    read = Reader()
    assert said(scanned(lake.table, small(directory), read)) == said(scanned(lake.table))
    assert read.data == len(before) == 5
    own = sorted({*files(directory)} - {*before})
    assert len(own) == 5
    assert "cache" not in caplog.text
    # A directory among them is in nobody's way.
    (directory / f"{'0' * 64}.arrow").mkdir()
    lake.append([row(50, "c")])
    scanned(lake.table, small(directory, 2 * sum(path.stat().st_size for path in own)))
    assert {*files(directory)} >= {*own}
    assert 0 < len({*files(directory)} & {*before}) < 5
    assert "cache" not in caplog.text


def test_the_least_recently_used_files_go(lake: Lake, directory: Path) -> None:
    (listed, *_) = _data_manifests(lake.table)
    scanned(lake.table, Noted(directory, parts := []))
    (part, *_) = parts
    cache, types = small(directory), (StringType(),)
    for path in files(directory):
        path.unlink()
    for number in range(3):
        cache.keep(f"table {number}", listed, types, part)
    for path in files(directory):
        os.utime(path, (1, 1))
    size = files(directory)[0].stat().st_size
    assert cache.find("table 0", listed, types, []) is not None
    (abandoned := directory / ".abandoned.arrow.00").write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    tight = small(directory, int(2.5 * size))
    tight.keep("table 3", listed, types, part)
    known = [number for number in range(4) if tight.find(f"table {number}", listed, types, []) is not None]
    assert known == [0, 3]
    assert len(files(directory)) == len(known)


def test_a_manifest_larger_than_the_cache_is_not_kept(lake: Lake, directory: Path) -> None:
    assert said(scanned(lake.table, small(directory, 100))) == said(scanned(lake.table))
    assert not directory.exists()


def test_a_directory_that_can_not_be_used_is_told_once(
    lake: Lake, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory.parent.mkdir(parents=True)
    directory.write_text("a file")
    cache = small(directory)
    assert said(scanned(lake.table, cache)) == said(scanned(lake.table))
    assert [record.message.split()[0] for record in caplog.records if "cache" in record.message] == ["cache.unusable"]


class Lying(ColumnCache):
    """Columns that are whole and wrong, as no damage of a file makes them."""

    def __init__(self, directory: Path, lie: Callable[[ColumnPart], ColumnPart]) -> None:
        super().__init__(directory, ROOM, least_files=1)
        self._lie = lie
        self.lies = 0

    def find(
        self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, unusable: list[str]
    ) -> ColumnPart | None:
        found = super().find(table_uuid, listed, types, unusable)
        self.lies += found is not None
        return found and self._lie(found)


def shifted(name: str, by: int) -> Callable[[ColumnPart], ColumnPart]:
    """The part with other numbers in that column."""

    def lie(part: ColumnPart) -> ColumnPart:
        at = SCHEMA.get_field_index(name)
        return ColumnPart(part.places, part.batch.set_column(at, SCHEMA[at], pc.add(part.batch.column(at), by)))

    return lie


def without_files(part: ColumnPart) -> ColumnPart:
    return ColumnPart((), part.batch.slice(0, 0))


def elsewhere(part: ColumnPart) -> ColumnPart:
    return ColumnPart(tuple((spec_id, (b"b",)) for spec_id, _ in part.places), part.batch)


LIES = {
    "older": shifted("numbers", -1),
    "newer": shifted("numbers", 3),
    "fewer rows": shifted("records", -1),
    "another size": shifted("sizes", 1),
    "gone": without_files,
    "another partition": elsewhere,
}


@pytest.mark.parametrize("lie", sample(list(LIES.values()), every=3))
def test_a_cache_that_lies_delays_and_never_costs_a_row(
    lake: Lake,
    tmp_path: Path,
    directory: Path,
    lie: Callable[[ColumnPart], ColumnPart],
) -> None:
    lake.upsert([row(3, "a", "newer"), row(4, "b", "newer")])
    lake.delete_positions(lambda item: item["id"] == 6)
    cache = Lying(directory, lie)
    world = World(tmp_path, lake.catalog, iceberg=lambda _: IcebergFormat(cache))
    try:
        table_id = world.table().table_id
        world.tables.refresh(table_id)
        world.later(3600)
        with suppress(AmoroError):
            begun = world.planning.begin(table_id, trigger="request", requested=OptimizingType.FULL, force=True)
            if begun.process_id is not None:
                world.run_all(begun.process_id)
                world.committing.commit(begun.process_id)
        assert cache.lies > 0
        lake.require()
    finally:
        world.close()


def test_only_the_scan_of_planning_goes_by_the_cache(lake: Lake, directory: Path) -> None:
    cache = Lying(directory, lambda part: part)
    config = CatalogConfig("cat", tuple({**lake.catalog.properties, "type": "sql"}.items()))
    for expected in (0, 5):
        table = IcebergFormat(cache).load(config, TableIdentifier("cat", ("db",), "t"))
        assert isinstance(table, IcebergTable)
        found = table.scan()
        assert found is not None
        assert cache.lies == expected
        table.head(found.snapshot_id, found.sequence_number)
        table.scan_of(found.snapshot_id)
        assert cache.lies == expected
    close_catalogs()
