"""The files of a scan by partition, and the counts that triggers need."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from amoro_core.live.columns import Ids, Mask
from amoro_core.live.files import LiveFiles
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.planning.assessing import AssessedColumns, assess_all
from amoro_core.records import record


@record
class PartitionStats:
    """Counts over all files of one partition; each delete file counts once."""

    data_files: int
    data_bytes: int
    records: int
    fragments: int
    undersized_files: int
    undersized: tuple[int, ...]  # ascending sizes, without segments that have too many deleted rows
    duplicates: int  # segments with too many deleted rows
    too_short: int  # segments with deletes to convert, of which a single deleted row is too many
    combinable: int  # target-size segments with several position deletes
    equality_deletes: tuple[DeleteFile, ...]
    position_deletes: tuple[DeleteFile, ...]
    fresh_equality_deletes: int  # those not yet folded into the own position delete of some file
    coarse: int = 0  # files of target size whose small row groups were copied
    coarse_bytes: int = 0
    files_to_fold: int = 0  # data files to which position delete files apply, which are to become vectors

    @property
    def small_files(self) -> int:
        """The count for minor: fragments, equality deletes, except those already folded in by conversions, and position
        delete files that are to be folded into vectors."""
        return self.fragments + self.fresh_equality_deletes + len(self.to_fold)

    @property
    def to_fold(self) -> tuple[DeleteFile, ...]:
        """The position delete files that are to be folded into vectors."""
        return tuple(one for one in self.position_deletes if not one.is_vector) if self.files_to_fold else ()

    @property
    def vectors(self) -> int:
        """How many of the position deletes are vectors."""
        return sum(one.is_vector for one in self.position_deletes)


NOTHING_KNOWN: Mapping[PartitionKey, PartitionStats] = MappingProxyType({})


@dataclass(frozen=True)
class PartitionFiles:
    """The live files of one partition, and its dangling deletes."""

    key: PartitionKey
    stats: PartitionStats
    assessed: Callable[[], AssessedColumns]  # called once, if at all
    dangling: int = 0
    folds: bool = False  # position delete files are to be folded into vectors

    @cached_property
    def files(self) -> AssessedColumns:
        """Each file as it was assessed."""
        return self.assessed()

    @property
    def small_sizes(self) -> list[int]:
        """The sizes of fragments, and of undersized files without too many deleted rows."""
        small = self.files.is_fragment | (self.files.is_undersized & ~self.files.duplicates)
        return _numbers(self.files.sizes[small])

    @property
    def paths_in_order(self) -> list[str]:
        """The paths of files that are in order."""
        files = self.files
        if not files.in_order.any():
            return []
        found: list[str] = files.files.columns.paths_of(files.ids[files.in_order]).to_pylist()
        return found


def partitions_of(
    scan: TableScan,
    config: OptimizingConfig,
    kept: Set[str] = frozenset(),
    known: Mapping[PartitionKey, PartitionStats] = NOTHING_KNOWN,
) -> tuple[PartitionFiles, ...]:
    """All partitions that have data files, in a fixed order; files of the `kept` groups are in order.

    `known` are the counts of some partitions by the same terms; the files of these are assessed if needed.
    """
    live = LiveFiles.of(scan.files)
    order, begins = live.columns.by_place
    ends = _numbers(begins)
    keys = [PartitionKey(*place) for place in live.columns.places]
    new = [at for at, key in enumerate(keys) if key not in known]
    ids = [order[ends[at] : ends[at + 1]] for at in new]
    folds = scan.has_vectors
    files = assess_all(live, config, kept, np.concatenate((np.empty(0, np.int64), *ids)), folds=folds)
    dangling = Counter((delete.spec_id, delete.partition) for delete in scan.dangling)
    found, bounds = [], _numbers(np.cumsum([0, *map(len, ids)]))
    for at, stats, run in zip(new, _stats(files, bounds, folds), pairwise(bounds), strict=True):
        assessed = partial(files.part, slice(*run))
        found.append(PartitionFiles(keys[at], stats, assessed, dangling[live.columns.places[at]], folds))
    for at, key in enumerate(keys):
        if key in known:
            assessed = partial(assess_all, live, config, kept, order[ends[at] : ends[at + 1]], folds=folds)
            found.append(PartitionFiles(key, known[key], assessed, dangling[live.columns.places[at]], folds))
    return tuple(sorted(found, key=lambda one: order_of(one.key)))


def parted(partition: PartitionFiles, selects: Callable[[DataFile], bool]) -> tuple[PartitionFiles, PartitionFiles]:
    """The partition split in two: with the selected files only, and with the others only."""
    row = partition.files.files.columns.row
    mask = np.array([selects(row(at)) for at in _numbers(partition.files.ids)], np.bool_)
    return _part(partition, mask), _part(partition, ~mask)


def _part(partition: PartitionFiles, mask: Mask) -> PartitionFiles:
    files = partition.files.part(mask)
    [stats] = _stats(files, (0, len(files)), partition.folds)
    return PartitionFiles(partition.key, stats, lambda: files, partition.dangling, partition.folds)


def order_of(key: PartitionKey) -> tuple[int, tuple[tuple[bool, bytes], ...]]:
    """The sort key of partitions; nulls come first."""
    return key.spec_id, tuple((value is not None, value or b"") for value in key.partition)


def needed_by(files: LiveFiles, ids: Ids) -> frozenset[DeleteIdentity]:
    """The equality deletes that apply to any of the files and are not folded into its own position delete."""
    if not len(ids):
        return frozenset()
    above = files.carried_through[ids]
    return frozenset(delete.identity for delete in files.newer_equality_deletes(ids, above))


def _stats(files: AssessedColumns, bounds: Sequence[int], folds: bool) -> list[PartitionStats]:
    """The counts over each run of the files; a run ends where the next one begins."""

    def sums(column: npt.NDArray[np.integer] | Mask) -> list[int]:
        return _numbers(np.diff(np.concatenate(([0], np.cumsum(column, dtype=np.int64)))[list(bounds)]))

    live, ids = files.files, files.ids
    undersized = files.is_undersized & ~files.duplicates
    to_fold = live.has_position_file[ids] & folds
    counts = zip(
        pairwise(bounds),
        sums(files.sizes),
        sums(live.columns.records[ids]),
        sums(files.is_fragment),
        sums(files.is_undersized),
        sums(files.duplicates),
        sums(files.too_short),
        sums(files.combinable & ~files.duplicates & files.is_target_size),
        sums(files.coarse),
        sums(np.where(files.coarse, files.sizes, 0)),
        sums(to_fold),
        strict=True,
    )
    found = []
    for run, size, records, fragments, small, duplicates, too_short, combinable, coarse, coarse_bytes, fold in counts:
        here = slice(*run)
        having_deletes = ids[here][files.has_deletes[here]]
        deletes = {delete.identity: delete for delete in live.deletes_of(having_deletes)} if len(having_deletes) else {}
        stats = PartitionStats(
            data_files=run[1] - run[0],
            data_bytes=size,
            records=records,
            fragments=fragments,
            undersized_files=small,
            undersized=tuple(_numbers(np.sort(files.sizes[here][undersized[here]]))) if small else (),
            duplicates=duplicates,
            too_short=too_short,
            combinable=combinable,
            equality_deletes=tuple(one for one in deletes.values() if one.kind is DeleteKind.EQUALITY),
            position_deletes=tuple(one for one in deletes.values() if one.kind is DeleteKind.POSITION),
            fresh_equality_deletes=len(needed_by(live, having_deletes)),
            coarse=coarse,
            coarse_bytes=coarse_bytes,
            files_to_fold=fold,
        )
        found.append(stats)
    return found


def _numbers(column: npt.NDArray[np.integer]) -> list[int]:
    found: list[int] = column.tolist()
    return found
