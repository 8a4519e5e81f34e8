"""What every table format offers, and the further roles that a format may have."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import StrEnum
from typing import Any, Protocol, cast, runtime_checkable

from amoro_core.errors import TableRefused
from amoro_core.files.storage.inventory import Keys, StorageRoot
from amoro_core.files.storage.io import FileAccess
from amoro_core.maintenance.orphans import ReferencedFiles, TableLocations
from amoro_core.maintenance.trash import Trash
from amoro_core.model.clustering import Layout, LayoutKey, Sorting
from amoro_core.model.commits import (
    ColumnSketch,
    CommitContent,
    Evidence,
    FileFacts,
    Head,
    ManifestCluster,
    ManifestsStaged,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StagedCommit,
    StagedStatistics,
    StatisticsEntries,
    Trace,
)
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, ScannedFile, TableScan
from amoro_core.model.maintenance import LateDelete, Reach, Released, StoredFile, TimeColumn
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.table_services import TableContents, TimelineEntry
from amoro_core.model.tables import History, SnapshotFacts, TableFacts, TableIdentifier, TableSchema
from amoro_core.model.task_payload import TableContext
from amoro_core.validation.view import CarriedRows


class Role(StrEnum):
    """A role: a set of methods that a format may offer."""

    READ = "read"  # `Readable`: snapshots and live files
    REWRITE = "rewrite"  # `Rewritable`: files replaced by others with the same rows
    COMMIT = "commit"  # `Committable`: changes sent, each at most once; files of lost attempts removed
    MAINTAIN = "maintain"  # `Maintainable`: changes that add no snapshot
    SEARCH = "search"  # `Searchable`: files in its locations, and which of them the table references
    EXPIRE = "expire"  # `Expirable`: removing snapshots, and finding the files that only they needed
    SWEEP = "sweep"  # `Sweepable`: deleting files that a guard has released
    ANALYZE = "analyze"  # `Analyzable`: files with statistics of snapshots
    DATE = "date"  # `Dated`: the age of rows
    CLUSTER = "cluster"  # `Clusterable`: rewriting manifests
    SORT = "sort"  # `Sortable`: the orders in which rows may be written
    SERVICE = "service"  # `Serviced`: services that the format's own engine does, and commits


class OpenTable(Protocol):
    """One table as loaded at one moment: what every format offers.

    Methods that reload it raise TableNotFound when it is gone, CommitConflict when its name belongs to another table by
    then. Every method may raise CatalogUnavailable, DataFileMissing (a metadata file) or StorageFull.
    """

    roles: frozenset[Role]  # of the table, which has their methods

    @property
    def facts(self) -> TableFacts:
        """Facts about the table from loading it."""

    def refuse_unsupported(self, *, for_commit: bool = True) -> None:
        """Raise TableRefused, by name, for an unsupported feature; `for_commit`: also for one that is only supported
        for reading, and when its catalog can't commit."""

    def skip_reason(self) -> str | None:
        """Why a table under write-audit-publish is not optimized now; None when it may be."""

    def io_properties(self) -> Mapping[str, str]:
        """Properties for reading and writing this table's files, to be vended to an executor."""


class Readable(OpenTable, Protocol):
    """A table with snapshots and live files."""

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the metadata knows, the newest first."""

    def schema(self) -> TableSchema:
        """The current schema and the default partition spec."""

    def scan(self) -> TableScan | None:
        """All live files of main's head with their deletes; None without a snapshot. Raises TableRefused for files
        that are unsupported (location, partition of a delete, format, equality ids)."""

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        """All live files of a snapshot with their deletes, files of every format; None when it is not known."""

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        """The context for reading the files of that spec in those scans under the current schema."""

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        """The equality deletes that may delete rows of the files but that other readers of the format skip."""

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        """Snapshots of others above that sequence number, the oldest first, that delete rows of files which a commit of
        ours had already replaced; `scan` is of the head. Empty where the format can't tell."""

    def access(self, trash_folder: str = "") -> FileAccess:
        """Access to the table's files as it was last loaded, and to the trash that contains the folder."""

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        """A predicate: whether a data file may contain rows that satisfy the condition. Raises TableRefused."""

    def chooses(self, condition: str, *, widely: bool = False) -> Callable[[PartitionKey], bool]:
        """A predicate: whether a partition may contain such rows; `widely`: also where its spec can't decide it.

        Raises InvalidArgument for a condition that no spec of the table can decide.
        """

    def partition_path(self, key: PartitionKey) -> str:
        """The partition as Iceberg writes it in paths, "" when unpartitioned."""


