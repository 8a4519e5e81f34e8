"""Counts and health over all files of a table, including healthy ones."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from amoro_core.live.files import LiveFiles
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DeleteFile, DeleteKind, TableScan
from amoro_core.model.tables import FAULTLESS, FileSummary, HealthBasis, HealthParts
from amoro_core.planning.partitions import PartitionFiles, PartitionStats

_NO_FAULT = Fraction(0)
_EQUALITY_CAP = Fraction(1, 10)  # share of deleted rows from which on all points are lost
_POSITION_CAP = Fraction(1, 5)


def summarize(scan: TableScan, partitions: Sequence[PartitionFiles], health: HealthParts) -> FileSummary:
    """The counts of the scan, dangling deletes included, with the health score."""
    deletes = {delete.identity: delete for delete in (*LiveFiles.of(scan.files).applied, *scan.dangling)}
    return FileSummary(
        data_files=len(scan.files),
        data_bytes=sum(partition.stats.data_bytes for partition in partitions),
        fragment_files=sum(partition.stats.fragments for partition in partitions),
        undersized_files=sum(partition.stats.undersized_files for partition in partitions),
        equality_delete_files=sum(delete.kind is DeleteKind.EQUALITY for delete in deletes.values()),
        position_delete_files=sum(delete.kind is DeleteKind.POSITION for delete in deletes.values()),
        delete_bytes=sum(delete.identity.size for delete in deletes.values()),
        dangling_delete_files=len(scan.dangling),
        records=sum(partition.stats.records for partition in partitions),
        health_score=health.score,
        coarse_files=sum(partition.stats.coarse for partition in partitions),
        coarse_bytes=sum(partition.stats.coarse_bytes for partition in partitions),
    )


def health_of(partitions: Sequence[PartitionStats], config: OptimizingConfig) -> HealthParts:
    """The mean over partitions, each part rounded up: Amoro's score, but over all files."""
    return mean_health([scores_of(stats, config) for stats in partitions])


def mean_health(parts: Sequence[tuple[int, int, int]]) -> HealthParts:
    """The mean over the partitions' points, each part rounded up; faultless without any."""
    if not parts:
        return FAULTLESS
    return HealthParts(*(ceil(Fraction(sum(scores), len(parts))) for scores in zip(*parts, strict=True)))


def basis_of(partitions: Sequence[PartitionStats], config: OptimizingConfig) -> HealthBasis:
    """The parameters of `health_of`: the mean weight of the partitions, and the sizes."""
    total = sum(_weight_parts(stats, config) for stats in partitions)
    return HealthBasis(
        weight=float(Fraction(total, len(partitions) * _whole_weight(config))) if partitions else 0.0,
        fragment_size=config.fragment_size,
        min_target_size=config.min_target_size,
        full_weight_files=config.minor_trigger_file_count,
    )


def scores_of(stats: PartitionStats, config: OptimizingConfig) -> tuple[int, int, int]:
    """The points of one partition: for small files, for equality deletes, for position deletes."""
    weight = _weight(stats, config)
    average = min(Fraction(stats.data_bytes, stats.data_files), Fraction(config.min_target_size))
    small = 1 - average / config.min_target_size if config.min_target_size else Fraction(0)
    return (
        _left_of(FAULTLESS.small_files, weight, small),
        _left_of(FAULTLESS.equality_deletes, weight, _deleted(stats.equality_deletes, stats.records, _EQUALITY_CAP)),
        _left_of(FAULTLESS.position_deletes, weight, _deleted(stats.position_deletes, stats.records, _POSITION_CAP)),
    )


def _left_of(points: int, weight: Fraction, fault: Fraction) -> int:
    return ceil(points * (1 - weight * fault)) if fault else points


def _weight(stats: PartitionStats, config: OptimizingConfig) -> Fraction:
    """The weight of a partition's faults: low for few files or bytes, 0 for a single file."""
    return Fraction(_weight_parts(stats, config), _whole_weight(config))


def _weight_parts(stats: PartitionStats, config: OptimizingConfig) -> int:
    """The weight of a partition's faults in parts of `_whole_weight`."""
    if stats.data_files <= 1:
        return 0
    least = config.min_target_size
    return min(stats.data_files, config.minor_trigger_file_count) * (min(stats.data_bytes, least) if least else 1)


def _whole_weight(config: OptimizingConfig) -> int:
    return config.minor_trigger_file_count * (config.min_target_size or 1)


def _deleted(deletes: Sequence[DeleteFile], records: int, cap: Fraction) -> Fraction:
    if not deletes:
        return _NO_FAULT
    rows = sum(delete.record_count for delete in deletes)
    share = Fraction(min(rows, records), records) if records else Fraction(min(rows, 1))
    return min(share, cap) / cap
