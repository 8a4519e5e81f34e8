"""The port through which actions and services see tables: one implementation for each table format, split by role.

Whoever works on a table names the roles that it needs, and `with_roles` refuses a table whose format lacks one. So a
format offers what it can, and what it lacks is refused for that work only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

from amoro_core.errors import TableRefused
from amoro_core.files.io import FileAccess
from amoro_core.formats.opening import OpenTable, Role
from amoro_core.formats.upkeep import Upkept
from amoro_core.model.commits import CommitContent, Evidence, FileFacts, Head, StagedCommit, Trace
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, ScannedFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.rewrite import TableContext
from amoro_core.model.tables import SnapshotFacts, TableIdentifier

__all__ = [
    "AnyTable",
    "Committable",
    "Maintainable",
    "OpenTable",
    "Readable",
    "Rewritable",
    "Role",
    "TableFormat",
    "lacking",
    "with_roles",
]


class Readable(OpenTable, Protocol):
    """A table whose snapshots and live files are known."""

    def snapshots(self) -> tuple[SnapshotFacts, ...]:
        """Every snapshot that the metadata knows, the newest first."""

    def scan(self) -> TableScan | None:
        """All live files of main's head with their deletes; None for a table without snapshot.

        Raises TableRefused for files that are not handled (location, partition of a delete, format, equality ids);
        those who only look take `scan_of`.
        """

    def scan_of(self, snapshot_id: int) -> TableScan | None:
        """All live files of a snapshot with their deletes, files of every format; None when it is not known."""

    def reading(self, spec_id: int, scans: Sequence[TableScan]) -> TableContext:
        """What must be known to read the files of that spec in those scans under the current schema."""

    def disputed_deletes(self, files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
        """The equality deletes that may delete rows of one of the files though other readers of the format
        are known to pass over them there."""

    def access(self) -> FileAccess:
        """Access to the table's files."""

    def selects(self, condition: str) -> Callable[[DataFile], bool]:
        """Whether a data file may hold rows that fulfil the condition (`self-optimizing.filter`).

        Raises TableRefused("configuration") for a condition that is malformed.
        """

    def chooses(self, condition: str) -> Callable[[PartitionKey], bool]:
        """Whether a partition may hold rows that fulfil the condition, told by its values alone.

        Raises InvalidArgument for a condition that is malformed, or that partitions do not tell.
        """

    def partition_path(self, key: PartitionKey) -> str:
        """The partition as Iceberg writes it in paths, "" when unpartitioned."""


class Rewritable(Readable, Protocol):
    """A table whose files may be replaced by others that hold the same rows."""

    def context(self, spec_id: int) -> TableContext:
        """What executors must know to rewrite files of that spec."""

    def refuse_inputs(self, paths: Iterable[str]) -> None:
        """Raise TableRefused for planned files that are no regular ones ("file") or lie elsewhere ("location")."""

    def head(self, planned_snapshot_id: int, planned_sequence_number: int = 0) -> Head:
        """The table as it is now, seen from that snapshot. Raises TableRefused for what is not handled by now."""

    def stage(self, head: Head, content: CommitContent, summary: Mapping[str, str]) -> StagedCommit:
        """Write the manifests of a snapshot on that head; nothing is visible yet.

        Raises CommitConflict when the head is known to be the table's no more; what is staged all the same conflicts
        when it is sent.
        """

    def file_facts(self, path: str) -> FileFacts:
        """What a written file says of itself. Raises DataFileMissing or UnreadableFile."""

    def named_paths(self, delete: DeleteFile) -> frozenset[str]:
        """The data files that a position delete file names, by path.

        Raises DataFileMissing, UnreadableFile or TableRefused("format").
        """


class Committable(OpenTable, Protocol):
    """A table to which changes are committed, each at most once however often it is sent."""

    def send(self, payload: bytes) -> None:
        """Send a staged change; byte for byte the same may be sent again and applies at most once.

        Raises CommitConflict or CommitRefused when it is known not to be applied; CatalogUnavailable (AccessDenied) or
        StorageFull when this sending is known not to be, and another may be; CommitUnknown otherwise.
        """

    def trace(self, evidence: Evidence) -> Trace:
        """Whether a change that was sent landed, as the table loaded just now says.

        Landed: what it leaves behind is there. Refuted only once it can't be applied any more.
        """

    def delete_unreferenced(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Delete files of ours below the table's location that no snapshot of any ref reaches, as they are now.

        Returns what is not there any more, whoever deleted it; anything doubtful is kept.
        """


class Maintainable(OpenTable, Protocol):
    """A table that takes changes which add no snapshot."""

    def stage_tag(self, name: str, snapshot_id: int, max_age_ms: int | None) -> bytes:
        """What makes a tag of a snapshot of the table, loaded anew; to be sent. `max_age_ms` None: kept for ever.

        Raises CommitConflict when the name is taken or the snapshot is gone.
        """


class AnyTable(Rewritable, Committable, Maintainable, Upkept, Protocol):
    """A table with the roles that were asked for; whoever asked keeps to these."""


def with_roles(table: OpenTable, needed: Iterable[Role], work: str) -> AnyTable:
    """The table, for work that needs those roles.

    Raises TableRefused("format"), with the names of format, work and roles, when its format lacks any.
    """
    if refusal := lacking(table, needed, work):
        raise refusal
    return cast(AnyTable, table)


def lacking(table: OpenTable, needed: Iterable[Role], work: str) -> TableRefused | None:
    """The refusal of a table whose format lacks any of those roles; None where it has them."""
    missing = sorted(frozenset(needed) - table.roles)
    if missing:
        return TableRefused(
            f"{table.facts.identifier} has the format {table.facts.format}, which lacks what {work} needs: "
            f"{', '.join(missing)}",
            reason="format",
            hint="Actions that do without are not concerned.",
        )
    return None


class TableFormat(Protocol):
    """A kind of tables and the catalogs that hold them."""

    @property
    def name(self) -> str:
        """What `table-formats` of a catalog calls it, in lower case; stored with each of its tables."""

    def check(self, catalog: CatalogConfig) -> None:
        """Raise CatalogUnavailable when the catalog does not work as configured."""

    def commits_refused(self, catalog: CatalogConfig) -> str | None:
        """Why nothing can be committed through this kind of catalog; None when it can."""

    def list_tables(self, catalog: CatalogConfig) -> list[TableIdentifier]:
        """The tables of the catalog that its filters admit, in order of their names. Raises CatalogUnavailable."""

    def load(self, catalog: CatalogConfig, identifier: TableIdentifier) -> OpenTable:
        """The table as it is now.

        Raises TableNotFound only when the catalog said that the table does not exist, and TableRefused("format") when
        it is there and of another format.
        """