class Guard(Protocol):
    """The check, right before files are deleted, which of them the table references; for one sweep."""

    def reachable(self, paths: Iterable[str]) -> Mapping[str, str]:
        """The files that any snapshot of the reloaded table references, each with the reason.

        After any exception nothing may be deleted: CommitConflict when the name belongs to another table or the table
        has moved; CatalogUnavailable for a state older than an earlier one; DataFileMissing or UnreadableFile for
        manifests and manifest lists; and those of loading the table.
        """


class Searchable(Readable, Protocol):
    """A table whose locations can be searched for files that it does not reference.

    An exception makes all earlier results void, also WorkFailed, UnreadableFile, and TableRefused("location").
    """

    def ground(self) -> TableLocations:
        """The locations of its files. Raises TableRefused("configuration") for malformed properties of its catalog."""

    def named(self) -> ReferencedFiles:
        """Everything that any snapshot references, including removed files."""

    def named_in_ranges(self, cuts: Sequence[str]) -> Sequence[Mapping[StorageRoot, Keys]]:
        """As `named`, as keys by storage root, for each range of paths: after one cut, up to and with the next.

        The cuts are sorted paths without scheme and authority; there is one range more than cuts.
        """

    def sampled(self) -> Sequence[str]:
        """A sample of the files that it references."""

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        """Manifests that a writer has not committed yet, and the files in them."""


class Sweepable(Readable, Protocol):
    """A table whose files can be deleted, also those of other writers."""

    def reach(self) -> Reach:
        """The locations of its files, for optimizers that delete them."""

    def guard(self, sequence_number: int = 0) -> Guard:
        """A new guard. The table had reached that sequence number when the deletion was planned."""

    def trash(self) -> Trash | None:
        """The trash to which its files are moved; None: they are deleted.

        Raises TableRefused("configuration") for one in another storage, ("location") for one that is not allowed.
        """


class Analyzable(OpenTable, Protocol):
    """A table whose metadata references files with statistics of its snapshots."""

    def countable_columns(self) -> Mapping[str, int]:
        """The ids of the top-level columns whose distinct values can be counted, by name."""

    def is_partitioned(self) -> bool:
        """Whether it is partitioned."""

    def statistics(self) -> StatisticsEntries:
        """The statistics in the metadata, as the table was last loaded."""

    def stage_statistics(
        self, snapshot_id: int, sketches: Sequence[ColumnSketch], *, partitions: bool
    ) -> StagedStatistics:
        """Write the files of a snapshot's statistics; with `partitions`, also of its partitions.

        They replace the snapshot's earlier ones; the same commit removes entries of removed snapshots. Raises
        CommitConflict when the snapshot is removed, ValueError when there is nothing to write.
        """

    def stage_statistics_removal(self, paths: Collection[str]) -> bytes:
        """The payload that removes these files from the reloaded metadata. Raises CommitConflict for an unknown one."""


class Dated(OpenTable, Protocol):
    """A table with a column that tells the age of rows."""

    def time_column(self, name: str) -> TimeColumn:
        """The top-level column, with the partition fields derived from it. Raises TableRefused("configuration")."""


class Clusterable(OpenTable, Protocol):
    """A table whose manifests can be rewritten, with the same files in them."""

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        """Manifests of main's head that are worth rewriting, sorted by partition.

        `min_count`: the least number of small ones of one content and spec; None: any gain suffices.
        Raises TableRefused("configuration") and the errors of reading manifests.
        """

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        """Rewrite such manifests of the present head and write a REPLACE snapshot's list; nothing is visible yet.

        Concurrent additions are kept. Raises CommitConflict when nothing is left to do, CheckFailed when the new
        manifests don't read back equal.
        """


