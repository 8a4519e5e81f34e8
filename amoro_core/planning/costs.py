"""What files cost to read, and what a process weighs."""

from collections.abc import Iterable, Sequence

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DeleteFile, ScannedFile
from amoro_core.model.plans import TaskPlan


def inputs_of(task: TaskPlan) -> tuple[ScannedFile, ...]:
    """The files that the task reads: those it rewrites, then those it converts."""
    return (*task.rewritten, *task.converted)


def deletes_of(files: Iterable[ScannedFile]) -> dict[str, DeleteFile]:
    """The deletes of the files by path, each once."""
    return {delete.path: delete for file in files for delete in file.deletes}


def read_cost(files: Sequence[ScannedFile], config: OptimizingConfig) -> int:
    """Bytes of the files and of their deletes, each read once, plus the cost to open them."""
    deletes = deletes_of(files)
    read = sum(file.data.size_bytes for file in files) + sum(delete.size_bytes for delete in deletes.values())
    return read + (len(files) + len(deletes)) * config.open_file_cost


def file_count(tasks: Iterable[TaskPlan]) -> int:
    """The number of data and delete files that the tasks read, each once."""
    inputs = [file for task in tasks for file in inputs_of(task)]
    return len(inputs) + len(deletes_of(inputs))


def cost_of(tasks: Sequence[TaskPlan], config: OptimizingConfig) -> int:
    """Amoro's cost of a partition: what is rewritten counts double, what is converted a tenth."""
    rewritten = sum(file.data.size_bytes for task in tasks for file in task.rewritten)
    converted = sum(file.data.size_bytes for task in tasks for file in task.converted)
    deletes = deletes_of(file for task in tasks for file in inputs_of(task))
    opened = file_count(tasks) * config.open_file_cost
    return 2 * rewritten + converted // 10 + sum(delete.size_bytes for delete in deletes.values()) + opened


def input_bytes_of(tasks: Sequence[TaskPlan]) -> int:
    """Bytes of all data and delete files that the tasks read, each once."""
    inputs = [file for task in tasks for file in inputs_of(task)]
    deletes = deletes_of(inputs)
    return sum(file.data.size_bytes for file in inputs) + sum(delete.size_bytes for delete in deletes.values())
