"""What one process may hold, and what it must hold together."""

from collections import Counter
from collections.abc import Mapping, Sequence

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DeleteKind, ScannedFile
from amoro_core.model.plans import TaskPlan
from amoro_core.planning.costs import deletes_of, file_count, inputs_of, read_cost
from amoro_core.planning.files import assess
from amoro_core.planning.tasks import rewriting_alone


def within_file_count(tasks: Sequence[TaskPlan], limit: int, config: OptimizingConfig) -> tuple[TaskPlan, ...]:
    """As many of the tasks as have no more data and delete files than the limit, at least one file of one.

    Those with equality deletes come first, so that these can go with the process.
    """
    if file_count(tasks) <= limit:
        return tuple(tasks)
    kept: list[TaskPlan] = []
    data_files, deletes = 0, set[str]()
    for task in sorted(tasks, key=lambda task: not _has_equality_deletes(task)):
        inputs = inputs_of(task)
        if data_files + len(inputs) + len(deletes | deletes_of(inputs).keys()) > limit:
            shorter = _shortened(task, limit - data_files, deletes, first=not kept)
            if shorter:
                kept.append(_part(task, shorter, config))
            break
        kept.append(task)
        data_files += len(inputs)
        deletes |= deletes_of(inputs).keys()
    return tuple(kept)


def settled(tasks: Sequence[TaskPlan], coverage: Mapping[str, int], config: OptimizingConfig) -> tuple[TaskPlan, ...]:
    """The tasks with conversions that could not take their equality deletes away turned into rewrites.

    An equality delete that also applies to files outside the process stays, and goes on applying to a converted
    file: the same conversion would be planned for ever. A rewritten file is out of its reach.
    """
    if not any(task.converted for task in tasks):
        return tuple(tasks)
    planned = Counter(delete.path for task in tasks for file in inputs_of(task) for delete in file.deletes)
    result: list[TaskPlan] = []
    for task in tasks:
        stuck = tuple(file for file in task.converted if _is_stuck(file, planned, coverage))
        paths = {file.data.path for file in stuck}
        rest = tuple(file for file in inputs_of(task) if file.data.path not in paths)
        if rest:
            result.append(_part(task, rest, config) if stuck else task)
        result += [rewriting_alone(task.key, file, assess(file, config).live_bytes, config) for file in stuck]
    return tuple(result)


def _has_equality_deletes(task: TaskPlan) -> bool:
    return any(delete.kind is DeleteKind.EQUALITY for file in inputs_of(task) for delete in file.deletes)


def _is_stuck(file: ScannedFile, planned: Mapping[str, int], coverage: Mapping[str, int]) -> bool:
    return any(
        planned[delete.path] < coverage.get(delete.path, 0)
        for delete in file.deletes
        if delete.kind is DeleteKind.EQUALITY
    )


def _shortened(task: TaskPlan, limit: int, known: set[str], *, first: bool) -> tuple[ScannedFile, ...]:
    """The inputs of the task that fit, oldest first; none when these alone would gain nothing.

    For the first task never none: two files, or one with deletes, are the least step there is.
    """
    taken: list[ScannedFile] = []
    deletes = set(known)
    for file in inputs_of(task):
        more = deletes | {delete.path for delete in file.deletes}
        if len(taken) + 1 + len(more) <= limit:
            taken.append(file)
            deletes = more
    if len(taken) > 1 or any(file.deletes for file in taken):
        return tuple(taken)
    least = next(((file,) for file in inputs_of(task) if file.deletes), inputs_of(task)[:2])
    return least if first else ()


def _part(task: TaskPlan, files: tuple[ScannedFile, ...], config: OptimizingConfig) -> TaskPlan:
    """The task with these of its inputs only."""
    paths = {file.data.path for file in task.rewritten}
    rewritten = tuple(file for file in files if file.data.path in paths)
    converted = tuple(file for file in files if file.data.path not in paths)
    outputs = 0
    if rewritten:
        live_bytes = sum(assess(file, config).live_bytes for file in rewritten)
        outputs = max(1, min(task.output_count, -(-live_bytes // config.target_size)))
    return TaskPlan(task.key, rewritten, converted, outputs, read_cost(files, config))
