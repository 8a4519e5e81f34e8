"""Evaluation of files and partitions by size and deletes; health and the digest of a table's files."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt

from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.paths import normalise
from amoro_core.model.plans import (
    BOUNDS,
    LONGEST_NAME,
    MOST_PARTITIONS,
    FileDigest,
    PartitionDigest,
    PartitionKey,
    PartitionVerdict,
    SizeHistogram,
)
from amoro_core.model.tables import FAULTLESS, FileSummary, HealthBasis, HealthParts
from amoro_core.model.text_sanitizing import briefly
from amoro_core.planning.clustering.layouts import group_ids
from amoro_core.scan.columns import Ids, Mask, Numbers
from amoro_core.scan.live_files import LiveFiles


class FileClass(StrEnum):
    """The size class of a data file relative to the table's target size."""

    FRAGMENT = "fragment"
    UNDERSIZED = "undersized"
    TARGET_SIZE = "target-size"


@dataclass(frozen=True, slots=True)
class AssessedFile:
    """A scanned file with everything that planning needs to know about it."""

    scanned: ScannedFile
    file_class: FileClass
    live_bytes: int  # data bytes minus those of rows known to be deleted
    duplicates: bool  # position deletes cover more of its rows than the ratio allows
    convertible: bool  # its deletes can be replaced by one position delete file or vector
    too_short: bool  # a single position in that file would already exceed the ratio
    combinable: bool  # several position deletes would become fewer
    carried_through: int = -1  # up to which sequence number its own position delete holds equality deletes
    is_in_order: bool = False  # it was clustered: of whatever size it is left alone, or rewritten by itself
    is_coarse: bool = False  # of target size, of many small row groups that minor copied: major and full encode it

    @property
    def data(self) -> DataFile:
        return self.scanned.data

    @property
    def deletes(self) -> tuple[DeleteFile, ...]:
        return self.scanned.deletes

    @property
    def is_fragment(self) -> bool:
        """Whether its size makes it a fragment."""
        return self.file_class is FileClass.FRAGMENT


def classify(size_bytes: int, config: OptimizingConfig) -> FileClass:
    """The class of a data file of that size."""
    if size_bytes <= config.fragment_size:
        return FileClass.FRAGMENT
    if size_bytes <= config.min_target_size:
        return FileClass.UNDERSIZED
    return FileClass.TARGET_SIZE


def is_file_scoped(delete: DeleteFile, path: str) -> bool:
    """Whether the position delete names that data file and no other."""
    named = delete.named_file
    return named is not None and (named == path or normalise(named) == normalise(path))


def is_own(delete: DeleteFile, data: DataFile) -> bool:
    """Whether an earlier conversion of that data file, ours or Amoro's, wrote the position delete."""
    if delete.kind is not DeleteKind.POSITION:
        return False
    name = data.path.rpartition("/")[2]
    stem = name.rpartition(".")[0] if "." in name else name
    if delete.path.rpartition("/")[2].startswith(f"{stem}-delete-"):
        return True
    return delete.is_converted and is_file_scoped(delete, data.path)


def counting_position_deletes(scanned: ScannedFile) -> tuple[DeleteFile, ...]:
    """The position deletes of the file without those already folded into its own newest one.

    A delete that other files still need stays after the conversion. It must not count again, or the same conversion
    would be planned for ever.
    """
    positions = [delete for delete in scanned.deletes if delete.kind is DeleteKind.POSITION]
    own = [delete for delete in positions if is_own(delete, scanned.data)]
    if not own:
        return tuple(positions)
    latest = max(delete.sequence_number for delete in own)
    newest = [delete for delete in own if delete.sequence_number == latest][-1]
    return (newest, *(delete for delete in positions if delete.sequence_number > latest))


def _is_convertible(scanned: ScannedFile, positions: tuple[DeleteFile, ...], carried_through: int) -> bool:
    """Whether it has deletes that are shared with other files; one that names it alone is as good as converted.

    An equality delete that stayed for other files when this one was converted does not count again.
    """
    return any(
        delete.sequence_number > carried_through
        if delete.kind is DeleteKind.EQUALITY
        else delete in positions and not is_file_scoped(delete, scanned.data.path) and not is_own(delete, scanned.data)
        for delete in scanned.deletes
    )


def live_bytes(scanned: ScannedFile) -> int:
    """The file's bytes without those of rows known to be deleted.

    Only deletes of this file alone count: a shared one has an unknown number of rows here, and overestimating what is
    left only makes outputs smaller than the target, never larger.
    """
    data = scanned.data
    own = (delete for delete in counting_position_deletes(scanned) if is_file_scoped(delete, data.path))
    return _remaining(data.size_bytes, data.record_count, sum(delete.record_count for delete in own))


