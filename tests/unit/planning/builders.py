"""Scans made of sizes, and what a committed plan makes of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar
from zlib import crc32

from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    Partition,
    ScannedFile,
    TableScan,
)
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import OptimizingPlan, PartitionKey, TaskPlan
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.optimizing.partitions import (
    AssessedFile,
    assess_all,
    counting_position_deletes,
    is_file_scoped,
)
from amoro_core.scan.live_files import LiveFiles
from amoro_core.scan.matching import match

MIB = 1024 * 1024
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNPARTITIONED = PartitionKey(0, ())
PROCESS = "0198c0de-0000-7000-8000-000000000001"
Answer = TypeVar("Answer")


def data(
    name: str,
    size_bytes: int,
    *,
    records: int = 1000,
    sequence_number: int = 1,
    partition: Partition = (),
    spec_id: int = 0,
) -> DataFile:
    path = f"/t/data/{name}.parquet"
    return DataFile(path, FileFormat.PARQUET, spec_id, partition, records, size_bytes, sequence_number)


def many(count: int, size_bytes: int, *, prefix: str = "f", partition: Partition = ()) -> list[DataFile]:
    return [data(f"{prefix}{number:03}", size_bytes, partition=partition) for number in range(count)]


def equality_delete(
    name: str, *, sequence_number: int = 2, partition: Partition = (), spec_id: int = 0, size_bytes: int = 1000
) -> DeleteFile:
    return DeleteFile(
        f"/t/data/{name}.parquet",
        DeleteKind.EQUALITY,
        FileFormat.PARQUET,
        spec_id,
        partition,
        10,
        size_bytes,
        sequence_number,
        equality_ids=(1,),
    )


def position_delete(
    name: str, of: DataFile | None, *, records: int = 10, sequence_number: int = 2, partition: Partition = ()
) -> DeleteFile:
    """A position delete of one data file, or one that may name any file of the partition."""
    return DeleteFile(
        f"/t/data/{name}.parquet",
        DeleteKind.POSITION,
        FileFormat.PARQUET,
        of.spec_id if of else 0,
        of.partition if of else partition,
        records,
        1000,
        sequence_number,
        referenced_data_file=of.path if of else None,
    )


def by_bounds(delete: DeleteFile) -> DeleteFile:
    """A position delete of one file as Spark writes it: equal bounds in place of the reference. Others as they are."""
    if delete.referenced_data_file is None:
        return delete
    bound = {DELETE_PATH_FIELD_ID: delete.referenced_data_file.encode()}
    return replace(delete, referenced_data_file=None, metrics=ColumnMetrics(lower_bounds=bound, upper_bounds=bound))


def in_both_forms(scan: TableScan | None, decide: Callable[[TableScan | None], Answer]) -> Answer:
    """What is decided on the scan, which has to be the same where position deletes name their file by bounds alone."""
    answer = decide(scan)
    if scan is not None:
        assert decide(scan_by_bounds(scan)) == answer
    return answer


def scan_by_bounds(scan: TableScan) -> TableScan:
    """The scan with each position delete that names one file doing so by its bounds alone."""
    files = [ScannedFile(file.data, tuple(map(by_bounds, file.deletes))) for file in scan.files]
    return replace(scan, files=tuple(files), dangling=tuple(map(by_bounds, scan.dangling)))


def own_delete(of: DataFile, *, records: int = 10, sequence_number: int = 2) -> DeleteFile:
    """A position delete as a conversion of the data file names it."""
    name = f"{PROCESS}-1-1-{sequence_number:032x}-deletes"
    return position_delete(name, of, records=records, sequence_number=sequence_number)


def scan_of(
    files: Iterable[DataFile], deletes: Iterable[DeleteFile] = (), *, unpartitioned_specs: Iterable[int] = (0,)
) -> TableScan:
    """The scan of a table with these files; spec 0 has no fields unless said otherwise."""
    files, deletes = list(files), list(deletes)
    latest = max([0, *(file.sequence_number for file in files), *(delete.sequence_number for delete in deletes)])
    matched, dangling = match(files, deletes, frozenset(unpartitioned_specs))
    return TableScan(100 + latest, latest, matched, dangling)


def names(task: TaskPlan) -> tuple[list[str], list[str]]:
    """The names of the rewritten and of the converted files."""
    return (
        [file.data.path.removeprefix("/t/data/").removesuffix(".parquet") for file in task.rewritten],
        [file.data.path.removeprefix("/t/data/").removesuffix(".parquet") for file in task.converted],
    )


def commit(scan: TableScan, plan: OptimizingPlan, *, unpartitioned_specs: Iterable[int] = (0,)) -> TableScan:
    """The table after the plan's commit, if all outputs have the expected size; the commit's number is one more.

    Outputs of minor are copied.
    """
    inputs = [file for task in plan.tasks for file in (*task.rewritten, *task.converted)]
    touched = {file.data.path for file in inputs}
    rewritten = {file.data.path for task in plan.tasks for file in task.rewritten}
    untouched = [file for file in scan.files if file.data.path not in touched]
    needed = {delete.path for file in untouched for delete in file.deletes if not _carries(file, delete)}
    # Beside a converted file no delete goes that may name several, if another file may need it.
    beside = [delete for task in plan.tasks for file in task.converted for delete in file.deletes]
    needed |= {
        delete.path
        for delete in beside
        if delete.kind is DeleteKind.POSITION and delete.named_file is None
        for other in untouched
        if _is_among(other.data, delete) and not _carries(other, delete)
    }
    removed = {delete.path for file in inputs for delete in file.deletes} - needed
    for file in untouched:
        if all(delete.path in removed for delete in file.deletes if _carries(file, delete)):
            removed |= {delete.path for delete in file.deletes if delete.is_converted and delete.record_count == 0}
    live = {delete.path: delete for file in scan.files for delete in file.deletes}
    partitions = {task.key for task in plan.tasks}
    dangling = [d for d in scan.dangling if PartitionKey(d.spec_id, d.partition) not in partitions]
    added = [output for number, task in enumerate(plan.tasks) for output in _outputs(task, number, plan)]
    folded = [_converted(task, number, plan) for number, task in enumerate(plan.tasks)]
    files = [*(file.data for file in scan.files if file.data.path not in rewritten), *added]
    deletes = [*(d for path, d in live.items() if path not in removed), *(d for some in folded for d in some)]
    matched, more = match(files, [*deletes, *dangling], frozenset(unpartitioned_specs))
    return TableScan(scan.snapshot_id + 1, scan.sequence_number + 1, matched, more)


def _carries(file: ScannedFile, delete: DeleteFile) -> bool:
    return delete.named_file is None and delete.sequence_number <= file.carried_through


def _is_among(file: DataFile, delete: DeleteFile) -> bool:
    same_place = (file.spec_id, file.partition) == (delete.spec_id, delete.partition)
    return same_place and file.sequence_number <= delete.sequence_number


def _outputs(task: TaskPlan, number: int, plan: OptimizingPlan) -> Sequence[DataFile]:
    live = [_live(file.data, list(counting_position_deletes(file))) for file in task.rewritten]
    size, records = sum(size for size, _ in live), sum(records for _, records in live)
    copied = SUFFIX if plan.type is OptimizingType.MINOR else ""
    return [
        data(
            f"out-{plan.snapshot_id}-{number}-{index}{copied}",
            size // task.output_count,
            records=records // task.output_count,
            sequence_number=plan.sequence_number,
            partition=task.key.partition,
            spec_id=task.key.spec_id,
        )
        for index in range(task.output_count)
        if records
    ]


def _live(file: DataFile, deletes: Sequence[DeleteFile]) -> tuple[int, int]:
    deleted = sum(delete.record_count for delete in deletes if is_file_scoped(delete, file.path))
    records = max(0, file.record_count - deleted)
    return file.size_bytes * records // file.record_count, records


def _converted(task: TaskPlan, number: int, plan: OptimizingPlan) -> list[DeleteFile]:
    """One position delete for each converted file that loses rows: deletes of several files hit every other one."""
    result = []
    for index, file in enumerate(task.converted):
        records = sum(d.record_count for d in counting_position_deletes(file) if is_file_scoped(d, file.data.path))
        if any(delete.named_file is None for delete in file.deletes) and crc32(file.data.path.encode()) % 2:
            records = max(1, records)
        if records or task.marks:
            name = f"{PROCESS}-{number + 1}-1-{plan.snapshot_id:016x}{index:016x}-deletes"
            result.append(position_delete(name, file.data, records=records, sequence_number=plan.sequence_number))
    return result


def assess(scanned: ScannedFile, config: OptimizingConfig) -> AssessedFile:
    """The answers to the per-file rules about one file."""
    (found,) = assess_all(LiveFiles.of([scanned]), config).rows()
    return found
