"""Tables in memory in place of Iceberg's, their rows and commits, and the format through which services see them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from amoro_core.errors import (
    CatalogUnavailable,
    CommitConflict,
    CommitRefused,
    CommitUnknown,
    DataFileMissing,
    TableNotFound,
)
from amoro_core.formats.ports import OpenTable, Role
from amoro_core.model.clustering import Layout, LayoutKey, Sorting
from amoro_core.model.commits import CommitContent, Evidence, FileFacts, Head, RefAt, SnapshotAdded, StagedCommit, Trace
from amoro_core.model.files import (
    DataFile,
    DeleteFile,
    DeleteIdentity,
    DeleteKind,
    FileFormat,
    Partition,
    ScannedFile,
    TableScan,
)
from amoro_core.model.maintenance import LateDelete
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import ICEBERG, SchemaColumn, SnapshotFacts, TableFacts, TableIdentifier, TableSchema
from amoro_core.model.task_payload import TableContext
from amoro_core.scan.matching import match

Row = tuple[int, int]  # key and version
Rows = frozenset[Row]
_NO_PARTITIONS_EVERYWHERE: frozenset[int] = frozenset()
PARTITIONS: tuple[Partition, ...] = ((b"a",), (b"b",))
ROW_BYTES = 100
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is live in one snapshot."""

    data: tuple[DataFile, ...] = ()
    deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    manifest_list: str
    rows: Rows  # that readers must find
    process_id: str = ""
    committed_at: datetime = LONG_AGO


@dataclass(slots=True)
class LakeTable:
    identifier: TableIdentifier
    uuid: str
    location: str
    properties: dict[str, str]
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    head: Snapshot | None = None
    last_sequence_number: int = 0
    tags: dict[str, int] = field(default_factory=dict)

    def ancestors(self, snapshot: Snapshot) -> tuple[list[Snapshot], bool]:
        """The snapshot and what it descends from, newest first, and whether the line is whole."""
        line = [snapshot]
        while (parent := line[-1].parent_id) is not None:
            if parent not in self.snapshots:
                return line, False
            line.append(self.snapshots[parent])
        return line, True


Content = Rows | frozenset[int] | Manifest  # of data and position delete files, equality delete files, manifest lists