def _remaining(size_bytes: int, rows: int, deleted: int) -> int:
    return size_bytes * max(0, rows - deleted) // rows if rows > 0 else size_bytes


_CLASSES = tuple(FileClass)
_FRAGMENT, _UNDERSIZED, _TARGET_SIZE = range(len(_CLASSES))


@dataclass(frozen=True, slots=True)
class AssessedColumns:
    """The columns of `AssessedFile` for some of the live files, whose indexes are `ids`."""

    files: LiveFiles
    ids: Ids
    sizes: Numbers
    file_class: npt.NDArray[np.int8]
    live_bytes: Numbers
    has_deletes: Mask
    duplicates: Mask
    convertible: Mask
    too_short: Mask
    combinable: Mask
    in_order: Mask
    coarse: Mask

    @property
    def all(self) -> Mask:
        return np.ones(len(self), np.bool_)

    @property
    def is_fragment(self) -> Mask:
        return np.equal(self.file_class, _FRAGMENT)

    @property
    def is_undersized(self) -> Mask:
        return np.equal(self.file_class, _UNDERSIZED)

    @property
    def is_target_size(self) -> Mask:
        """Which files have at least the target size."""
        return np.equal(self.file_class, _TARGET_SIZE)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, chosen: Ids | Mask | slice) -> "AssessedColumns":
        """Some of the files, by index in these columns or by mask."""
        return AssessedColumns(
            self.files, **{item.name: getattr(self, item.name)[chosen] for item in fields(self) if item.name != "files"}
        )

    def pick(self, chosen: Mask) -> tuple[AssessedFile, ...]:
        """The files of the mask as rows, sorted by sequence number and path."""
        return tuple(sorted(self.part(chosen).rows(), key=lambda file: (file.data.sequence_number, file.data.path)))

    def rows(self) -> Iterator[AssessedFile]:
        rules = (self.duplicates, self.convertible, self.too_short, self.combinable)
        flags = (self.in_order, self.coarse)
        columns = (self.file_class, self.live_bytes, *rules, self.files.carried_through[self.ids], *flags)
        rows = zip(self.files.rows(self.ids), *(column.tolist() for column in columns), strict=True)
        return (AssessedFile(row, _CLASSES[number], *answers) for row, number, *answers in rows)


def assess_all(
    files: LiveFiles,
    config: OptimizingConfig,
    clustered: Set[str] = frozenset(),
    ids: Ids | None = None,
    *,
    folds: bool = False,
) -> AssessedColumns:
    """Every file, or those at these indexes, with the answers to Amoro's per-file rules.

    Files of the `clustered` groups are in order: they are small for none of the rules. `folds`: position delete files
    are to be folded into deletion vectors, as from format 3 on.
    """
    columns = files.columns
    ids = np.arange(len(columns)) if ids is None else ids
    sizes, records = columns.sizes[ids], columns.records[ids]
    file_class = np.full(len(ids), _TARGET_SIZE, np.int8)
    file_class[sizes <= config.min_target_size] = _UNDERSIZED
    file_class[sizes <= config.fragment_size] = _FRAGMENT
    in_order = np.isin(group_ids(columns.paths_of(ids)), list(clustered)) if clustered else np.zeros(len(ids), np.bool_)
    file_class[in_order] = _TARGET_SIZE
    segment = file_class != _FRAGMENT
    deletes = _delete_facts(files, ids)
    bearable = records * config.major_trigger_duplicate_ratio
    combinable = segment & deletes.several & (not folds)
    to_convert = combinable | (segment & deletes.shared)
    if folds:
        to_convert |= segment & files.has_position_file[ids]
    return AssessedColumns(
        files,
        ids,
        sizes,
        file_class,
        live_bytes=deletes.live_bytes,
        has_deletes=deletes.any,
        duplicates=segment & (deletes.deleted > bearable),
        convertible=to_convert & (bearable >= 1),
        too_short=to_convert & (bearable < 1),
        combinable=combinable,
        in_order=in_order,
        coarse=columns.copied[ids] & (file_class == _TARGET_SIZE) & config.knows_coarse,
    )


@dataclass(frozen=True, slots=True)
class _DeleteFacts:
    """What the deletes of some files amount to."""

    any: Mask
    deleted: Numbers  # rows deleted by the position deletes that count
    several: Mask  # position deletes count
    shared: Mask  # deletes are shared with other files, or newer than the file's own position delete
    live_bytes: Numbers


