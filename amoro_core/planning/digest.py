"""The digest of a table's files, made of what an evaluation has read anyway."""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from amoro_core.live.columns import Numbers
from amoro_core.live.files import LiveFiles
from amoro_core.model.digests import BOUNDS, LONGEST_NAME, MOST_PARTITIONS, FileDigest, PartitionDigest, SizeHistogram
from amoro_core.model.files import DeleteKind, TableScan
from amoro_core.model.plans import PartitionKey, PartitionVerdict
from amoro_core.model.texts import briefly
from amoro_core.planning.partitions import PartitionFiles
from amoro_core.records import record

_BOUNDS = np.array(BOUNDS, np.int64)


@record
class ScoredPartition:
    """A partition, and its health, 0 to 100."""

    partition: PartitionFiles
    health: int


def digest_of(
    scan: TableScan,
    scored: Sequence[ScoredPartition],
    verdicts: Iterable[PartitionVerdict],
    target_bytes: int,
    path_of: Callable[[PartitionKey], str] | None,
) -> FileDigest:
    """The digest of the scan; partitions with optimizing due come first, then those with the least health."""
    by_key = {verdict.key: verdict for verdict in verdicts}
    live = LiveFiles.of(scan.files)
    deletes = {delete.identity: delete for delete in (*live.applied, *scan.dangling)}.values()
    chosen = heapq.nsmallest(MOST_PARTITIONS, scored, key=lambda one: _need(one, by_key))
    return FileDigest(
        snapshot_id=scan.snapshot_id,
        target_bytes=target_bytes,
        data=histogram(live.columns.sizes),
        position_deletes=histogram(_sizes(one.identity.size for one in deletes if one.kind is DeleteKind.POSITION)),
        equality_deletes=histogram(_sizes(one.identity.size for one in deletes if one.kind is DeleteKind.EQUALITY)),
        partitions=tuple(_partition(one, by_key.get(one.partition.key), path_of) for one in chosen),
        partitions_total=len(scored),
    )


def histogram(sizes: Numbers) -> SizeHistogram:
    """How many files, and how many bytes, fall into each bin."""
    # By comparing whole numbers: a logarithm would put sizes just below a power of two one bin too high.
    places = np.searchsorted(_BOUNDS, sizes, side="right") - 1
    files: list[int] = np.bincount(places, minlength=len(BOUNDS)).tolist()
    added = np.zeros(len(BOUNDS), np.int64)
    np.add.at(added, places, sizes)
    summed: list[int] = added.tolist()
    return SizeHistogram(tuple(files), tuple(summed))


def _sizes(sizes: Iterable[int]) -> Numbers:
    return np.fromiter(sizes, np.int64)


def _need(one: ScoredPartition, verdicts: Mapping[PartitionKey, PartitionVerdict]) -> tuple[bool, int, int]:
    verdict = verdicts.get(one.partition.key)
    return verdict is None or verdict.type is None, one.health, -one.partition.stats.data_files


def _partition(
    one: ScoredPartition, verdict: PartitionVerdict | None, path_of: Callable[[PartitionKey], str] | None
) -> PartitionDigest:
    stats = one.partition.stats
    return PartitionDigest(
        path=briefly(path_of(one.partition.key), LONGEST_NAME) if path_of else "",
        health=one.health,
        type=verdict.type.value if verdict is not None and verdict.type is not None else "",
        reason=briefly(verdict.reason, LONGEST_NAME) if verdict is not None else "",
        data_files=stats.data_files,
        data_bytes=stats.data_bytes,
        records=stats.records,
        small_files=stats.fragments + stats.undersized_files,
        position_delete_files=len(stats.position_deletes),
        equality_delete_files=len(stats.equality_deletes),
    )