class Lake:
    """A catalog with its files. `fate` says what becomes of a commit that is sent."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.tables: dict[TableIdentifier, LakeTable] = {}
        self.files: dict[str, Content] = {}
        self.under_way: list[bytes] = []  # commits whose sender knows nothing, and which may be applied later
        self.landed: dict[str, tuple[LakeTable, int]] = {}  # table and last snapshot, by process
        self.snapshots_landed: set[int] = set()
        self.commits_by_groups: Callable[[str], bool] = lambda process_id: False
        self.faulty = True
        self.clock: Callable[[], datetime] = lambda: LONG_AGO
        self.tagged: list[tuple[str, str]] = []  # uuid of the table and name, as tags were made
        self._numbers = 0

    # What the coordinator's port asks for

    def scan(self, table: LakeTable, snapshot: Snapshot) -> TableScan:
        manifest = self.manifest(snapshot)
        files, dangling = match(manifest.data, manifest.deletes, _NO_PARTITIONS_EVERYWHERE)
        return TableScan(snapshot.snapshot_id, snapshot.sequence_number, files, dangling, _NO_PARTITIONS_EVERYWHERE)

    def manifest(self, snapshot: Snapshot) -> Manifest:
        found = self.files.get(snapshot.manifest_list)
        assert isinstance(found, Manifest), f"the manifest list of snapshot {snapshot.snapshot_id} was removed"
        return found

    def live_rows(self, table: LakeTable, snapshot: Snapshot) -> list[Row]:
        """What a reader finds, a row twice where it is live twice."""
        scanned = self.scan(table, snapshot).files
        return [row for one in scanned for row in sorted(self.left(one.data.path, one.deletes))]

    def left(self, path: str, deletes: Iterable[DeleteFile]) -> Rows:
        """The rows of a data file that none of the deletes removes."""
        rows = self.rows_of(path)
        for delete in deletes:
            content = self.files.get(delete.path)
            assert content is not None, f"the live delete {delete.path} was removed"
            is_equality = delete.kind is DeleteKind.EQUALITY
            rows = frozenset(row for row in rows if row[0] not in content) if is_equality else rows - content
        return rows

    def rows_of(self, path: str) -> Rows:
        rows = self.files.get(path)
        assert rows is not None, f"the live file {path} was removed"
        return rows

    def send(self, payload: bytes) -> None:
        """Raises CommitConflict, CommitRefused, CommitUnknown; as the seed will while the lake is faulty."""
        fate = self.chance.random() if self.faulty else 1.0
        if fate < 0.04:
            raise CommitRefused("the catalog answered 403")
        if fate < 0.08:
            raise CommitUnknown("the connection was reset, and nothing arrived")
        if fate < 0.16:
            self.under_way.append(payload)
            raise CommitUnknown("no answer in time")
        self._apply(payload)
        if fate < 0.24:
            raise CommitUnknown("the connection was reset before the answer")

    def stray(self, table: LakeTable) -> str:
        """A file that nobody names any more, or never did."""
        path = f"{table.location}/data/stray-{self._next()}.parquet"
        self.files[path] = frozenset()
        return path

    def to_be_swept(self, opened: OpenTable) -> list[str]:
        """The strays of a table, and with any a live file, which must stay: it is for the one who removes to see."""
        start = f"{opened.facts.location}/data/stray-"
        strays = sorted(path for path in self.files if path.startswith(start))
        table = self.tables.get(opened.facts.identifier)
        live = [] if table is None or table.head is None else [file.path for file in self.manifest(table.head).data]
        return [*strays, *live[:1]] if strays else []

    def shows(self, process_id: str) -> bool:
        """Whether the process landed and its table still says so: the history may be expired, the table gone."""
        table, snapshot_id = self.landed.get(process_id, (None, 0))
        return table is not None and self.tables.get(table.identifier) is table and snapshot_id in table.snapshots

    def arrive(self) -> bool:
        """Let one commit that is under way reach the catalog; whether it was applied."""
        payload = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        try:
            self._apply(payload)
        except (CommitConflict, CommitRefused):
            return False
        return True

    def _apply(self, payload: bytes) -> None:
        asked = json.loads(payload)
        table = self.tables.get(_identifier(asked["table"]))
        if table is None:
            raise CommitRefused("the table does not exist")
        if "tag" in asked:
            self._tag(table, asked)
            return
        if asked["snapshot"] in table.snapshots:
            return
        head = table.head
        if head is None or (table.uuid, head.snapshot_id) != (asked["uuid"], asked["parent"]):
            raise CommitConflict("the requirements do not hold")
        if asked["sequence_number"] <= table.last_sequence_number:
            raise CommitConflict("the sequence number is not the next one")
        process_id = asked["process"]
        is_single = not self.commits_by_groups(process_id)
        assert not (is_single and self.shows(process_id)), f"process {process_id} landed twice"
        assert asked["snapshot"] not in self.snapshots_landed, f"a snapshot of process {process_id} landed twice"
        self.snapshots_landed.add(asked["snapshot"])
        self.landed[process_id] = (table, asked["snapshot"])
        landed = Snapshot(
            asked["snapshot"],
            head.snapshot_id,
            asked["sequence_number"],
            asked["manifest_list"],
            head.rows,
            process_id,
            self.clock(),
        )
        self._keep(table, landed)

    def _tag(self, table: LakeTable, asked: dict[str, Any]) -> None:
        if table.uuid != asked["uuid"] or asked["tag"] in table.tags or asked["snapshot"] not in table.snapshots:
            raise CommitConflict("the requirements do not hold")
        table.tags[asked["tag"]] = asked["snapshot"]
        self.tagged.append((table.uuid, asked["tag"]))

    def _keep(self, table: LakeTable, snapshot: Snapshot) -> None:
        found = self.live_rows(table, snapshot)
        assert sorted(snapshot.rows) == found or sorted(found) == sorted(snapshot.rows), (
            f"snapshot {snapshot.snapshot_id} of {table.identifier} has other rows: "
            f"{sorted(set(found) ^ set(snapshot.rows))}, {len(found)} of {len(snapshot.rows)}"
        )
        table.snapshots[snapshot.snapshot_id] = snapshot
        table.head = snapshot
        table.last_sequence_number = snapshot.sequence_number

    def require_whole(self) -> None:
        """Every snapshot of every table can be read, with its rows."""
        for table in self.tables.values():
            for snapshot in table.snapshots.values():
                assert sorted(self.live_rows(table, snapshot)) == sorted(snapshot.rows)

    # Other writers

    def create(self, identifier: TableIdentifier, properties: dict[str, str]) -> LakeTable:
        number = self._next()
        table = LakeTable(identifier, f"uuid-{number}", f"mem://lake/{identifier.name}-{number}", properties)
        self.tables[identifier] = table
        return table

    def append(self, table: LakeTable, files: int = 1) -> None:
        partition = self.chance.choice(PARTITIONS)
        new = [self._data(table, partition, self._new_rows(table)) for _ in range(files)]
        self._commit(table, added=new)

    def upsert(self, table: LakeTable) -> None:
        """New versions of some keys of one partition, the old ones deleted by equality."""
        partition = self.chance.choice(PARTITIONS)
        scanned = [] if table.head is None else self.scan(table, table.head).files
        there = [one for one in scanned if one.data.partition == partition]
        keys = sorted({row[0] for one in there for row in self.left(one.data.path, one.deletes)})
        chosen = frozenset(self.chance.sample(keys, min(len(keys), self.chance.randint(1, 3))))
        if not chosen:
            return self.append(table)
        new = frozenset((key, self._next()) for key in chosen)
        delete = self._delete(table, partition, DeleteKind.EQUALITY, chosen)
        return self._commit(table, added=[self._data(table, partition, new)], deletes=[delete])

    def delete_rows(self, table: LakeTable) -> None:
        """Some rows of one file, by position."""
        scan = None if table.head is None else self.scan(table, table.head)
        files = [one for one in scan.files if one.data.record_count > 1] if scan is not None else []
        if not files:
            return self.append(table)
        file = self.chance.choice(files).data
        rows = sorted(self.rows_of(file.path))
        chosen = frozenset(self.chance.sample(rows, self.chance.randint(1, len(rows) - 1)))
        delete = self._delete(table, file.partition, DeleteKind.POSITION, chosen, file.path)
        return self._commit(table, deletes=[delete])

    def overwrite(self, table: LakeTable) -> None:
        """One file replaced by another with other rows."""
        data = self.manifest(table.head).data if table.head is not None else ()
        if not data:
            return self.append(table)
        gone = self.chance.choice(data)
        new = self._data(table, gone.partition, self._new_rows(table))
        return self._commit(table, added=[new], removed=frozenset({gone.path}))

    def roll_back(self, table: LakeTable) -> None:
        if table.head is not None and table.head.parent_id in table.snapshots:
            table.head = table.snapshots[table.head.parent_id]

    def expire(self, table: LakeTable) -> None:
        """Only the head is left of the history, and what has a tag."""
        if table.head is not None:
            kept = {table.head.snapshot_id, *table.tags.values()}
            table.snapshots = {key: one for key, one in table.snapshots.items() if key in kept}

    def _commit(
        self,
        table: LakeTable,
        added: Iterable[DataFile] = (),
        deletes: Iterable[DeleteFile] = (),
        removed: frozenset[str] = frozenset(),
    ) -> None:
        before = self.manifest(table.head) if table.head is not None else Manifest()
        data = tuple(file for file in before.data if file.path not in removed)
        manifest = Manifest((*data, *added), (*before.deletes, *deletes))
        snapshot_id, sequence_number = self._next(), table.last_sequence_number + 1
        path = f"{table.location}/metadata/snap-{snapshot_id}.avro"
        self.files[path] = manifest
        parent = table.head.snapshot_id if table.head is not None else None
        draft = Snapshot(snapshot_id, parent, sequence_number, path, frozenset())
        rows = self.live_rows(table, draft)
        assert len(set(rows)) == len(rows)
        self._keep(table, replace(draft, rows=frozenset(rows), committed_at=self.clock()))

    def _new_rows(self, table: LakeTable) -> Rows:
        return frozenset((self._next(), 0) for _ in range(self.chance.choice((1, 2, 3, 3, 8, 30))))

    def _data(self, table: LakeTable, partition: Partition, rows: Rows) -> DataFile:
        path = f"{table.location}/data/w-{self._next()}.parquet"
        self.files[path] = rows
        return data_file(path, partition, len(rows), table.last_sequence_number + 1)

    def _delete(
        self,
        table: LakeTable,
        partition: Partition,
        kind: DeleteKind,
        content: frozenset[int] | Rows,
        referenced: str | None = None,
    ) -> DeleteFile:
        path = f"{table.location}/data/d-{self._next()}.parquet"
        self.files[path] = content
        number = table.last_sequence_number + 1
        return delete_file(path, partition, kind, len(content), number, referenced)

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers


def data_file(path: str, partition: Partition, rows: int, sequence_number: int) -> DataFile:
    return DataFile(path, FileFormat.PARQUET, 0, partition, rows, rows * ROW_BYTES + 20, sequence_number)


def delete_file(
    path: str, partition: Partition, kind: DeleteKind, entries: int, sequence_number: int, referenced: str | None = None
) -> DeleteFile:
    ids = (1,) if kind is DeleteKind.EQUALITY else ()
    return DeleteFile(
        path, kind, FileFormat.PARQUET, 0, partition, entries, entries * 10 + 20, sequence_number, ids, referenced
    )


def payload(table: LakeTable, snapshot: Snapshot) -> bytes:
    """A commit as it is sent."""
    asked = {
        "table": [table.identifier.catalog, *table.identifier.in_catalog],
        "uuid": table.uuid,
        "parent": snapshot.parent_id,
        "snapshot": snapshot.snapshot_id,
        "sequence_number": snapshot.sequence_number,
        "manifest_list": snapshot.manifest_list,
        "process": snapshot.process_id,
    }
    return json.dumps(asked).encode()


def tag_payload(table: LakeTable, name: str, snapshot_id: int) -> bytes:
    """The making of a tag as it is sent."""
    names = [table.identifier.catalog, *table.identifier.in_catalog]
    return json.dumps({"table": names, "uuid": table.uuid, "tag": name, "snapshot": snapshot_id}).encode()


def _identifier(parts: list[str]) -> TableIdentifier:
    return TableIdentifier(parts[0], tuple(parts[1:-1]), parts[-1])


SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "int"}]}
#: Called before each call of the catalog, by its name; may let others act, raise, or end the coordinator.
At = Callable[[str], None]


class LakeFormat:
    """A kind of tables that live in memory, in the place of Iceberg's."""

    name = ICEBERG

    def __init__(self, lake: Lake, at: At) -> None:
        self.lake = lake
        self._at = at

    def check(self, catalog: CatalogConfig) -> None:
        return None

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        return None

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        self._at("list")
        listed = sorted(self.lake.tables)
        if self.lake.faulty and self.lake.chance.random() < 0.2:
            return self.lake.chance.sample(listed, self.lake.chance.randint(0, len(listed)))  # a listing may lie
        return listed

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> Any:
        """The table with all that the core asks it for."""
        self._at("load")
        if (found := self.lake.tables.get(identifier)) is None:
            raise TableNotFound(f"table {identifier} does not exist")
        return LakeTableAtOnce(self.lake, self._at, found)


