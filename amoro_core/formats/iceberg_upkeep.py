"""The roles of maintenance that Iceberg tables have."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set

from pyiceberg.table import Table

from amoro_core.files.footers import read_layout
from amoro_core.formats.iceberg_files import IcebergFiles
from amoro_core.iceberg import clustering_manifests, expiry, filters, reachable, restoring, sort_orders
from amoro_core.iceberg.catalogs import open_catalog
from amoro_core.iceberg.features import refuse_table
from amoro_core.iceberg.metadata import history_of, read_locations, refuse_locations
from amoro_core.iceberg.partition_statistics import is_partitioned
from amoro_core.iceberg.sorting import sorting_of
from amoro_core.iceberg.statistics import (
    countable_columns,
    distinct_values,
    known_statistics,
    stage_removal,
    stage_statistics,
)
from amoro_core.iceberg.time_columns import time_column
from amoro_core.maintaining.trash import TrashConfig
from amoro_core.model.clustered_files import group_of
from amoro_core.model.clustering import Layout, LayoutKey
from amoro_core.model.commits import SnapshotAdded, SnapshotsGone, SortOrderAdded
from amoro_core.model.config import effective_properties
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.maintenance import Released
from amoro_core.model.manifests import ManifestCluster, ManifestsStaged
from amoro_core.model.paths import normalise
from amoro_core.model.properties import parse_into
from amoro_core.model.sorting import Sorting
from amoro_core.model.statistics import ColumnSketch, KnownStatistics, StagedStatistics
from amoro_core.model.stored import Ended
from amoro_core.model.tables import History
from amoro_core.model.times import TimeColumn


class UpkeptIcebergTable(IcebergFiles):
    """What an Iceberg table answers as `Expirable`, `Dated`, `Clusterable`, `Sortable` and `Analyzable`."""

    def history(self, *, anew: bool = False) -> History:
        """The table's snapshots and references; `anew`: reloaded."""
        return history_of(self._renewed() if anew else self._table)

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        """The files that would no longer be needed without these snapshots."""
        return reachable.would_release(self._table, snapshot_ids)

    def stage_expiry(self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool) -> tuple[bytes, SnapshotsGone]:
        """The payload that removes snapshots and references. Raises CommitConflict when one is gone, or still held."""
        return expiry.stage_expiry(self._newest, snapshot_ids, refs, clean=clean, own_metadata=self._writes_metadata())

    def bring_back(self, removed: SnapshotsGone) -> tuple[str, ...]:
        """Restore branches and tags that were created meanwhile and removed with their snapshots."""
        return restoring.bring_back(self._renewed, self.send, removed, self._writes_metadata())

    def released(self, metadata_location: str, removed: SnapshotsGone) -> Iterator[Released]:
        """The files that the table no longer needs after a removal that landed."""
        now = self._renewed()
        base = restoring.state_before(now, metadata_location, removed)
        return iter(()) if base is None else reachable.released(base, frozenset(removed.snapshot_ids), now)

    def stage_return(
        self, metadata_location: str, removed: SnapshotsGone
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        """The payload that restores removed snapshots under tags. Raises CommitConflict, TableRefused("format")."""
        return restoring.stage_return(self._again(), metadata_location, removed, own_metadata=self._writes_metadata())

    def time_column(self, name: str) -> TimeColumn:
        """The top-level column of that name, with the partition fields derived from it."""
        return time_column(self._table.metadata, name)

    def sorting(self) -> Sorting:
        """Its columns and sort orders, as the table was loaded."""
        return sorting_of(self._table.metadata)

    def filtered_columns(self, condition: str) -> frozenset[str]:
        """The columns that a condition names. Raises TableRefused("configuration") for one that is malformed."""
        return filters.columns_of(self._table.metadata, condition)

    def distinct_values(self) -> Mapping[int, int]:
        """About how many values columns have, by field id, as the newest statistics in the metadata tell."""
        return distinct_values(self._table.metadata)

    def layout_of(self, file: DataFile) -> Layout | None:
        """The layout that a clustered file's footer tells for the group that its name tells."""
        if file.file_format is not FileFormat.PARQUET:
            return None
        told = read_layout(self._access(self._table), file.path)
        return told[1] if told is not None and told[0] == group_of(file.path) else None

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        """Manifests of main's head that are worth rewriting."""
        return clustering_manifests.clusters(self._source(self._table), min_count)

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        """Rewrite them, and write the manifest list of a REPLACE snapshot; nothing is visible yet."""
        return clustering_manifests.stage(
            self._source(self._again()), lambda: self._source(self._again()), min_count, summary
        )

    def _source(self, table: Table) -> clustering_manifests.Source:
        grant = self._grant()
        locations = read_locations(table.metadata, grant)
        return clustering_manifests.Source(table, self._manifests.read, locations, grant.way_out)

    def _again(self) -> Table:
        """The table reloaded for a commit. Raises TableRefused for features that are unsupported by now."""
        self._newest = self._load()
        refuse_table(self._newest.metadata, dict(self._config.properties))
        refuse_locations(self._newest.metadata, self._grant())
        return self._newest

    def order_id_of(self, keys: Sequence[LayoutKey]) -> int:
        """The id of the sort order with exactly these keys, as the table was loaded last; 0: it has none."""
        return sort_orders.order_id_of(self._newest.metadata, keys)

    def stage_sort_order(self, keys: Sequence[LayoutKey]) -> tuple[bytes, SortOrderAdded]:
        """What adds a sort order to the table as it is now, and never makes it the default."""
        return sort_orders.stage_sort_order(self._again(), keys, own_metadata=self._writes_metadata())

    def countable_columns(self) -> Mapping[str, int]:
        """The ids of the top-level columns whose distinct values can be counted, by name."""
        return countable_columns(self._table.metadata.schema())

    def is_partitioned(self) -> bool:
        """Whether any spec partitions by a column that still exists."""
        return is_partitioned(self._table.metadata)

    def statistics(self) -> KnownStatistics:
        """The statistics in the metadata, as the table was last loaded."""
        return known_statistics(self._newest.metadata)

    def stage_statistics(
        self, snapshot_id: int, sketches: Sequence[ColumnSketch], *, partitions: bool
    ) -> StagedStatistics:
        """Write the files of a snapshot's statistics. Raises CommitConflict when it is gone, ValueError for none."""
        self._newest = self._load()
        access = self._access(self._newest)
        return stage_statistics(
            self._newest, access, snapshot_id, sketches, partitions=partitions, read=self._manifests.read
        )

    def stage_statistics_removal(self, paths: Collection[str]) -> bytes:
        """The payload that removes these files from the metadata. Raises CommitConflict when one is not referenced."""
        self._newest = self._load()
        return stage_removal(self._newest, paths)

    def remove_fallen(self, kept: Callable[[], Collection[str]]) -> tuple[str, ...]:
        """Delete the metadata files that fell out of the log with the last commit; those that are gone."""
        fallen, self._fallen = self._fallen, ()
        properties = effective_properties(dict(self._config.properties), self._newest.metadata.properties)
        if parse_into(TrashConfig, properties).enabled:
            return ()
        needed = {normalise(path) for path in kept()} if fallen else set()
        going = [path for path in fallen if normalise(path) not in needed]
        removals = self.delete_many(going) if going else {}
        return tuple(path for path, removal in removals.items() if removal.ended is not Ended.FAILED)

    def _writes_metadata(self) -> bool:
        return expiry.writes_metadata(open_catalog(self._config))
