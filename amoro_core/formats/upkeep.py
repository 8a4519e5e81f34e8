"""Further roles of a format, for maintenance.

If a format lacks a role, its tables are refused only for work that needs it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Protocol

from amoro_core.files.path_keys import Keys, Place
from amoro_core.formats.opening import OpenTable
from amoro_core.maintaining.places import Ground, Named
from amoro_core.maintaining.trash import Trash
from amoro_core.model.clustering import Layout, LayoutKey
from amoro_core.model.commits import SnapshotAdded, SnapshotsGone, SortOrderAdded
from amoro_core.model.files import DataFile
from amoro_core.model.maintenance import Released
from amoro_core.model.manifests import ManifestCluster, ManifestsStaged
from amoro_core.model.sorting import Sorting
from amoro_core.model.statistics import ColumnSketch, KnownStatistics, StagedStatistics
from amoro_core.model.stored import Reach, Removal, StoredFile
from amoro_core.model.tables import History
from amoro_core.model.times import TimeColumn


class Guard(Protocol):
    """Checks, right before files of a table are deleted, which of them it references; kept for one sweep."""

    def reachable(self, paths: Iterable[str]) -> Mapping[str, str]:
        """Those of the files that the reloaded table references from any snapshot, each with the reason.

        Whatever it raises, nothing may be deleted: CommitConflict when the name belongs to another table or the table
        has moved; CatalogUnavailable for a state older than one seen before; DataFileMissing or UnreadableFile for
        manifests and manifest lists; and what loading the table raises.
        """


class Searchable(OpenTable, Protocol):
    """A table whose locations can be searched for files that it does not reference.

    After any exception all findings so far are void: CatalogUnavailable, DataFileMissing, WorkFailed, UnreadableFile,
    and TableRefused("location") for a location that may not be read.
    """

    def ground(self) -> Ground:
        """The locations of its files. Raises TableRefused("configuration") for malformed properties of its catalog."""

    def named(self) -> Named:
        """Everything that any snapshot references, including removed files."""

    def named_in_ranges(self, cuts: Sequence[str]) -> Sequence[Mapping[Place, Keys]]:
        """The same as keys by scheme and authority, apart for each range of paths: after one cut, not after the next.

        The cuts are sorted paths without scheme and authority; there is one range more than cuts.
        """

    def sampled(self) -> Sequence[str]:
        """Some of the files that it names, from all over it."""

    def pages(self, place: str) -> Iterator[Sequence[StoredFile]]:
        """All files below a place, in pages."""

    def remove_empty_folders(self, place: str, before: datetime) -> int:
        """Remove folders below the place that are empty and were changed before that moment; how many.

        Only on local file systems: elsewhere folders are names, or not worth a race. Hidden ones stay.
        """

    def inventory(self, path: str) -> Iterator[Sequence[StoredFile]]:
        """The files of an inventory, used instead of listing. Raises InvalidArgument for an invalid one."""

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        """Manifests that a writer has not committed yet, and the files that they name."""

    def table_uuids(self, paths: Iterable[str]) -> Mapping[str, str]:
        """The table UUID in each metadata file; "" if it has none, or no longer exists."""


class TrashAccess(Protocol):
    """Access to files of a table and of its trash. The methods are those of `files.io.FileAccess`."""

    def stat_many(self, paths: Iterable[str]) -> Mapping[str, StoredFile | None]:
        """The present state of each file; None for one that does not exist."""

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, Removal]:
        """Delete files, and return the outcome of each."""

    def move_many(self, moves: Mapping[str, str]) -> Mapping[str, Removal]:
        """Rename files, each to its target, never over a file, and return the outcome of each source."""

    def remove_empty_folders(self, place: str, before: datetime) -> int:
        """Remove empty folders below the place that were changed before that moment; how many."""


class Sweepable(OpenTable, Protocol):
    """A table whose files can be deleted, whoever wrote them."""

    def reach(self) -> Reach:
        """Where its files lie, for those who delete them elsewhere."""

    def guard(self, sequence_number: int = 0) -> Guard:
        """A new guard. The table had reached that sequence number when the deletion was planned."""

    def stat_many(self, paths: Iterable[str]) -> Mapping[str, StoredFile | None]:
        """The present state of each file in its storage; None for one that does not exist or is not a file.

        Raises TableRefused("location"), CatalogUnavailable or WorkFailed.
        """

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, Removal]:
        """Delete files below the table's write locations without checking references, and return the outcome of each.

        A file that may not or can't be deleted now counts as failed; the others are still deleted.
        """

    def trash(self) -> Trash | None:
        """Where its files are moved instead of being deleted, as the table was loaded last; None: they are deleted.

        Raises TableRefused("configuration") for malformed properties and where a move would be a copy, ("location")
        for a trash that no administrator has allowed.
        """

    def trash_access(self, folder: str) -> TrashAccess:
        """Access to the table's files, and to those in the trash that a folder belongs to."""


