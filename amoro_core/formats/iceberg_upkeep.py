"""The roles of maintenance that Iceberg tables have."""

from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from pyiceberg.table import Table

from amoro_core.formats.iceberg_files import IcebergFiles
from amoro_core.iceberg import clustering_manifests, expiry, reachable, restoring
from amoro_core.iceberg.catalogs import open_catalog
from amoro_core.iceberg.features import refuse_table
from amoro_core.iceberg.metadata import history_of, read_locations, refuse_locations
from amoro_core.iceberg.partition_statistics import is_partitioned
from amoro_core.iceberg.statistics import countable_columns, known_statistics, stage_removal, stage_statistics
from amoro_core.iceberg.time_columns import time_column
from amoro_core.model.commits import SnapshotAdded, SnapshotsGone
from amoro_core.model.maintenance import Released
from amoro_core.model.manifests import ManifestCluster, ManifestsStaged
from amoro_core.model.statistics import ColumnSketch, KnownStatistics, StagedStatistics
from amoro_core.model.tables import History
from amoro_core.model.times import TimeColumn


class UpkeptIcebergTable(IcebergFiles):
    """What an Iceberg table answers as `Expirable`, `Dated`, `Clusterable` and `Analyzable`."""

    def history(self, *, anew: bool = False) -> History:
        """The table's snapshots and references; `anew`: as they are now."""
        return history_of(self._renewed() if anew else self._table)

    def would_release(self, snapshot_ids: Set[int]) -> Iterator[Released]:
        """The files that nothing would need any more without these snapshots."""
        return reachable.would_release(self._table, snapshot_ids)

    def stage_expiry(self, snapshot_ids: Set[int], refs: Sequence[str], *, clean: bool) -> tuple[bytes, SnapshotsGone]:
        """What removes snapshots and references. Raises CommitConflict when one is gone, or held by another."""
        return expiry.stage_expiry(self._newest, snapshot_ids, refs, clean=clean, own_metadata=self._writes_metadata())

    def bring_back(self, removed: SnapshotsGone) -> tuple[str, ...]:
        """Branches and tags that went with removed snapshots though made meanwhile, under their names again."""
        return restoring.bring_back(self._renewed, self.send, removed, self._writes_metadata())

    def released(self, metadata_location: str, removed: SnapshotsGone) -> Iterator[Released]:
        """The files that nothing of the table needs any more after a removal that landed."""
        now = self._renewed()
        base = restoring.state_before(now, metadata_location, removed)
        return iter(()) if base is None else reachable.released(base, frozenset(removed.snapshot_ids), now)

    def stage_return(
        self, metadata_location: str, removed: SnapshotsGone
    ) -> tuple[bytes, SnapshotAdded, tuple[str, ...]]:
        """What brings removed snapshots back under tags. Raises CommitConflict, TableRefused("format")."""
        return restoring.stage_return(self._again(), metadata_location, removed, own_metadata=self._writes_metadata())

    def time_column(self, name: str) -> TimeColumn:
        """The top-level column of that name, with the partition fields that are made of it."""
        return time_column(self._table.metadata, name)

    def manifest_clusters(self, min_count: int | None) -> tuple[ManifestCluster, ...]:
        """Manifests of main's head that are worth writing anew."""
        return clustering_manifests.clusters(self._source(self._table), min_count)

    def stage_manifests(self, min_count: int | None, summary: Mapping[str, str]) -> ManifestsStaged:
        """Write them anew, and the list of a REPLACE snapshot with them; nothing is visible yet."""
        return clustering_manifests.stage(
            self._source(self._again()), lambda: self._source(self._again()), min_count, summary
        )

    def _source(self, table: Table) -> clustering_manifests.Source:
        grant = self._grant()
        locations = read_locations(table.metadata, grant)
        return clustering_manifests.Source(table, self._manifests.read, locations, grant.way_out)

    def _again(self) -> Table:
        """The table as it is now, for a commit. Raises TableRefused for what is not handled by now."""
        self._newest = self._load()
        refuse_table(self._newest.metadata, dict(self._config.properties))
        refuse_locations(self._newest.metadata, self._grant())
        return self._newest

    def countable_columns(self) -> Mapping[str, int]:
        """The ids of the top-level columns whose different values can be counted, by name."""
        return countable_columns(self._table.metadata.schema())

    def is_partitioned(self) -> bool:
        """Whether any spec divides rows by a column that is still there."""
        return is_partitioned(self._table.metadata)

    def statistics(self) -> KnownStatistics:
        """What the metadata names, as the table was loaded last."""
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
        """What makes the table name these files no more. Raises CommitConflict when one is not named."""
        self._newest = self._load()
        return stage_removal(self._newest, paths)

    def _writes_metadata(self) -> bool:
        return expiry.writes_metadata(open_catalog(self._config))
