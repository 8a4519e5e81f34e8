"""Looking into one table for people: properties, health, files, snapshots. Nothing is changed."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from amoro_core.formats.port import OpenTable, TableFormat
from amoro_core.model.config import (
    EffectiveProperty,
    Enabled,
    decide_enabled,
    effective_config,
    effective_properties,
    parse_config,
)
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.plans import Evaluation, PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import SnapshotFacts, TableIdentifier
from amoro_core.planning.evaluating import evaluate
from amoro_core.store import partitions, tables
from amoro_core.store.database import Store


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A live file of a table's head."""

    file: DataFile | DeleteFile
    partition: str  # its path
    deletes: int = 0  # delete files that apply to a data file
    is_dangling: bool = False


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """Some of the live files of a snapshot, and how many there are."""

    snapshot_id: int | None
    files: tuple[ShownFile, ...]
    total: int


class InspectionService:
    """Loads a table afresh and says what it holds.

    Every method raises TableNotFound, CatalogUnavailable, TableRefused.
    """

    def __init__(
        self,
        store: Store,
        tables_of: TableFormat,
        find_catalog: Callable[[str], CatalogConfig],
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._format = tables_of
        self._find_catalog = find_catalog
        self._clock = clock

    def properties(self, identifier: TableIdentifier) -> tuple[tuple[EffectiveProperty, ...], Enabled]:
        """What steers the table's optimizing, malformed values too, and whether it is optimized.

        Raises TableRefused("configuration") only for a malformed `self-optimizing.enabled`.
        """
        catalog = self._find_catalog(identifier.catalog)
        own = self._load(identifier).facts.properties
        defaults = dict(catalog.properties)
        known = self._store.read(lambda db: tables.find(db, identifier))
        override = known.enabled_override if known else None
        return effective_config(defaults, own), decide_enabled(override, own, defaults)

    def health(self, identifier: TableIdentifier) -> Evaluation:
        """The evaluation of the table's head as it is now, where nothing can be committed, too."""
        catalog = self._find_catalog(identifier.catalog)
        table = self._load(identifier)
        config = parse_config(effective_properties(dict(catalog.properties), table.facts.properties))
        table.refuse_unsupported(for_commit=False)
        selects = table.selects(config.filter) if config.filter is not None else None
        known = self._store.read(lambda db: tables.find(db, identifier))
        last = self._store.read(lambda db: partitions.last_optimized(db, known.table_id)) if known else {}
        return evaluate(table.scan(), config, last, self._clock(), path_of=table.partition_path, selects=selects)

    def files(self, identifier: TableIdentifier, limit: int) -> ShownFiles:
        """At most so many of the live data and delete files, by partition and path."""
        table = self._load(identifier)
        found = table.scan()
        if found is None:
            return ShownFiles(None, (), 0)
        shown = [_shown(table, file.data, len(file.deletes)) for file in found.files]
        applied = {delete.path: delete for file in found.files for delete in file.deletes}
        shown += [_shown(table, delete) for delete in applied.values()]
        shown += [_shown(table, delete, is_dangling=True) for delete in found.dangling if delete.path not in applied]
        shown.sort(key=lambda item: (item.partition, item.file.spec_id, item.file.path))
        return ShownFiles(found.snapshot_id, tuple(shown[:limit]), len(shown))

    def snapshots(self, identifier: TableIdentifier) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the table still has, the newest first."""
        return self._load(identifier).snapshots()

    def _load(self, identifier: TableIdentifier) -> OpenTable:
        return self._format.load(self._find_catalog(identifier.catalog), identifier)


def _shown(table: OpenTable, file: DataFile | DeleteFile, deletes: int = 0, *, is_dangling: bool = False) -> ShownFile:
    path = table.partition_path(PartitionKey(file.spec_id, file.partition))
    return ShownFile(file, path, deletes, is_dangling)