class Analyzable(OpenTable, Protocol):
    """A table whose metadata references files with statistics of its snapshots."""

    def countable_columns(self) -> Mapping[str, int]:
        """The ids of the top-level columns whose distinct values can be counted, by name."""

    def is_partitioned(self) -> bool:
        """Whether it is partitioned."""

    def statistics(self) -> KnownStatistics:
        """The statistics in the metadata, as the table was last loaded."""

    def stage_statistics(
        self, snapshot_id: int, sketches: Sequence[ColumnSketch], *, partitions: bool
    ) -> StagedStatistics:
        """Write the files of a snapshot's statistics; with `partitions`, also of its partitions.

        They replace the snapshot's earlier ones, and the same commit removes entries of snapshots that are gone. Raises
        CommitConflict when the snapshot is gone, ValueError when there is nothing to write.
        """

    def stage_statistics_removal(self, paths: Collection[str]) -> bytes:
        """The payload that removes these files from the reloaded metadata. Raises CommitConflict for an unknown one."""


class Dated(OpenTable, Protocol):
    """A table with a column that tells the age of rows."""

    def time_column(self, name: str) -> TimeColumn:
        """The top-level column of that name in the current schema, with the partition fields derived from it.

        Raises TableRefused("configuration") if there is none, and for one that is not a time.
        """


class Clusterable(OpenTable, Protocol):
    """A table whose manifests can be rewritten, with the same files in them."""

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        """Manifests of main's head that are worth rewriting, sorted by partition.

        `min_count` is the number of small ones of one content and spec that makes it due; None: any gain suffices.
        Raises TableRefused("configuration") and what reading manifests raises.
        """

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        """Rewrite what is worth it on the present head, and write a REPLACE snapshot's list; nothing is visible yet.

        What others add meanwhile is kept. Raises CommitConflict when nothing is left to do, CheckFailed when the new
        manifests don't read back equal.
        """


class Sortable(OpenTable, Protocol):
    """A table whose rows may be written in an order of ours, which its metadata and files tell."""

    def sorting(self) -> Sorting:
        """Its columns and sort orders, as the table was loaded, and how bounds and partitions compare."""

    def filtered_columns(self, condition: str) -> frozenset[str]:
        """The columns that a condition names. Raises TableRefused("configuration") for one that is malformed."""

    def distinct_values(self) -> Mapping[int, int]:
        """About how many values columns have, by field id, as the newest statistics in the metadata tell."""

    def layout_of(self, file: DataFile) -> Layout | None:
        """The layout that a clustered file's footer tells for the group that its name tells.

        None where the footer tells none, or that of another group. Raises DataFileMissing, UnreadableFile,
        TableRefused("location") or CatalogUnavailable.
        """

    def order_id_of(self, keys: Sequence[LayoutKey]) -> int:
        """The id of the sort order with exactly these keys, as the table was loaded last; 0: it has none."""

    def stage_sort_order(self, keys: Sequence[LayoutKey]) -> tuple[bytes, SortOrderAdded]:
        """What adds a sort order to the table, loaded anew, and never makes it the default; to be sent.

        Raises CommitConflict where the table is another one by now.
        """


class Expirable(OpenTable, Protocol):
    """A table whose snapshots can be removed."""

    def history(self, *, anew: bool = False) -> History:
        """The table's snapshots and references; `anew`: reloaded, and `stage_expiry` applies to that state."""

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        """The files that would no longer be needed without these snapshots, in the table as loaded.

        In the order of deletion, each once. Raises DataFileMissing, UnreadableFile or CatalogUnavailable for manifests
        and manifest lists.
        """

    def stage_expiry(self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool) -> tuple[bytes, SnapshotsGone]:
        """The payload that removes snapshots and references from the state `history` returned last, with its evidence.

        `clean`: also removes schemas and partition specs that nothing needs any more. Raises CommitConflict when one is
        gone already, or a reference that stays holds a snapshot.
        """

    def bring_back(self, removed: SnapshotsGone) -> tuple[str, ...]:
        """Restore branches and tags that were created on removed snapshots meanwhile and removed with them.

        Returns the names, including those restored already. Raises like `Committable.send`, TableRefused("format") for
        a format in which expired snapshots can't be restored.
        """

    def stage_return(
        self, metadata_location: str, removed: SnapshotsGone
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        """The payload that restores removed snapshots under tags `restored-ID`, with its evidence and the tags.

        `metadata_location` is a state that still had them. Raises CommitConflict when no state has them any more, a tag
        exists already or one of their files is gone, TableRefused("format") for a format in which they can't be
        restored.
        """

    def remove_fallen(self, kept: Callable[[], Collection[str]]) -> tuple[str, ...]:
        """Delete the metadata files that fell out of the table's log with the commit that was sent last.

        Only where the table's properties say so, and where whoever commits writes these files; none of `kept`, which
        is asked when there are any. Returns those that are gone. Raises TableRefused("location"), CatalogUnavailable.
        """

    def released(self, metadata_location: str, removed: SnapshotsGone) -> Iterator[Released]:
        """The files that the reloaded table no longer needs after a removal that landed.

        `metadata_location` is a state that still had the snapshots. If neither it nor another one can be read, nothing
        is released. Raises like `would_release`.
        """


class Upkept(Dated, Clusterable, Sortable, Sweepable, Expirable, Analyzable, Searchable, Protocol):
    """A table with every role of maintenance."""
