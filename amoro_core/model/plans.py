"""Plans and saved plans, and the files of a table in figures."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from amoro_core.model.files import Partition, ScannedFile
from amoro_core.model.tables import FileSummary, HealthBasis, HealthParts, OptimizingType, Saving

#: The least size in each bin, in bytes: below 1 kB, then by powers of two to 8 GB and more.
BOUNDS: tuple[int, ...] = (0, *(2**power for power in range(10, 34)))
#: Partitions that are kept, those most in need first.
MOST_PARTITIONS = 200
#: Characters of a partition's path and of its reason.
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class SizeHistogram:
    """Files and bytes by the bins of `BOUNDS`."""

    files: tuple[int, ...] = (0,) * len(BOUNDS)
    sizes: tuple[int, ...] = (0,) * len(BOUNDS)  # bytes


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """One partition in figures; each delete file counts once."""

    path: str
    health: int  # 0 to 100, as the table's health score, of this partition alone
    type: str  # of the optimizing that is due; "": none
    reason: str
    data_files: int
    data_bytes: int
    records: int
    small_files: int  # fragments and undersized files
    position_delete_files: int
    equality_delete_files: int


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The files of one snapshot in figures."""

    snapshot_id: int | None  # None: the table had none
    target_bytes: int  # the target size of files, as configured then
    data: SizeHistogram = SizeHistogram()
    position_deletes: SizeHistogram = SizeHistogram()
    equality_deletes: SizeHistogram = SizeHistogram()
    partitions: tuple[PartitionDigest, ...] = ()  # those most in need first
    partitions_total: int = 0


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """A digest, and when its files were read."""

    digest: FileDigest
    read_at: datetime


class PartitionKey(NamedTuple):
    """A partition of one spec; partitions of different specs are always different."""

    spec_id: int
    partition: Partition


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One group of files of one partition: rewritten or converted together, committed or dropped together."""

    key: PartitionKey
    rewritten: tuple[ScannedFile, ...]
    converted: tuple[ScannedFile, ...]
    output_count: int
    cost: int  # bytes of data and deletes to be read, plus open cost
    marks: bool = False  # converted files get a position delete each even without positions: equality deletes stay


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The verdict on one partition, with the reason; `type` None: nothing to do."""

    key: PartitionKey
    type: OptimizingType | None
    reason: str
    data_files: int
    equality_delete_files: int
    position_delete_files: int
    input_bytes: int
    cost: int
    due_at: datetime | None = None  # when an interval trigger will fire
    expected_files: int = 0
    tasks: int = 0
    deletion_vectors: int = 0  # of the position deletes
    files_to_fold: int = 0  # data files to which position delete files apply, which are to become vectors
    delete_files_to_fold: int = 0  # these position delete files
    bytes_to_fold: int = 0  # of these position delete files
    data_bytes: int = 0  # of all its data files
    coarse_files: int = 0  # of its data files: of target size, of many small row groups that minor copied
    coarse_bytes: int = 0  # of these
    work_s: float = 0.0  # thread seconds that its tasks take at the first rate
    work: tuple[TaskPlan, ...] = field(default=(), compare=False, repr=False)  # of the whole partition, without limits


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdict on a table; `type` None: nothing to do now."""

    snapshot_id: int | None
    type: OptimizingType | None
    reason: str
    partitions: tuple[PartitionVerdict, ...]
    summary: FileSummary
    due_at: datetime | None = None
    health: HealthParts | None = None  # None: unchanged, since files were not evaluated
    basis: HealthBasis | None = field(default=None, compare=False)
    digest: FileDigest | None = field(default=None, compare=False, repr=False)  # None: files were not read

    @property
    def saving(self) -> Saving:
        """What the work that is due would save."""
        return replace(saving_of(self.partitions), work_s=sum(item.work_s for item in self.partitions if item.type))


def saving_of(partitions: Iterable[Any]) -> Saving:
    """What the work in these partitions would save, by which tables are ranked: verdicts, or messages of a plan."""
    due = [partition for partition in partitions if partition.type]
    files = sum(
        plan.data_files - plan.expected_files + plan.equality_delete_files + plan.position_delete_files for plan in due
    )
    return Saving(max(0, files), sum(partition.input_bytes for partition in due))


@dataclass(frozen=True, slots=True)
class OptimizingPlan:
    """Tasks of one process, all planned on one snapshot."""

    evaluation: Evaluation
    snapshot_id: int
    sequence_number: int
    type: OptimizingType
    tasks: tuple[TaskPlan, ...]
    work_s: float = 0.0  # thread seconds that they take at the first rate
    first_cut: int = 0  # of a plan that leaves a part to the next: from this task on, from 1, partitions are cut


#: Bytes of a plan's content, at most.
LARGEST = 262_144


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan of a table, as `content`, which only whoever has made it reads."""

    plan_id: str
    table: str
    saved_at: datetime
    content: bytes
