"""What maintenance beside tags needs of a format, a role each.

Where a format lacks one, its tables are refused for what needs it, and for that only.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Protocol

from amoro_core.formats.opening import OpenTable
from amoro_core.maintaining.places import Ground, Named
from amoro_core.model.commits import SnapshotAdded, SnapshotsGone
from amoro_core.model.maintenance import Released
from amoro_core.model.manifests import ManifestCluster, ManifestsStaged
from amoro_core.model.statistics import ColumnSketch, KnownStatistics, StagedStatistics
from amoro_core.model.stored import Removal, StoredFile
from amoro_core.model.tables import History
from amoro_core.model.times import TimeColumn


class Guard(Protocol):
    """Says, right before files of a table are deleted, which of them it reaches; kept for as long as it is swept."""

    def reachable(self, paths: Iterable[str]) -> Mapping[str, str]:
        """Those of the files that the table, loaded anew, reaches from any snapshot, each with the reason.

        Whatever it raises, nothing may be deleted then: CommitConflict when the name is another table's or the table
        has moved; CatalogUnavailable for a state that is older than one seen before; DataFileMissing or UnreadableFile
        for what would say which files are reached; and what loading the table raises.
        """


class Searchable(OpenTable, Protocol):
    """A table whose places are searched for files that it does not name.

    What it raises, whatever was found until then is good for nothing: CatalogUnavailable, DataFileMissing, WorkFailed,
    UnreadableFile, and TableRefused("location") for a place that may not be read.
    """

    def ground(self) -> Ground:
        """Where its files lie. Raises TableRefused("configuration") for malformed properties of its catalog."""

    def named(self) -> Named:
        """Everything that any snapshot names, removed files too."""

    def pages(self, place: str) -> Iterator[Sequence[StoredFile]]:
        """All files below a place, in pages."""

    def inventory(self, path: str) -> Iterator[Sequence[StoredFile]]:
        """The files of a list that is gone by instead. Raises InvalidArgument for a file that is none."""

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        """Manifests that a writer has not committed yet, and the files that they name."""

    def table_uuids(self, paths: Iterable[str]) -> Mapping[str, str]:
        """Of which table each metadata file is; "" where it does not say, or is not there any more."""


class Sweepable(OpenTable, Protocol):
    """A table whose files can be deleted, whoever wrote them."""

    def guard(self, sequence_number: int = 0) -> Guard:
        """A guard that knows nothing yet. The table had reached that sequence number when the deleting was planned."""

    def stat_many(self, paths: Iterable[str]) -> Mapping[str, StoredFile | None]:
        """Each file as its storage has it now; None for one that is not there, or no file.

        Raises TableRefused("location"), CatalogUnavailable or WorkFailed.
        """

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, Removal]:
        """Delete files below the table's write locations without asking whether it needs them; what became of each.

        What may not be deleted, or can't be now, has failed; the others go on.
        """


class Analyzable(OpenTable, Protocol):
    """A table that names files with statistics of its snapshots."""

    def countable_columns(self) -> Mapping[str, int]:
        """The ids of the top-level columns whose different values can be counted, by name."""

    def is_partitioned(self) -> bool:
        """Whether it has partitions to tell of."""

    def statistics(self) -> KnownStatistics:
        """What the metadata names, as the table was loaded last."""

    def stage_statistics(
        self, snapshot_id: int, sketches: Sequence[ColumnSketch], *, partitions: bool
    ) -> StagedStatistics:
        """Write the files of a snapshot's statistics, with `partitions` those of its partitions, too.

        They replace the snapshot's others, and the entries of snapshots that are gone go with the same commit. Raises
        CommitConflict when the snapshot is gone, ValueError when there is nothing to write.
        """

    def stage_statistics_removal(self, paths: Collection[str]) -> bytes:
        """What makes the table, loaded anew, name these files no more. Raises CommitConflict when one is not named."""


class Dated(OpenTable, Protocol):
    """A table whose files tell how old their rows are."""

    def time_column(self, name: str) -> TimeColumn:
        """The top-level column of that name in the current schema, with the partition fields that are made of it.

        Raises TableRefused("configuration") where there is none, and for one that tells no time.
        """


class Clusterable(OpenTable, Protocol):
    """A table whose manifests may be written anew, with the same files in them."""

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        """Manifests of main's head that are worth writing anew, sorted by partition.

        `min_count` is how many small ones of one content and spec make that due; None: whatever gains. Raises
        TableRefused("configuration") and what reading manifests raises.
        """

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        """Write what is worth it on the head of this moment, and a REPLACE snapshot's list; nothing is visible yet.

        What others add while it is written stays. Raises CommitConflict where nothing is left to do, CheckFailed where
        what was written does not read back as it was.
        """


class Expirable(OpenTable, Protocol):
    """A table whose snapshots can be removed."""

    def history(self, *, anew: bool = False) -> History:
        """The table's snapshots and references; `anew`: as they are now, and `stage_expiry` is for that state."""

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        """The files that nothing would need any more without these snapshots, as the table was loaded.

        In the order in which files are deleted, each once. Raises DataFileMissing, UnreadableFile or
        CatalogUnavailable for whatever would say what is needed.
        """

    def stage_expiry(self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool) -> tuple[bytes, SnapshotsGone]:
        """What removes snapshots and references from the state that `history` gave last; to be sent, with its evidence.

        `clean`: schemas and partition specs that nothing needs any more go as well. Raises CommitConflict when one is
        gone already, or a reference that stays holds a snapshot.
        """

    def bring_back(self, removed: SnapshotsGone) -> tuple[str, ...]:
        """Branches and tags that were made on removed snapshots meanwhile and went with them, under their names again.

        Returns the names, also of those that are back already. Raises as `Committable.send`, TableRefused("format") for
        a format in which expired snapshots can't come back.
        """

    def stage_return(
        self, metadata_location: str, removed: SnapshotsGone
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        """What brings removed snapshots back under tags `restored-ID`, to be sent, with its evidence and the tags.

        `metadata_location` is a state that still knew them. Raises CommitConflict when nothing tells of them any more,
        a tag is taken or a file of theirs is gone, TableRefused("format") for a format in which they can't come back.
        """

    def released(self, metadata_location: str, removed: SnapshotsGone) -> Iterator[Released]:
        """The files that nothing of the table, loaded anew, needs any more after a removal that landed.

        `metadata_location` is a state that still knew the snapshots. Where neither it nor another one can be read
        nothing is released. Raises as `would_release`.
        """


class Upkept(Dated, Clusterable, Sweepable, Expirable, Analyzable, Searchable, Protocol):
    """A table with every role of maintenance."""
