"""The cost of reading files, and of a process."""

from collections.abc import Iterable, Sequence

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DeleteFile, DeleteIdentity, ScannedFile
from amoro_core.model.plans import TaskPlan


def inputs_of(task: TaskPlan) -> tuple[ScannedFile, ...]:
    """The files that the task reads: those it rewrites, then those it converts."""
    return (*task.rewritten, *task.converted)


def deletes_of(files: Iterable[ScannedFile]) -> dict[DeleteIdentity, DeleteFile]:
    """The distinct deletes of the files, by identity."""
    return {delete.identity: delete for file in files for delete in file.deletes}


def read_cost(files: Sequence[ScannedFile], config: OptimizingConfig) -> int:
    """Bytes of the files and of their deletes, each read once, plus the cost to open them; of a vector its part."""
    deletes = deletes_of(files)
    read = sum(file.data.size_bytes for file in files) + sum(delete.identity.size for delete in deletes.values())
    return read + (len(files) + len(deletes)) * config.open_file_cost


def file_count(tasks: Iterable[TaskPlan]) -> int:
    """The number of data and delete files that the tasks read, each once."""
    inputs = [file for task in tasks for file in inputs_of(task)]
    return len(inputs) + len(deletes_of(inputs))


def weigh(tasks: Sequence[TaskPlan], config: OptimizingConfig) -> tuple[int, int]:
    """The bytes of all files that the tasks read, each once, and Amoro's cost of them.

    In the cost, rewritten files count double, converted ones a tenth.
    """
    rewritten = sum(file.data.size_bytes for task in tasks for file in task.rewritten)
    converted = sum(file.data.size_bytes for task in tasks for file in task.converted)
    deletes = deletes_of(file for task in tasks for file in inputs_of(task))
    deleted = sum(delete.identity.size for delete in deletes.values())
    files = sum(len(task.rewritten) + len(task.converted) for task in tasks) + len(deletes)
    cost = 2 * rewritten + converted // 10 + deleted + files * config.open_file_cost
    return rewritten + converted + deleted, cost
