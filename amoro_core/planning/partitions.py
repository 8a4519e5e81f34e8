"""The files of a scan by partition, and the counts that triggers ask for."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, DeleteKind, Partition, ScannedFile, TableScan
from amoro_core.model.plans import PartitionKey
from amoro_core.planning.files import AssessedFile, FileClass, assess


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """Counts over all files of one partition; each delete file counts once."""

    data_files: int
    data_bytes: int
    records: int
    fragments: int
    undersized: tuple[int, ...]  # sizes without segments that have too many deleted rows, ascending
    duplicates: int  # segments with too many deleted rows
    too_short: int  # segments with deletes to convert, of which a single deleted row is too many
    combinable: int  # target-size segments with several position deletes
    equality_deletes: tuple[DeleteFile, ...]
    position_deletes: tuple[DeleteFile, ...]
    fresh_equality_deletes: int  # those that some file's own position delete does not hold yet

    @property
    def small_files(self) -> int:
        """What minor counts: fragments and equality deletes, but for those that only stayed behind conversions."""
        return self.fragments + self.fresh_equality_deletes


@dataclass(frozen=True, slots=True)
class PartitionFiles:
    """The live files of one partition, by sequence number and path, and the deletes that dangle in it."""

    key: PartitionKey
    files: tuple[AssessedFile, ...]
    stats: PartitionStats
    dangling: int = 0


def partitions_of(scan: TableScan, config: OptimizingConfig) -> tuple[PartitionFiles, ...]:
    """All partitions that have data files, in a fixed order."""
    # Plain tuples are hashed many times faster than keys, and there may be millions of files.
    places: dict[tuple[int, Partition], list[AssessedFile]] = {}
    for scanned in scan.files:
        place = scanned.data.spec_id, scanned.data.partition
        if place not in places:
            places[place] = []
        places[place].append(assess(scanned, config))
    grouped = {PartitionKey(*place): files for place, files in places.items()}
    dangling = Counter(PartitionKey(delete.spec_id, delete.partition) for delete in scan.dangling)
    return tuple(_partition(key, grouped[key], dangling[key]) for key in sorted(grouped, key=order_of))


def selected(partition: PartitionFiles, selects: Callable[[DataFile], bool]) -> PartitionFiles:
    """The partition as if it had the selected files only."""
    files = tuple(file for file in partition.files if selects(file.data))
    return partition if len(files) == len(partition.files) else replace(partition, files=files, stats=_stats(files))


def order_of(key: PartitionKey) -> tuple[int, tuple[tuple[bool, bytes], ...]]:
    """What partitions are sorted by; nulls come first."""
    return key.spec_id, tuple((value is not None, value or b"") for value in key.partition)


def needed_by(files: Iterable[ScannedFile]) -> frozenset[DeleteIdentity]:
    """The equality deletes that apply to one of the files and are not carried by its own position delete."""
    return frozenset(identity for file in files if file.deletes for identity in _needed(file))


def _needed(file: ScannedFile) -> Iterator[DeleteIdentity]:
    carried_through = file.carried_through
    for delete in file.deletes:
        if delete.kind is DeleteKind.EQUALITY and delete.sequence_number > carried_through:
            yield delete.identity


def _partition(key: PartitionKey, files: list[AssessedFile], dangling: int) -> PartitionFiles:
    ordered = tuple(sorted(files, key=lambda file: (file.data.sequence_number, file.data.path)))
    return PartitionFiles(key, ordered, _stats(ordered), dangling)


def _stats(files: tuple[AssessedFile, ...]) -> PartitionStats:
    deletes: dict[DeleteIdentity, DeleteFile] = {}
    fresh: set[DeleteIdentity] = set()
    for file in files:
        if not file.deletes:
            continue
        for delete in file.deletes:
            deletes[delete.identity] = delete
            if delete.kind is DeleteKind.EQUALITY and delete.sequence_number > file.carried_through:
                fresh.add(delete.identity)
    return PartitionStats(
        data_files=len(files),
        data_bytes=sum(file.data.size_bytes for file in files),
        records=sum(file.data.record_count for file in files),
        fragments=sum(file.is_fragment for file in files),
        undersized=tuple(sorted(f.data.size_bytes for f in files if f.is_undersized and not f.duplicates)),
        duplicates=sum(file.duplicates for file in files),
        too_short=sum(file.too_short for file in files),
        combinable=sum(
            file.combinable and not file.duplicates and file.file_class is FileClass.TARGET_SIZE for file in files
        ),
        equality_deletes=tuple(d for d in deletes.values() if d.kind is DeleteKind.EQUALITY),
        position_deletes=tuple(d for d in deletes.values() if d.kind is DeleteKind.POSITION),
        fresh_equality_deletes=len(fresh),
    )