class Sortable(OpenTable, Protocol):
    """A table whose rows may be written in a sort order of ours, recorded in its metadata and files."""

    def sorting(self) -> Sorting:
        """Its columns and sort orders, as the table was loaded, and how bounds and partitions compare."""

    def filtered_columns(self, condition: str) -> frozenset[str]:
        """The columns that a condition names. Raises TableRefused("configuration") for one that is malformed."""

    def distinct_values(self) -> Mapping[int, int]:
        """Estimated numbers of distinct values by field id, from the newest statistics in the metadata."""

    def layout_of(self, file: DataFile) -> Layout | None:
        """The layout in a clustered file's footer; None without one, or for another group than its name has.

        Raises DataFileMissing, UnreadableFile or TableRefused("location").
        """

    def order_id_of(self, keys: Sequence[LayoutKey]) -> int:
        """The id of the sort order with exactly these keys in the table as last loaded; 0: it has none."""

    def stage_sort_order(self, keys: Sequence[LayoutKey]) -> tuple[bytes, SortOrderAdded]:
        """The payload that adds a sort order to the reloaded table, never as its default."""


class Expirable(OpenTable, Protocol):
    """A table whose snapshots can be removed."""

    def history(self, *, anew: bool = False) -> History:
        """The table's snapshots and references; `anew`: reloaded, and `stage_expiry` applies to that state."""

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        """The files that only these snapshots need, in the table as loaded, in the order of deletion, each once.

        Raises DataFileMissing, UnreadableFile or CatalogUnavailable for manifests and manifest lists.
        """

    def stage_expiry(
        self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool
    ) -> tuple[bytes, SnapshotsRemoved]:
        """The payload that removes snapshots and references from the state `history` returned last, with its evidence.

        `clean`: also removes unused schemas and partition specs. Raises CommitConflict when one is removed already, or
        a remaining reference holds a snapshot.
        """

    def bring_back(self, removed: SnapshotsRemoved) -> tuple[str, ...]:
        """Restore branches and tags that were created on removed snapshots meanwhile and removed with them.

        Returns the names, including those restored already. Raises like `Committable.send`, TableRefused("format") for
        a format in which expired snapshots can't be restored.
        """

    def stage_return(
        self, metadata_location: str, removed: SnapshotsRemoved
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        """The payload that restores removed snapshots under tags `restored-ID`, with its evidence and the tags.

        `metadata_location` is a state that still had them. Raises CommitConflict when no state has them any more, a tag
        exists already or one of their files is missing, TableRefused("format") where they can't be restored.
        """

    def remove_fallen(self, kept: Callable[[], Collection[str]]) -> tuple[str, ...]:
        """Delete the metadata files that left the table's metadata log with the last sent commit, but none of `kept`.

        Only if the table's properties say so and the committer writes these files; `kept` is called only if there are
        any. Returns the deleted ones. Raises TableRefused("location"), CatalogUnavailable.
        """

    def released(self, metadata_location: str, removed: SnapshotsRemoved) -> Iterator[Released]:
        """The files that the reloaded table no longer needs after a removal that landed.

        `metadata_location` is a state that still had the snapshots; nothing is released if no such state can be read.
        Raises like `would_release`.
        """


class Rewritable(Readable, Protocol):
    """A table whose files can be replaced by others with the same rows."""

    def context(self, spec_id: int) -> TableContext:
        """The context for optimizers that rewrite files of that spec."""

    def refuse_inputs(self, paths: Iterable[str]) -> None:
        """Raise TableRefused for planned files that are not regular files ("file") or lie elsewhere ("location")."""

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        """The table's present state relative to that snapshot. Raises TableRefused for features unsupported by now."""

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        """Write the manifests of a snapshot on that head; nothing is visible yet.

        Raises CommitConflict when the head is known to be outdated; otherwise an outdated one conflicts when sent.
        """

    def file_facts(self, path: str) -> FileFacts:
        """Facts from a written file's footer. Raises DataFileMissing or UnreadableFile."""

    def write_carried(self, rows: Sequence[CarriedRows], process_id: str) -> tuple[DeleteFile, ...]:
        """Write the deletes of these rows, invisible before the commit. Raises StorageFull; nothing is left then."""


class Committable(OpenTable, Protocol):
    """A table to which changes are committed, each at most once however often it is sent."""

    def send(self, payload: bytes) -> None:
        """Send a staged change; the same bytes may be sent again and apply at most once.

        Raises CommitConflict or CommitRefused when the change is known not to be applied; CatalogUnavailable
        (AccessDenied) or StorageFull when this sending is known not to be applied, but another may be; CommitUnknown
        otherwise.
        """

    def trace(self, evidence: Evidence) -> Trace:
        """Whether a sent change was applied, as the reloaded table shows. Refuted: it can't be applied any more."""

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        """Delete those of our files below the table's location that no snapshot references now.

        `since`: a sequence number that the table had not reached when they were written: older snapshots don't count.
        Returns the files that no longer exist; in doubt a file is kept.
        """


class Maintainable(OpenTable, Protocol):
    """A table that supports changes which add no snapshot."""

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
        """The payload that tags a snapshot of the reloaded table. `max_age_ms` None: kept for ever.

        Readers count the age from the snapshot's own time. `again`: a tag of that name on that snapshot gets the age.
        Raises CommitConflict when the name is taken or the snapshot is gone.
        """

    def stage_upgrade(self) -> bytes:
        """The payload that upgrades the reloaded table to the newest supported format. Raises TableRefused."""

    def stage_properties(self, changes: Mapping[str, str | None]) -> bytes:
        """The payload that sets these properties of the table as loaded, and removes those that are None here."""


class Serviced(OpenTable, Protocol):
    """A table whose services are done by its format's own engine."""

    timeline: tuple[TimelineEntry, ...]  # as it was loaded, the oldest first
    contents: TableContents  # all that it consists of; reads once what loading it has not read


@runtime_checkable
class Comparable(OpenTable, Protocol):
    """A serviced table whose rows another reader than its format's own engine can read."""

    def last_rewrite(self) -> tuple[int, int] | None:
        """The states before and after the last service that kept all rows; None: it knows of none."""

    def done_since(self, state: int, operation: str) -> str:
        """The newest completed instant of that action or operation that was requested after the state; "" without."""

    def rows(self, state: int) -> Iterator[Any]:
        """The rows of a state in Arrow batches. Raises TableRefused where the reader can't read them."""


class AnyTable(
    Serviced,
    Comparable,
    Rewritable,
    Committable,
    Maintainable,
    Dated,
    Clusterable,
    Sortable,
    Sweepable,
    Expirable,
    Analyzable,
    Searchable,
    Protocol,
):
    """A table with the requested roles; the caller uses only these."""


def with_roles(table: OpenTable, needed: Iterable[Role], work: str) -> AnyTable:
    """The table, for work that needs those roles.

    Raises TableRefused("format"), naming format, work and roles, when its format lacks any.
    """
    if refusal := lacking(table, needed, work):
        raise refusal
    return cast(AnyTable, table)


def lacking(table: OpenTable, needed: Iterable[Role], work: str) -> TableRefused | None:
    """The refusal of a table whose format lacks any of those roles; None if it has them all."""
    missing = sorted(frozenset(needed) - table.roles)
    if not missing:
        return None
    facts = table.facts
    return TableRefused(
        f"{facts.identifier} has the format {facts.format}, which lacks what {work} needs: {', '.join(missing)}",
        reason="format",
        hint="Actions that don't need them are not affected"
        + (f"; see: amoro table actions {facts.identifier}" if Role.SERVICE in table.roles else "."),
    )


class TableFormat(Protocol):
    """A table format and its catalogs."""

    name: str  # in a catalog's `table-formats`, in lower case; stored with each of its tables

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured."""

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why nothing can be committed through this kind of catalog; None when it can."""

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> OpenTable:
        """The table's present state. Raises TableNotFound only when the catalog said that the table does not exist,
        and TableRefused("format") when it exists in another format."""


@runtime_checkable
class Locating(Protocol):
    """A format whose catalogs can list metadata locations; other formats are requested table by table."""

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[tuple[str, ...], str] | None:
        """The metadata locations of those tables, or of more, by their names in the catalog, in few requests.

        They equal `TableFacts.metadata_location` and change with each commit; unknown ones are left out. None: this
        catalog answers for single tables only. Raises CatalogUnavailable.
        """


@runtime_checkable
class Revalidating(Protocol):
    """A format that can check whether a table has changed without loading it."""

    def is_unchanged(self, catalog: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> bool:
        """Whether the catalog says that the table still has that metadata. Raises CatalogUnavailable."""
