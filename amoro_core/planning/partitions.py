"""The files of a scan by partition, and the counts that triggers need."""

from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from amoro_core.live.columns import Ids, Mask
from amoro_core.live.files import LiveFiles
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.planning.assessing import AssessedColumns, assess_all


@dataclass(frozen=True, slots=True)
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
    found, first = [], 0
    for at, some in zip(new, ids, strict=True):
        part = files.part(slice(first, first + len(some)))
        first += len(some)
        found.append(_opened(keys[at], part, dangling[live.columns.places[at]], folds))
    for at, key in enumerate(keys):
        if key in known:
            assessed = partial(assess_all, live, config, kept, order[ends[at] : ends[at + 1]], folds=folds)
            found.append(PartitionFiles(key, known[key], assessed, dangling[live.columns.places[at]], folds))
    return tuple(sorted(found, key=lambda one: order_of(one.key)))


def _opened(key: PartitionKey, files: AssessedColumns, dangling: int, folds: bool) -> PartitionFiles:
    return PartitionFiles(key, _stats(files, folds), lambda: files, dangling, folds)


def parted(partition: PartitionFiles, selects: Callable[[DataFile], bool]) -> tuple[PartitionFiles, PartitionFiles]:
    """The partition split in two: with the selected files only, and with the others only."""
    row = partition.files.files.columns.row
    mask = np.array([selects(row(at)) for at in _numbers(partition.files.ids)], np.bool_)
    return _part(partition, mask), _part(partition, ~mask)


def _part(partition: PartitionFiles, mask: Mask) -> PartitionFiles:
    files = partition.files.part(mask)
    return _opened(partition.key, files, partition.dangling, partition.folds)


def order_of(key: PartitionKey) -> tuple[int, tuple[tuple[bool, bytes], ...]]:
    """The sort key of partitions; nulls come first."""
    return key.spec_id, tuple((value is not None, value or b"") for value in key.partition)


def needed_by(files: LiveFiles, ids: Ids) -> frozenset[DeleteIdentity]:
    """The equality deletes that apply to any of the files and are not folded into its own position delete."""
    if not len(ids):
        return frozenset()
    above = files.carried_through[ids]
    return frozenset(delete.identity for delete in files.newer_equality_deletes(ids, above))


def _stats(files: AssessedColumns, folds: bool) -> PartitionStats:
    deletes = {delete.identity: delete for delete in files.files.deletes_of(files.ids[files.has_deletes])}
    return PartitionStats(
        data_files=len(files),
        data_bytes=int(files.sizes.sum()),
        records=int(files.files.columns.records[files.ids].sum()),
        fragments=int(files.is_fragment.sum()),
        undersized_files=int(files.is_undersized.sum()),
        undersized=tuple(_numbers(np.sort(files.sizes[files.is_undersized & ~files.duplicates]))),
        duplicates=int(files.duplicates.sum()),
        too_short=int(files.too_short.sum()),
        combinable=int((files.combinable & ~files.duplicates & files.is_target_size).sum()),
        equality_deletes=tuple(one for one in deletes.values() if one.kind is DeleteKind.EQUALITY),
        position_deletes=tuple(one for one in deletes.values() if one.kind is DeleteKind.POSITION),
        fresh_equality_deletes=len(needed_by(files.files, files.ids[files.has_deletes])),
        coarse=int(files.coarse.sum()),
        coarse_bytes=int(files.sizes[files.coarse].sum()),
        files_to_fold=int(files.files.has_position_file[files.ids].sum()) if folds else 0,
    )


def _numbers(column: npt.NDArray[np.integer]) -> list[int]:
    found: list[int] = column.tolist()
    return found
