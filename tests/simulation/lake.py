"""Tables in memory: snapshots, files with their rows, commits that are lost, late or refused, and other writers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown
from amoro_core.formats.ports import OpenTable
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, Partition, TableScan
from amoro_core.model.tables import TableIdentifier
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
        found: list[Row] = []
        for scanned in self.scan(table, snapshot).files:
            rows = self.rows_of(scanned.data.path)
            for delete in scanned.deletes:
                rows = self.without(rows, delete)
            found += sorted(rows)
        return found

    def rows_of(self, path: str) -> Rows:
        rows = self.files.get(path)
        assert rows is not None, f"the live file {path} was removed"
        return rows

    def without(self, rows: Rows, delete: DeleteFile) -> Rows:
        content = self.files.get(delete.path)
        assert content is not None, f"the live delete {delete.path} was removed"
        if delete.kind is DeleteKind.EQUALITY:
            return frozenset(row for row in rows if row[0] not in content)
        return rows - content

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
        live = self._by_partition(table)
        partition = self.chance.choice(PARTITIONS)
        keys = sorted({row[0] for row in live.get(partition, ())})
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

    def _by_partition(self, table: LakeTable) -> dict[Partition, Rows]:
        found: dict[Partition, Rows] = {}
        for scanned in self.scan(table, table.head).files if table.head is not None else ():
            rows = self.rows_of(scanned.data.path)
            for delete in scanned.deletes:
                rows = self.without(rows, delete)
            found[scanned.data.partition] = found.get(scanned.data.partition, frozenset()) | rows
        return found

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
