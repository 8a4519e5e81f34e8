"""Inspecting one table: properties, health, files, snapshots. Nothing is changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from amoro_core.errors import AmoroError, InvalidArgument, TableNotFound
from amoro_core.formats.configuration import effective_config
from amoro_core.formats.ports import Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import (
    EffectiveProperty,
    Enabled,
    decide_enabled,
    effective_properties,
    parse_config,
)
from amoro_core.model.paging import Page, Window, page_in_order
from amoro_core.model.plans import Evaluation, PartitionKey
from amoro_core.model.tables import SnapshotFacts, TableFacts, TableIdentifier, TableSchema
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.scan.live_files import LiveFiles
from amoro_core.store import tables
from amoro_core.store.database import Store

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A live file of a table's head."""

    file: DataFile | DeleteFile
    partition: str  # its path
    deletes: int = 0  # delete files that apply to a data file
    is_dangling: bool = False


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """Some of the live files of a snapshot, and their total number."""

    snapshot_id: int | None
    files: Page[ShownFile]  # by partition and path; `next` is a path


class InspectionService:
    """Loads a table and returns what it contains.

    Every method but `is_head` raises TableNotFound, CatalogUnavailable, TableRefused.
    """

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock

    def is_head(self, identifier: TableIdentifier, snapshot_id: int) -> bool:
        """Whether the snapshot is still the table's head; also False if that is unknown."""
        try:
            return self._load(identifier).facts.snapshot_id == snapshot_id
        except AmoroError:
            return False

    def properties(
        self, identifier: TableIdentifier, *, known_only: bool = False
    ) -> tuple[tuple[EffectiveProperty, ...], Enabled]:
        """The properties that control the table's optimizing, including malformed values, and whether it is optimized.

        `known_only`: the table's own are those of its last refresh; raises TableNotFound for one that is not known.
        Raises TableRefused("configuration") only for a malformed `self-optimizing.enabled`.
        """
        catalog = self._tables.catalog(identifier.catalog)
        known = self._store.read(lambda db: tables.find(db, identifier))
        if known_only and known is None:
            raise TableNotFound(f"table {identifier} is not known")
        own = known.properties if known_only and known else self._tables.open(identifier).facts.properties
        defaults = dict(catalog.properties)
        override = known.enabled_override if known else None
        return effective_config(defaults, own), decide_enabled(override, own, defaults)

    def health(self, identifier: TableIdentifier) -> Evaluation:
        """The evaluation of the table's present head, even if nothing can be committed."""
        catalog = self._tables.catalog(identifier.catalog)
        table = self._load(identifier)
        config = parse_config(effective_properties(dict(catalog.properties), table.facts.properties))
        table.refuse_unsupported(for_commit=False)
        selects = table.selects(config.filter) if config.filter is not None else None
        known = self._store.read(lambda db: tables.find(db, identifier))
        last = self._store.read(lambda db: tables.partitions_last_optimized(db, known.table_id)) if known else {}
        return evaluate(_scanned(table), config, last, self._clock(), path_of=table.partition_path, selects=selects)

    def files(self, identifier: TableIdentifier, window: Window, snapshot_id: int | None = None) -> ShownFiles:
        """Live data and delete files of a snapshot, by default the head; `after` is a path.

        Raises InvalidArgument for an unknown snapshot or path.
        """
        table = self._load(identifier)
        found = _scanned(table) if snapshot_id is None else table.scan_of(snapshot_id)
        if found is None and snapshot_id is not None:
            raise InvalidArgument(f"table {identifier} has no snapshot {snapshot_id}", hint="List its files anew.")
        if found is None:
            return ShownFiles(None, Page((), 0))
        shown = [_shown(table, file.data, len(file.deletes)) for file in found.files]
        applied = {delete.identity: delete for delete in LiveFiles.of(found.files).applied}
        shown += [_shown(table, delete) for delete in applied.values()]
        shown += [
            _shown(table, delete, is_dangling=True) for delete in found.dangling if delete.identity not in applied
        ]
        shown.sort(key=lambda item: (item.partition, item.file.spec_id, item.file.path))
        return ShownFiles(found.snapshot_id, _page(shown, window, "live file", lambda item: item.file.path))

    def snapshots(self, identifier: TableIdentifier, window: Window) -> Page[SnapshotFacts]:
        """Snapshots that the table still has, the newest first; `after` is the id of one.

        Raises InvalidArgument for an id that none has.
        """
        return _page(self._load(identifier).snapshots(), window, "snapshot", lambda item: str(item.snapshot_id))

    def metadata(self, identifier: TableIdentifier) -> tuple[TableFacts, TableSchema, datetime | None]:
        """Facts and schema of the table's metadata, and the commit time of main's head; None without a head."""
        table = self._load(identifier)
        facts = table.facts
        head = next((one for one in table.snapshots() if one.snapshot_id == facts.snapshot_id), None)
        return facts, table.schema(), head.committed_at if head else None

    def _load(self, identifier: TableIdentifier) -> Readable:
        return with_roles(self._tables.open(identifier), (Role.READ,), "reading it")


def _page(items: Sequence[Item], window: Window, what: str, name: Callable[[Item], str]) -> Page[Item]:
    try:
        return page_in_order(items, window.after, window.limit, name)
    except ValueError as error:
        raise InvalidArgument(f"the table has no {what} {window.after!r}", hint="List them anew.") from error


def _scanned(table: Readable) -> TableScan | None:
    """The files of the head, including those for which the table is refused."""
    snapshot_id = table.facts.snapshot_id
    return None if snapshot_id is None else table.scan_of(snapshot_id)


def _shown(table: Readable, file: DataFile | DeleteFile, deletes: int = 0, *, is_dangling: bool = False) -> ShownFile:
    path = table.partition_path(PartitionKey(file.spec_id, file.partition))
    return ShownFile(file, path, deletes, is_dangling)