class LakeTableAtOnce:
    """One table as loaded at one moment; `head` and `trace` look anew."""

    roles = frozenset({Role.READ, Role.REWRITE, Role.COMMIT, Role.MAINTAIN, Role.SORT})

    def __init__(self, lake: Lake, at: At, table: LakeTable) -> None:
        self._lake = lake
        self._at = at
        self._identifier = table.identifier
        self._uuid, self._head = table.uuid, table.head
        self._location, self._properties = table.location, dict(table.properties)

    @property
    def facts(self) -> TableFacts:
        head = self._head
        return TableFacts(
            identifier=self._identifier,
            uuid=self._uuid,
            format_version=2,
            location=self._location,
            metadata_location=f"{self._location}/metadata/{head.snapshot_id if head else 0}.json",
            snapshot_id=head.snapshot_id if head else None,
            sequence_number=head.sequence_number if head else 0,
            properties=self._properties,
            format=ICEBERG,
            last_column_id=1,
        )

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        return None

    def skip_reason(self) -> str | None:
        return None

    def schema(self) -> TableSchema:
        columns = (SchemaColumn(1, "id", "int", is_required=False, doc="", identifies=False),)
        return TableSchema(0, columns, 0, ())

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        table = self._now()
        known = sorted(table.snapshots.values(), key=lambda one: -one.sequence_number)
        refs = {key: tuple(sorted(name for name, at in table.tags.items() if at == key)) for key in table.snapshots}
        return tuple(
            SnapshotFacts(
                one.snapshot_id,
                one.parent_id,
                one.sequence_number,
                one.committed_at,
                "append",
                {},
                refs[one.snapshot_id],
            )
            for one in known
        )

    def scan(self) -> TableScan | None:
        self._at("scan")
        return None if self._head is None else self._lake.scan(self._now(), self._head)

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        found = self._now().snapshots.get(snapshot_id)
        return None if found is None else self._lake.scan(self._now(), found)

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        return frozenset()

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        return ()

    def context(self, spec_id: int) -> TableContext:
        return TableContext(
            catalog=self._identifier.catalog,
            table=str(self._identifier),
            table_uuid=self._uuid,
            format_version=2,
            location=self._location,
            data_location=f"{self._location}/data",
            schema_json=json.dumps(SCHEMA),
            spec_json="{}",
            name_mapping_json=None,
            dropped_fields_json=(),
            sort_order_json=None,
            properties={},
            read_locations=(self._location,),
        )

    def _unasked(self, *given: object, **more: object) -> Any:
        raise NotImplementedError("the core does not ask")

    reading = access = selects = chooses = stage_sort_order = write_carried = _unasked
    stage_upgrade = stage_properties = _unasked

    def refuse_inputs(self, paths: Iterable[str]) -> None:
        return None

    def partition_path(self, key: PartitionKey) -> str:
        return f"part={(key.partition[0] or b'').decode()}"

    def io_properties(self) -> Mapping[str, str]:
        return {}

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        self._at("head")
        table = self._now()
        if table.head is None:
            raise CommitConflict("the table has no snapshot left")
        line, is_whole = table.ancestors(table.head)
        numbers = [snapshot.snapshot_id for snapshot in line]
        descends = planned_snapshot_id in numbers or (None if not is_whole else False)
        return Head(
            table_uuid=table.uuid,
            format_version=2,
            snapshot_id=table.head.snapshot_id,
            sequence_number=table.head.sequence_number,
            descends=descends,
            field_ids=frozenset({1}),
            scan=self._lake.scan(table, table.head),
            removed_equality_deletes=self._removed(line, planned_snapshot_id) if descends else None,
        )

    def _removed(self, line: list[Snapshot], planned_snapshot_id: int) -> tuple[DeleteFile, ...]:
        """Equality deletes that were live in the plan's snapshot or after it and are not in the newest."""
        since = line[: [snapshot.snapshot_id for snapshot in line].index(planned_snapshot_id) + 1]
        live = {delete.path for delete in self._lake.manifest(line[0]).deletes}
        seen = {delete.path: delete for snapshot in since for delete in self._lake.manifest(snapshot).deletes}
        return tuple(
            delete for path, delete in sorted(seen.items()) if path not in live and delete.kind is DeleteKind.EQUALITY
        )

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        self._at("stage")
        table = self._now()
        if table.head is None or (table.uuid, table.head.snapshot_id) != (head.table_uuid, head.snapshot_id):
            raise CommitConflict(f"{self._identifier} changed after snapshot {head.snapshot_id} was validated")
        before = self._lake.manifest(table.head)
        gone = {file.path for file in (*content.removed_data, *content.removed_deletes)}
        assert gone <= {file.path for file in (*before.data, *before.deletes)}
        manifest = Manifest(
            (*(file for file in before.data if file.path not in gone), *content.added_data),
            (*(file for file in before.deletes if file.path not in gone), *content.added_deletes),
        )
        snapshot_id = self._lake.chance.getrandbits(62)
        path = f"{table.location}/metadata/snap-{snapshot_id}.avro"
        self._lake.files[path] = manifest
        staged = Snapshot(
            snapshot_id,
            table.head.snapshot_id,
            table.last_sequence_number + 1,
            path,
            table.head.rows,
            summary["amoro.process-id"],
        )
        return StagedCommit(
            snapshot_id=snapshot_id,
            parent_snapshot_id=table.head.snapshot_id,
            sequence_number=staged.sequence_number,
            manifest_list=path,
            payload=payload(table, staged),
            metadata_files=(path,),
        )

    def sorting(self) -> Sorting:
        return Sorting(())

    def filtered_columns(self, condition: str) -> frozenset[str]:
        return frozenset()

    def distinct_values(self) -> Mapping[int, int]:
        return {}

    def layout_of(self, file: DataFile) -> Layout | None:
        return None

    def order_id_of(self, keys: Sequence[LayoutKey]) -> int:
        return 0

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
        self._at("stage")
        table = self._now()
        if name in table.tags or snapshot_id not in table.snapshots:
            raise CommitConflict(f"{name} is there already, or snapshot {snapshot_id} is not")
        return tag_payload(table, name, snapshot_id)

    def send(self, payload: bytes) -> None:
        self._at("send")
        self._lake.send(payload)
        self._at("sent")

    def trace(self, evidence: Evidence) -> Trace:
        self._at("trace")
        table = self._now()
        if isinstance(evidence, RefAt):
            if table.tags.get(evidence.name) == evidence.snapshot_id:
                return Trace.LANDED
            may_be = evidence.name not in table.tags and evidence.snapshot_id in table.snapshots
            return Trace.OPEN if may_be else Trace.REFUTED
        assert isinstance(evidence, SnapshotAdded)
        manifest = Manifest() if table.head is None else self._lake.manifest(table.head)
        live = {file.path for file in (*manifest.data, *manifest.deletes)}
        if evidence.snapshot_id in table.snapshots or not live.isdisjoint(evidence.files):
            return Trace.LANDED
        return Trace.REFUTED if table.last_sequence_number >= evidence.sequence_number else Trace.OPEN

    def file_facts(self, path: str) -> FileFacts:
        rows = self._lake.files.get(path)
        if not isinstance(rows, frozenset):
            raise DataFileMissing(f"{path} does not exist")
        size = len(rows) * (10 if "-deletes" in path else 100) + 20
        return FileFacts(size, len(rows), {1: len(rows)}, {1: 0})

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        self._at("delete")
        table = self._now()
        named = {snapshot.manifest_list for snapshot in table.snapshots.values()}
        for snapshot in table.snapshots.values():
            manifest = self._lake.manifest(snapshot)
            named |= {file.path for file in (*manifest.data, *manifest.deletes)}
        ours = [path for path in dict.fromkeys(paths) if path.startswith(f"{table.location}/")]
        gone = tuple(path for path in ours if path not in named)
        for path in gone:
            self._lake.files.pop(path, None)
        return gone

    def _now(self) -> LakeTable:
        found = self._lake.tables.get(self._identifier)
        if found is None:
            raise TableNotFound(f"table {self._identifier} does not exist")
        if found.uuid != self._uuid:
            raise CommitConflict(f"{self._identifier} is another table: UUID {found.uuid}, before {self._uuid}")
        return found


def unavailable() -> CatalogUnavailable:
    return CatalogUnavailable("the catalog does not answer")
