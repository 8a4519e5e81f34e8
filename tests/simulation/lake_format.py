"""The lake behind the port through which services see catalogs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from amoro_core.errors import CatalogUnavailable, CommitConflict, DataFileMissing, TableNotFound
from amoro_core.files.deletes.row_matcher import RowPosition
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.ports import Role
from amoro_core.model.clustering import Layout, LayoutKey, Sorting
from amoro_core.model.commits import (
    CommitContent,
    Evidence,
    FileFacts,
    Group,
    Head,
    RefAt,
    SnapshotAdded,
    SortOrderAdded,
    StagedCommit,
    Trace,
)
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.maintenance import LateDelete
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import ICEBERG, SchemaColumn, SnapshotFacts, TableFacts, TableIdentifier, TableSchema
from amoro_core.model.task_payload import TableContext
from amoro_core.validation.view import CarriedRows
from tests.simulation.lake import Lake, LakeTable, Manifest, Snapshot, payload, tag_payload

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "int"}]}
#: Called before each call of the catalog, by its name; may let others act, raise, or end the coordinator.
At = Callable[[str], None]


class LakeFormat:
    """A kind of tables that live in memory, in the place of Iceberg's."""

    name = ICEBERG

    def __init__(self, lake: Lake, at: At) -> None:
        self.lake = self._lake = lake
        self._at = at

    def check(self, catalog: CatalogConfig) -> None:
        return None

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        return None

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        self._at("list")
        listed = sorted(self._lake.tables)
        if self._lake.faulty and self._lake.chance.random() < 0.2:
            return self._lake.chance.sample(listed, self._lake.chance.randint(0, len(listed)))  # a listing may lie
        return listed

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> LakeTableAtOnce:
        self._at("load")
        return LakeTableAtOnce(self._lake, self._at, self._found(identifier))

    def _found(self, identifier: TableIdentifier) -> LakeTable:
        found = self._lake.tables.get(identifier)
        if found is None:
            raise TableNotFound(f"table {identifier} does not exist")
        return found


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

    def left_alone(self) -> str | None:
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

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        raise NotImplementedError("the core does not ask")

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        return frozenset()

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        return ()

    def access(self) -> FileAccess:
        raise NotImplementedError("the core does not ask")

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        raise NotImplementedError("no table here has a filter")

    def chooses(self, condition: str) -> Callable[[PartitionKey], bool]:
        raise NotImplementedError("nobody here chooses partitions")

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

    def stage_sort_order(self, keys: Sequence[LayoutKey]) -> tuple[bytes, SortOrderAdded]:
        raise NotImplementedError("layouts here are curves")

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

    def positions(self, delete: DeleteFile, rows: Mapping[str, int]) -> Mapping[str, PositionSet]:
        raise NotImplementedError("its optimizers do not tell which rows they left out")

    def left_out(self, group: Group) -> Mapping[int, PositionSet]:
        raise NotImplementedError("its optimizers do not tell which rows they left out")

    def look_up(
        self, group: Group, wanted: Mapping[int, PositionSet], taken: Mapping[int, PositionSet]
    ) -> Mapping[RowPosition, RowPosition]:
        raise NotImplementedError("its optimizers put no rows into another order")

    def write_carried(self, rows: Sequence[CarriedRows], process_id: str) -> tuple[DeleteFile, ...]:
        raise NotImplementedError("its optimizers do not tell which rows they left out")

    def stage_upgrade(self) -> bytes:
        raise NotImplementedError("its tables are not upgraded")

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
