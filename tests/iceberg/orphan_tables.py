"""Random tables whose files are a few bytes, with planted files that nobody needs, and some that somebody does."""

import os
import random
import re
import unicodedata
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.model.maintenance import Surroundings
from amoro_core.model.processes import uuid7
from tests.engine.commits import Change, commit
from tests.engine.writer import create_branch, create_tag, expire_snapshots, make_table, rollback

T = TypeVar("T")

SCHEMA = Schema(NestedField(1, "_p", StringType(), required=False), NestedField(2, "x", LongType(), required=False))
SPEC = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="_p"))
#: Half a day ahead: what a test writes hours after this module was imported is older than now, and still young.
NOW = datetime.now(UTC) + timedelta(hours=12)
OLD, YOUNG = NOW - timedelta(days=5), NOW - timedelta(hours=30)
CHANGES = (
    "append", "append", "deletes", "remove", "again", "tag", "branch", "stage", "pick", "spec", "rollback", "expire",
    "stats",
)  # fmt: skip
#: How writers spell one place.
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda path: path,
    lambda path: f"file:{path}",
    lambda path: f"file://{path}",
    lambda path: f"file://localhost{path}",
    lambda path: f"file://{path.replace('/data/', '//data/')}",
    lambda path: f"file://{quote(path, safe='/=')}",
)

#: Where a table may have another one that its listing comes upon; with its data elsewhere only the first is listed.
PLACES_INSIDE = ("metadata", "data", "data/p=1")


def place_of(path: str) -> str:
    """The file that a path of one of the spellings names; nothing of ours is asked."""
    found = re.sub(r"^file:(//(localhost)?(?=/))?", "", path)
    return unicodedata.normalize("NFC", os.path.normpath(found.replace("%20", " ").replace("%C3%A9", "é")))


