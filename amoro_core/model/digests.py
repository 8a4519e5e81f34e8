"""The files of a table in figures: how large they are, and which partitions need work most."""

from datetime import datetime

from amoro_core.records import record

#: The least size in each bin, in bytes: below 1 kB, then by powers of two to 8 GB and more.
BOUNDS: tuple[int, ...] = (0, *(2**power for power in range(10, 34)))
#: Partitions that are kept, those most in need first.
MOST_PARTITIONS = 200
#: Characters of a partition's path and of its reason.
LONGEST_NAME = 200


@record
class SizeHistogram:
    """Files and bytes by the bins of `BOUNDS`."""

    files: tuple[int, ...] = (0,) * len(BOUNDS)
    sizes: tuple[int, ...] = (0,) * len(BOUNDS)  # bytes


@record
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


@record
class FileDigest:
    """The files of one snapshot in figures."""

    snapshot_id: int | None  # None: the table had none
    target_bytes: int  # the target size of files, as configured then
    data: SizeHistogram = SizeHistogram()
    position_deletes: SizeHistogram = SizeHistogram()
    equality_deletes: SizeHistogram = SizeHistogram()
    partitions: tuple[PartitionDigest, ...] = ()  # those most in need first
    partitions_total: int = 0


@record
class KeptDigest:
    """A digest, and when its files were read."""

    digest: FileDigest
    read_at: datetime
