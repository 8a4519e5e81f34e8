"""The port through which actions and services access tables: one implementation for each table format, split by role.

Work on a table names the roles that it needs, and `with_roles` refuses a table whose format lacks one. So a format
offers what it can, and is refused only for work that needs what it lacks.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, cast, runtime_checkable

from amoro_core.errors import TableRefused
from amoro_core.files.io import FileAccess
from amoro_core.files.row_lookup import Place
from amoro_core.formats.opening import OpenTable, Role
from amoro_core.formats.upkeep import Upkept
from amoro_core.model.commits import CommitContent, Evidence, FileFacts, Group, Head, StagedCommit, Trace
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, ScannedFile, TableScan
from amoro_core.model.late_deletes import LateDelete
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.rewrite import TableContext
from amoro_core.model.tables import SnapshotFacts, TableIdentifier, TableSchema
from amoro_core.positions import PositionSet
from amoro_core.validating.rebasing import CarriedRows

__all__ = [
    "AnyTable",
    "Committable",
    "Locating",
    "Maintainable",
    "OpenTable",
    "Readable",
    "Revalidating",
    "Rewritable",
    "Role",
    "TableFormat",
    "lacking",
    "with_roles",
]


class Readable(OpenTable, Protocol):
    """A table with snapshots and live files."""

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the metadata knows, the newest first."""

    def schema(self) -> TableSchema:
        """The current schema and the default partition spec."""

    def scan(self) -> TableScan | None:
        """All live files of main's head with their deletes; None for a table without snapshot.

        Raises TableRefused for unsupported files (location, partition of a delete, format, equality ids); read-only
        callers use `scan_of`.
        """

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        """All live files of a snapshot with their deletes, files of every format; None when it is not known."""

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        """What must be known to read the files of that spec in those scans under the current schema."""

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        """The equality deletes that may delete rows of any of the files but are known to be skipped there by other
        readers of the format."""

    def late_deletes(self, scan: TableScan, since: int) -> tuple[LateDelete, ...]:
        """Snapshots of others above that sequence number, the oldest first, that delete rows of files which a commit of
        ours had replaced before; `scan` is of the head. None where the format can't tell."""

    def access(self) -> FileAccess:
        """Access to the table's files."""

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        """A predicate: whether a data file may contain rows that satisfy the condition (`self-optimizing.filter`).

        Raises TableRefused("configuration") for a malformed condition.
        """

    def chooses(self, condition: str) -> Callable[[PartitionKey], bool]:
        """A predicate: whether a partition may contain rows that satisfy the condition, by its values alone.

        Raises InvalidArgument for a condition that is malformed, or that partitions can't decide.
        """

    def partition_path(self, key: PartitionKey) -> str:
        """The partition as Iceberg writes it in paths, "" when unpartitioned."""


class Rewritable(Readable, Protocol):
    """A table whose files can be replaced by others with the same rows."""

    def context(self, spec_id: int) -> TableContext:
        """What executors must know to rewrite files of that spec."""

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

    def positions(self, delete: DeleteFile, rows: Mapping[str, int]) -> Mapping[str, PositionSet]:
        """What a position delete deletes of the data files at these normalised paths, each with its number of rows.

        Raises DataFileMissing, UnreadableFile or TableRefused("format").
        """

    def left_out(self, group: Group) -> Mapping[int, PositionSet]:
        """The rows that a task left out, by the number of the input. Raises DataFileMissing or UnreadableFile."""

    def look_up(
        self, group: Group, wanted: Mapping[int, PositionSet], taken: Mapping[int, PositionSet]
    ) -> Mapping[Place, Place]:
        """Where rows of the rewritten files of a task that looks rows up are in its outputs.

        Like `amoro_core.files.row_lookup.look_up`, and raises what that raises.
        """

    def write_carried(self, rows: Sequence[CarriedRows], process_id: str) -> tuple[DeleteFile, ...]:
        """Write the deletes of these rows, for one attempt of a commit; nothing is visible yet.

        Raises StorageFull; nothing is left of them then.
        """


class Committable(OpenTable, Protocol):
    """A table to which changes are committed, each at most once however often it is sent."""

    def send(self, payload: bytes) -> None:
        """Send a staged change; the same bytes may be sent again and apply at most once.

        Raises CommitConflict or CommitRefused when the change is known not to be applied; CatalogUnavailable
        (AccessDenied) or StorageFull when this sending is known not to be applied, but another may be; CommitUnknown
        otherwise.
        """

    def trace(self, evidence: Evidence) -> Trace:
        """Whether a change that was sent landed, according to the table as just loaded.

        Landed: its evidence is present. Refuted only once it can't be applied any more.
        """

    def delete_unreferenced(self, paths: Iterable[str], since: int = 0) -> tuple[str, ...]:
        """Delete those of our files below the table's location that no snapshot references now.

        `since`: a sequence number that the table had not reached when they were written: older snapshots don't count.
        Returns the files that no longer exist, whoever deleted them; in doubt a file is kept.
        """


class Maintainable(OpenTable, Protocol):
    """A table that supports changes which add no snapshot."""

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None, *, again: bool = False) -> bytes:
        """The payload that tags a snapshot of the reloaded table. `max_age_ms` None: kept for ever.

        Readers count the age from the snapshot's own time. `again`: a tag of that name on that snapshot gets the age.
        Raises CommitConflict when the name is taken or the snapshot is gone.
        """

    def stage_upgrade(self) -> bytes:
        """The payload that upgrades the reloaded table to the newest format that is handled; it adds no snapshot.

        Raises TableRefused for a table that is not handled, or while that format is not.
        """


class AnyTable(Rewritable, Committable, Maintainable, Upkept, Protocol):
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
    if missing:
        return TableRefused(
            f"{table.facts.identifier} has the format {table.facts.format}, which lacks what {work} needs: "
            f"{', '.join(missing)}",
            reason="format",
            hint="Actions that don't need them are not affected.",
        )
    return None


class TableFormat(Protocol):
    """A table format and its catalogs."""

    @property
    def name(self) -> str:
        """Its name in a catalog's `table-formats`, in lower case; stored with each of its tables."""

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured."""

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why nothing can be committed through this kind of catalog; None when it can."""

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> OpenTable:
        """The table's present state.

        Raises TableNotFound only when the catalog said that the table does not exist, and TableRefused("format") when
        it exists in another format.
        """


@runtime_checkable
class Locating(Protocol):
    """A format that a catalog can be asked about as a whole; one without this is asked table by table."""

    def locations(
        self, catalog: CatalogConfig, names: Collection[tuple[str, ...]]
    ) -> Mapping[tuple[str, ...], str] | None:
        """Where the metadata of those tables are, or of more, by their names in the catalog; asked in few requests.

        As `TableFacts.metadata_location` says it when they are loaded, and another one after each commit. Left out is
        what the catalog does not tell. None: this catalog can only be asked table by table. Raises CatalogUnavailable.
        """


@runtime_checkable
class Revalidating(Protocol):
    """A format that can ask a catalog whether one table has changed, without loading it."""

    def is_unchanged(self, catalog: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> bool:
        """Whether the catalog says that the table is as it was when it was loaded with that metadata.

        False when nobody can say so. Raises CatalogUnavailable.
        """