def put(path: str, at: datetime = OLD, content: bytes = b"xyz") -> str:
    """A file last written at that time."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(content)
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


@dataclass
class Site:
    """A table and what was planted in it."""

    table: Table
    chance: random.Random
    orphans: dict[str, str] = field(default_factory=dict)  # paths that have to be found, and what they are
    kept: dict[str, str] = field(default_factory=dict)  # paths of files that only look like orphans
    active: set[str] = field(default_factory=set)
    ended: dict[str, datetime] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)
    condemned: set[str] = field(default_factory=set)
    shapes: set[str] = field(default_factory=set)
    spellings: tuple[Callable[[str], str], ...] = SPELLINGS
    _read: dict[tuple[str, int, int, int], list[Any]] = field(default_factory=dict, repr=False)

    @property
    def around(self) -> Surroundings:
        """What the coordinator knows."""
        paths, condemned = frozenset(self.needed), frozenset(self.condemned)
        return Surroundings(paths=paths, condemned=condemned, active=frozenset(self.active), ended=self.ended)

    @property
    def root(self) -> str:
        return place_of(self.table.location())

    @property
    def data(self) -> str:
        return place_of(self.table.properties.get("write.data.path", f"{self.root}/data"))

    @property
    def inside(self) -> str:
        """The directory of the table's own files, in a place that others may use."""
        return f"{self.data}/{self.table.name()[0]}/{self.table.name()[1]}"

    @property
    def anywhere(self) -> str:
        """The same, behind a hash where the table has the layout of object stores."""
        if self.table.properties.get("write.object-storage.enabled") != "true":
            return self.inside
        bits = f"{self.chance.getrandbits(20):020b}"
        hashed = f"{bits[:4]}/{bits[4:8]}/{bits[8:12]}/{bits[12:]}"
        return f"{self.data}/{hashed}/{self.table.name()[0]}/{self.table.name()[1]}"

    def named(self, *, live: bool = False) -> set[str]:
        """Every file that the metadata names, as pyiceberg reads it; with `live` without removed entries."""
        return {place_of(path) for path in self._named(live=live)}

    def _named(self, *, live: bool) -> Iterator[str]:
        metadata = self.table.refresh().metadata
        yield self.table.metadata_location
        yield from (entry.metadata_file for entry in metadata.metadata_log)
        yield from (one.statistics_path for one in metadata.statistics)
        for snapshot in metadata.snapshots:
            yield snapshot.manifest_list
            for manifest in self._once(snapshot.manifest_list, partial(snapshot.manifests, self.table.io)):
                yield manifest.manifest_path
                paths = self._once(manifest.manifest_path, partial(self._paths, manifest))
                yield from (path for path, is_live in paths if is_live or not live)

    def _paths(self, manifest: ManifestFile) -> list[tuple[str, bool]]:
        """The paths of a manifest, and whether each is live."""
        entries = manifest.fetch_manifest_entry(self.table.io, discard_deleted=False)
        return [(entry.data_file.file_path, entry.status != ManifestEntryStatus.DELETED) for entry in entries]

    def _once(self, path: str, read: Callable[[], list[T]]) -> list[T]:
        """What was read of a file; read again when another file is there. Raises FileNotFoundError."""
        stat = os.stat(place_of(path))
        key = (path, stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if key not in self._read:
            self._read[key] = read()
        found: list[T] = self._read[key]
        return found

    def stored(self) -> set[str]:
        """Every file in the table's places."""
        hashed = Path(self.data).glob(f"[01]*/*/*/*/{'/'.join(self.table.name())}")
        places = {self.inside, f"{self.root}/data", f"{self.root}/metadata", *map(str, hashed)}
        return {str(path) for place in places for path in Path(place).rglob("*") if path.is_file()}


def make_site(
    catalog: Catalog, number: int, directory: Path | None, spellings: int = len(SPELLINGS), around: Site | None = None
) -> Site:
    """The random table of that number, all its files old, with paths of the first so many spellings.

    Some have their data below the directory, if there is one. With a table around it, it lies in that one's location.
    """
    chance = random.Random(number)
    version = chance.choice((1, 2, 2))
    name, location = f"t{number}", None
    if around is not None:
        listed = PLACES_INSIDE[: 1 if "write.data.path" in around.table.properties else None]
        name = f"inside_{name}"
        location = f"file://{around.root}/{chance.choice(listed)}/{name}"
    properties = {"write.metadata.previous-versions-max": str(chance.choice((1, 2, 100)))}
    if chance.random() < 0.3 and directory is not None:
        properties["write.data.path"] = chance.choice((f"file://{directory}/lake/db/{name}", f"file://{directory}/all"))
    if chance.random() < 0.3:
        properties["write.object-storage.enabled"] = "true"
    spec = SPEC if chance.random() < 0.5 else PartitionSpec()
    table = make_table(catalog, f"db.{name}", SCHEMA, spec, version, properties, location)
    site = Site(table, chance, spellings=SPELLINGS[:spellings])
    if "write.object-storage.enabled" in properties:
        site.shapes.add("hashes in paths")
    for _ in range(chance.randint(2, 6)):
        _change(site, version)
    for path in site.stored():
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    for path in site.stored() - site.named():
        site.orphans[path] = "of an expired snapshot" if path.endswith(".parquet") else "left by commits"
    plant(site)
    return site


def _change(site: Site, version: int) -> None:
    chance, table = site.chance, site.table
    live = live_paths(table)
    match chance.choice(CHANGES):
        case "deletes" if version == 2:
            kind = chance.choice((DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES))
            commit(table, lambda head: Change((_file(site, head, kind),)))
        case "remove" if live:
            gone = frozenset(chance.sample(live, 1))
            commit(table, lambda head: Change(removed_paths=gone))
        case "again" if live:  # removed, and added again under its name
            gone = frozenset(chance.sample(live, 1))
            commit(table, lambda head: Change(removed_paths=gone))
            commit(table, lambda head: Change((_file(site, head, DataFileContent.DATA, next(iter(gone))),)))
        case "tag" if table.metadata.snapshots:
            create_tag(table, f"tag{uuid.uuid4()}", chance.choice(table.metadata.snapshots).snapshot_id)
        case "branch" if table.current_snapshot():
            create_branch(table, branch := f"b{uuid.uuid4()}")
            commit(table, lambda head: Change((_file(site, head, DataFileContent.DATA),)), branch)
        case "stage" | "pick" as change if table.current_snapshot():
            _stage(site, picked=change == "pick")
            site.shapes.add("picked snapshots" if change == "pick" else "staged snapshots")
        case "spec":
            _change_spec(table)
            site.shapes.add("several specs")
        case "rollback" if table.current_snapshot():
            rollback(table, chance.choice(table.metadata.snapshots).snapshot_id)
        case "expire" if table.metadata.snapshots:
            expire_snapshots(table)
        case "stats" if table.current_snapshot():
            _add_statistics(site)
        case _:
            count = chance.randint(1, 3)
            commit(table, lambda head: Change(tuple(_file(site, head, DataFileContent.DATA) for _ in range(count))))


def _stage(site: Site, *, picked: bool) -> None:
    """A snapshot of no branch; when picked main has its file too, as Java's cherry-pick commits it."""
    table = site.table
    create_branch(table, "staging")
    file = _file(site, table, DataFileContent.DATA)
    staged = commit(table, lambda head: Change((file,), summary={"wap.id": "staged"}), "staging")
    table.catalog.commit_table(table, (), (RemoveSnapshotRefUpdate(**{"ref-name": "staging"}),))
    table.refresh()
    assert staged is not None
    if picked:
        said = {"source-snapshot-id": str(staged.snapshot_id), "published-wap-id": "staged"}
        commit(table, lambda head: Change((file,), summary=said))


def _change_spec(table: Table) -> None:
    """Partitioned from now on, or no longer."""
    named = [one.name for one in table.spec().fields if isinstance(one.transform, IdentityTransform)]
    with table.update_spec() as change:
        if named:
            change.remove_field(*named)
        else:
            change.add_identity("_p")
    table.refresh()


def _partition(spec: PartitionSpec) -> Record:
    """The one partition that rows are in."""
    return Record(*("a é" if isinstance(one.transform, IdentityTransform) else None for one in spec.fields))


def live_paths(table: Table) -> list[str]:
    """The files that main's head has."""
    snapshot = table.refresh().current_snapshot()
    found = () if snapshot is None else snapshot.manifests(table.io)
    return [entry.data_file.file_path for one in found for entry in one.fetch_manifest_entry(table.io)]


def _file(site: Site, head: Table, content: DataFileContent, path: str = "") -> DataFile:
    spec = head.spec()
    directory = "_p=a é/" if spec.fields else ""
    place = place_of(path) if path else put(f"{site.anywhere}/{directory}{uuid.uuid4()}.parquet")
    made = DataFile.from_args(
        content=content,
        file_path=path or site.chance.choice(site.spellings)(place),
        file_format=FileFormat.PARQUET,
        partition=_partition(spec),
        record_count=1,
        file_size_in_bytes=3,
        equality_ids=[2] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    made.spec_id = spec.spec_id
    return made


def _add_statistics(site: Site) -> None:
    snapshot = site.table.refresh().current_snapshot()
    assert snapshot is not None
    said: dict[str, Any] = {
        "snapshot-id": snapshot.snapshot_id,
        "statistics-path": "file:" + put(f"{site.root}/metadata/{uuid.uuid4()}.stats"),
        "file-size-in-bytes": 3,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    with site.table.update_statistics() as update:
        update.set_statistics(StatisticsFile(**said))


def plant(site: Site) -> None:
    """Files of every kind that belong to nobody, and their likes that somebody needs or that are too young."""
    table, root = site.table, site.root
    inside = site.inside
    metadata = Path(place_of(table.metadata_location))
    unnamed = {
        "data": f"{inside}/{uuid.uuid4()}.parquet",
        "data of a partition": f"{inside}/_p=a é/{uuid.uuid4()}.parquet"
        if table.spec().fields
        else f"{inside}/b/c.orc",
        "delete": f"{inside}/{uuid.uuid4()}-deletes.parquet",
        "vector": f"{inside}/{uuid.uuid4()}.puffin",
        "manifest": f"{root}/metadata/{uuid.uuid4()}-m0.avro",
        "list": f"{root}/metadata/snap-1-1-{uuid.uuid4()}.avro",
        "statistics": f"{root}/metadata/{uuid.uuid4()}.stats",
        "foreign": f"{inside}/part-0 %20#?.parquet",
        "behind a hash": f"{site.anywhere}/{uuid.uuid4()}.parquet",
    }
    for kind, path in unnamed.items():
        site.orphans[put(path)] = kind
        site.kept[put(f"{os.path.dirname(path)}/young-{uuid.uuid4()}-{os.path.basename(path)}", YOUNG)] = "young"
    lost = f"{root}/metadata/09999-{uuid.uuid4()}.metadata.json"
    site.orphans[put(lost, content=metadata.read_bytes())] = "metadata"
    site.kept[put(f"{root}/metadata/broken-{uuid.uuid4()}.metadata.json", content=b"{")] = "unreadable"
    site.kept[put(f"{inside}/_temporary/0/{uuid.uuid4()}.parquet")] = "hidden"
    site.kept[put(f"{inside}/.{uuid.uuid4()}.parquet")] = "hidden"
    site.kept[put(f"{root}/metadata/version-hint.text")] = "hint"
    _plant_outputs(site, inside)
    _plant_flink(site, inside)
    for wanted, name in ((site.needed, "used"), (site.condemned, "condemned")):
        path = put(f"{inside}/{name}-{uuid.uuid4()}.parquet")
        wanted.add(site.chance.choice(SPELLINGS)(path))
        site.kept[path] = name


def _plant_outputs(site: Site, inside: str) -> None:
    ids = {name: uuid7(OLD) for name in ("active", "ended", "ending", "unknown")}
    site.active = {ids["active"]}
    site.ended = {
        ids["ended"]: NOW - timedelta(hours=3, minutes=1),
        ids["ending"]: NOW - timedelta(hours=2, minutes=59),
    }
    for name, process_id in ids.items():
        for at in (OLD, YOUNG):
            path = put(f"{inside}/{process_id}-1-1-{uuid.uuid4()}.parquet", at)
            goes = name == "ended" or (name == "unknown" and at is OLD)
            (site.orphans if goes else site.kept)[path] = f"{name} process"


def _plant_flink(site: Site, inside: str) -> None:
    """A manifest of the table's own kind under Flink's name; the older one is past its time."""
    for age, goes in ((timedelta(days=6), False), (timedelta(days=8), True)):
        path = f"{site.root}/metadata/{'ab' * 16}-op-1-00000-0-{site.chance.randint(1, 99)}-00000.avro"
        path = path.replace(".avro", f"-{uuid.uuid4()}.avro")
        data = put(f"{inside}/{uuid.uuid4()}.parquet")
        write_manifest_of(site.table, path, data)
        put(path, NOW - age, Path(path).read_bytes())
        target = site.orphans if goes else site.kept
        target[path], target[data] = "Flink's manifest", "named by Flink's manifest"


def write_manifest_of(table: Table, path: str, data: str) -> None:
    """A manifest with one added file, as Flink's committer writes it."""
    file = file_of(table, data)
    output = table.io.new_output(f"file://{path}")
    with write_manifest(2, table.spec(), table.schema(), output, 0, "deflate") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=0, data_file=file))


def file_of(table: Table, path: str) -> DataFile:
    """A data file of the table at that path, of three bytes."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path if ":" in path else f"file:{path}",
        file_format=FileFormat.PARQUET,
        partition=_partition(table.spec()),
        record_count=1,
        file_size_in_bytes=3,
    )
    file.spec_id = table.spec().spec_id
    return file