def _delete_facts(files: LiveFiles, ids: Ids) -> _DeleteFacts:
    """Facts from columns where a file has equality deletes and one position delete that names it alone, else by row."""
    sizes, records, position = files.columns.sizes[ids], files.columns.records[ids], files.position_delete[ids]
    last_equality_delete = files.last_equality_delete[ids]
    has_position, has_equality = position >= 0, last_equality_delete >= 0
    rows_of = np.array([*(delete.record_count for delete in files.deletes), 0], np.int64)
    delete_facts = _DeleteFacts(
        any=has_position | has_equality,
        deleted=rows_of[position],  # −1, without one, is the last of these
        several=np.zeros(len(ids), np.bool_),
        # A single position delete that names the file is as good as a conversion; newer equality deletes are not in it.
        shared=has_equality & (last_equality_delete > files.carried_through[ids]),
        live_bytes=sizes.copy(),
    )
    for at in np.flatnonzero(has_position).tolist():
        # As Python integers: bytes times rows may exceed 64 bits.
        delete_facts.live_bytes[at] = _remaining(int(sizes[at]), int(records[at]), int(delete_facts.deleted[at]))
    by_row = np.flatnonzero(files.by_row[ids])
    for at, row in zip(by_row.tolist(), files.rows(ids[by_row]), strict=True):
        positions = counting_position_deletes(row)
        delete_facts.any[at] = bool(row.deletes)
        delete_facts.deleted[at] = sum(delete.record_count for delete in positions)
        delete_facts.several[at] = len(positions) > 1
        delete_facts.shared[at] = _is_convertible(row, positions, row.carried_through)
        delete_facts.live_bytes[at] = live_bytes(row)
    return delete_facts


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
        return tuple(delete for delete in self.position_deletes if not delete.is_vector) if self.files_to_fold else ()

    @property
    def vectors(self) -> int:
        """How many of the position deletes are vectors."""
        return sum(delete.is_vector for delete in self.position_deletes)


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The live files of one partition, and its dangling deletes."""

    key: PartitionKey
    stats: PartitionStats
    files: AssessedColumns
    dangling: int = 0
    folds: bool = False  # position delete files are to be folded into vectors


def partitions_of(
    scan: TableScan, config: OptimizingConfig, clustered: Set[str] = frozenset()
) -> tuple[PartitionFiles, ...]:
    """All partitions that have data files, in a fixed order; files of the `clustered` groups are in order."""
    live = LiveFiles.of(scan.files)
    order, begins = live.columns.by_place
    bounds = _numbers(begins)
    folds = scan.has_vectors
    files = assess_all(live, config, clustered, order, folds=folds)
    dangling = Counter((delete.spec_id, delete.partition) for delete in scan.dangling)
    partitions = [
        PartitionFiles(PartitionKey(*place), stats, files.part(slice(*run)), dangling[place], folds)
        for place, stats, run in zip(live.columns.places, _stats(files, bounds, folds), pairwise(bounds), strict=True)
    ]
    return tuple(sorted(partitions, key=lambda item: order_of(item.key)))


def parted(partition: PartitionFiles, selects: Callable[[DataFile], bool]) -> tuple[PartitionFiles, PartitionFiles]:
    """The partition split in two: with the selected files only, and with the others only."""
    row = partition.files.files.columns.row
    mask = np.array([selects(row(at)) for at in _numbers(partition.files.ids)], np.bool_)
    return _part(partition, mask), _part(partition, ~mask)


def _part(partition: PartitionFiles, mask: Mask) -> PartitionFiles:
    files = partition.files.part(mask)
    [stats] = _stats(files, (0, len(files)), partition.folds)
    return PartitionFiles(partition.key, stats, files, partition.dangling, partition.folds)


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
    partitions = []
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
            equality_deletes=tuple(delete for delete in deletes.values() if delete.kind is DeleteKind.EQUALITY),
            position_deletes=tuple(delete for delete in deletes.values() if delete.kind is DeleteKind.POSITION),
            fresh_equality_deletes=len(needed_by(live, having_deletes)),
            coarse=coarse,
            coarse_bytes=coarse_bytes,
            files_to_fold=fold,
        )
        partitions.append(stats)
    return partitions


def _numbers(column: npt.NDArray[np.integer]) -> list[int]:
    numbers: list[int] = column.tolist()
    return numbers


_BOUNDS = np.array(BOUNDS, np.int64)


@dataclass(frozen=True, slots=True)
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
    chosen = heapq.nsmallest(MOST_PARTITIONS, scored, key=lambda item: _need(item, by_key))
    return FileDigest(
        snapshot_id=scan.snapshot_id,
        target_bytes=target_bytes,
        data=histogram(live.columns.sizes),
        position_deletes=_delete_histogram(deletes, DeleteKind.POSITION),
        equality_deletes=_delete_histogram(deletes, DeleteKind.EQUALITY),
        partitions=tuple(_partition(partition, by_key.get(partition.partition.key), path_of) for partition in chosen),
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


def _delete_histogram(deletes: Iterable[DeleteFile], kind: DeleteKind) -> SizeHistogram:
    return histogram(np.fromiter((delete.identity.size for delete in deletes if delete.kind is kind), np.int64))


def _need(scored: ScoredPartition, verdicts: Mapping[PartitionKey, PartitionVerdict]) -> tuple[bool, int, int]:
    verdict = verdicts.get(scored.partition.key)
    return verdict is None or verdict.type is None, scored.health, -scored.partition.stats.data_files


def _partition(
    scored: ScoredPartition, verdict: PartitionVerdict | None, path_of: Callable[[PartitionKey], str] | None
) -> PartitionDigest:
    stats = scored.partition.stats
    return PartitionDigest(
        path=briefly(path_of(scored.partition.key), LONGEST_NAME) if path_of else "",
        health=scored.health,
        type=verdict.type.value if verdict is not None and verdict.type is not None else "",
        reason=briefly(verdict.reason, LONGEST_NAME) if verdict is not None else "",
        data_files=stats.data_files,
        data_bytes=stats.data_bytes,
        records=stats.records,
        small_files=stats.fragments + stats.undersized_files,
        position_delete_files=len(stats.position_deletes),
        equality_delete_files=len(stats.equality_deletes),
    )


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


def mean_health(parts: Sequence[tuple[int, int, int]]) -> HealthParts:
    """The mean over the partitions' points, each part rounded up: Amoro's score, but over all files."""
    if not parts:
        return FAULTLESS
    return HealthParts(*(ceil(Fraction(sum(scores), len(parts))) for scores in zip(*parts, strict=True)))


def basis_of(partitions: Sequence[PartitionStats], config: OptimizingConfig) -> HealthBasis:
    """The parameters of `mean_health`: the mean weight of the partitions, and the sizes."""
    total = sum(_weight_parts(stats, config) for stats in partitions)
    return HealthBasis(
        weight=float(Fraction(total, len(partitions) * _whole_weight(config))) if partitions else 0.0,
        fragment_size=config.fragment_size,
        min_target_size=config.min_target_size,
        full_weight_files=config.minor_trigger_file_count,
    )


def scores_of(stats: PartitionStats, config: OptimizingConfig) -> tuple[int, int, int]:
    """The points of one partition: for small files, for equality deletes, for position deletes."""
    weight = Fraction(_weight_parts(stats, config), _whole_weight(config))
    average = min(Fraction(stats.data_bytes, stats.data_files), Fraction(config.min_target_size))
    small = 1 - average / config.min_target_size if config.min_target_size else Fraction(0)
    return (
        _points(FAULTLESS.small_files, weight, small),
        _points(FAULTLESS.equality_deletes, weight, _deleted(stats.equality_deletes, stats.records, _EQUALITY_CAP)),
        _points(FAULTLESS.position_deletes, weight, _deleted(stats.position_deletes, stats.records, _POSITION_CAP)),
    )


def _points(points: int, weight: Fraction, fault: Fraction) -> int:
    return ceil(points * (1 - weight * fault)) if fault else points


def _weight_parts(stats: PartitionStats, config: OptimizingConfig) -> int:
    """The weight of a partition's faults in parts of `_whole_weight`: low for few files or bytes, 0 for one file."""
    if stats.data_files <= 1:
        return 0
    least = config.min_target_size
    return min(stats.data_files, config.minor_trigger_file_count) * (min(stats.data_bytes, least) if least else 1)


def _whole_weight(config: OptimizingConfig) -> int:
    return config.minor_trigger_file_count * (config.min_target_size or 1)


def _deleted(deletes: Sequence[DeleteFile], records: int, cap: Fraction) -> Fraction:
    if not deletes:
        return Fraction(0)
    rows = sum(delete.record_count for delete in deletes)
    share = Fraction(min(rows, records), records) if records else Fraction(min(rows, 1))
    return min(share, cap) / cap
