"""The thread time that optimizing takes, predicted from files and learned for each table; and the value of work.

The first rates are seconds of one thread, measured by `python -m tests.bench.rewriting --table mixed --files 60`
(76 MB, local disk): 1.69 s encoded, 0.15 s copied. What differs on a table (columns, storage, machines) is
one factor, which each process of the table corrects.
"""

from collections.abc import Iterable

from amoro_core.model.files import FileFormat, ScannedFile
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import TaskPlan
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.optimizing.tasks import deletes_of, inputs_of

PER_TASK_S = 0.05
PER_FILE_S = 0.001
PER_ENCODED_MB_S = 0.021
PER_COPIED_MB_S = 0.0012
PER_DELETED_ROW_S = 1e-6
_MB = 1e6

#: A table's rate moves by this power of measured ÷ predicted: single slow processes hardly count, ten of them do.
SMOOTHING = 0.3
LEAST_RATE, MOST_RATE = 0.25, 4.0
#: Of a table whose readers report nothing.
SCANS_PER_DAY = 10.0


def work_s(tasks: Iterable[TaskPlan], kind: OptimizingType, config: OptimizingConfig) -> float:
    """The thread seconds that the tasks take at the first rate."""
    return sum(_task_s(task, kind, config) for task in tasks)


def _task_s(task: TaskPlan, kind: OptimizingType, config: OptimizingConfig) -> float:
    inputs = inputs_of(task)
    deletes = deletes_of(inputs).values()
    copied = sum(file.data.size_bytes for file in task.rewritten if _is_copied(file, kind, config))
    encoded = sum(file.data.size_bytes for file in inputs) + sum(delete.identity.size for delete in deletes) - copied
    rate_s = (copied * PER_COPIED_MB_S + encoded * PER_ENCODED_MB_S) / _MB
    deleted_s = sum(delete.record_count for delete in deletes) * PER_DELETED_ROW_S
    return PER_TASK_S + (len(inputs) + len(deletes)) * PER_FILE_S + rate_s + deleted_s


def _is_copied(file: ScannedFile, kind: OptimizingType, config: OptimizingConfig) -> bool:
    """Whether the row groups of a file will probably be copied as they are."""
    if file.deletes or file.data.file_format is not FileFormat.PARQUET or config.row_group_merge is False:
        return False
    if kind is OptimizingType.MINOR:
        return True
    return file.data.size_bytes >= config.row_group_merge_min_size * max(1, len(file.data.split_offsets))


def gain(task: TaskPlan, kind: OptimizingType, config: OptimizingConfig) -> float:
    """Files fewer, data and delete files, for each thread second of the task."""
    inputs = inputs_of(task)
    fewer = len(task.rewritten) - task.output_count + len(deletes_of(inputs)) - len(task.converted)
    return max(0, fewer) / _task_s(task, kind, config)


def value_of(saved_files: int, scans_per_day: float, predicted_s: float) -> float:
    """What a thread second of the work is worth: by how many files fewer queries open in a day."""
    return saved_files * scans_per_day / predicted_s if predicted_s > 0 else 0.0


def learned(rate: float, predicted_s: float, measured_s: float) -> float:
    """The table's rate after a process that was predicted with `rate`."""
    if predicted_s <= 0 or measured_s <= 0:
        return rate
    moved: float = rate * (measured_s / predicted_s) ** SMOOTHING
    return min(max(moved, LEAST_RATE), MOST_RATE)
