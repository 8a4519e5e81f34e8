"""Plans of a process: limits, partitions, tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from amoro_core.model.files import DeleteIdentity, DeleteKind, ScannedFile, TableScan
from amoro_core.model.group_config import DEFAULT_MAX_INPUT_BYTES
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionVerdict, TaskPlan, saving_of
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.optimizing import forecast, messages
from amoro_core.planning.optimizing.partitions import live_bytes, needed_by, order_of
from amoro_core.planning.optimizing.tasks import deletes_of, file_count, inputs_of, read_cost, rewriting_alone, weigh
from amoro_core.scan.columns import Ids, Place
from amoro_core.scan.live_files import LiveFiles

_ABOVE_ALL = 2**63 - 1


def within_file_count(tasks: Sequence[TaskPlan], limit: int, config: OptimizingConfig) -> tuple[TaskPlan, ...]:
    """As many of the tasks as fit into the limit of data and delete files, but at least one file of one.

    Tasks with equality deletes come first, so that the process can remove these deletes.
    """
    if file_count(tasks) <= limit:
        return tuple(tasks)
    plans: list[TaskPlan] = []
    data_files, deletes = 0, set[DeleteIdentity]()
    for task in sorted(tasks, key=_is_later):
        inputs = inputs_of(task)
        if data_files + len(inputs) + len(deletes | deletes_of(inputs).keys()) > limit:
            shorter = _shortened(task, limit - data_files, deletes, first=not plans)
            if shorter:
                plans.append(_part(task, shorter, config))
            break
        plans.append(task)
        data_files += len(inputs)
        deletes |= deletes_of(inputs).keys()
    return tuple(plans)


def _is_later(task: TaskPlan) -> bool:
    return all(delete.kind is not DeleteKind.EQUALITY for delete in deletes_of(inputs_of(task)).values())


def within_bytes(
    tasks: Sequence[TaskPlan], kind: OptimizingType, room: int, config: OptimizingConfig, *, first: bool
) -> tuple[TaskPlan, ...]:
    """Those of the tasks whose inputs fit into the bytes that are left, the most worthwhile first.

    Tasks with equality deletes come before the others. The `first` task of a plan is taken whatever its size: a table
    would make no progress otherwise.
    """
    plans: list[TaskPlan] = []
    for task in sorted(tasks, key=lambda item: (_is_later(item), -forecast.gain(item, kind, config))):
        input_bytes, _ = weigh((task,), config)
        if input_bytes <= room or (first and not plans):
            plans.append(task)
            room -= input_bytes
    return tuple(plans)


def settled(
    tasks: Sequence[TaskPlan], staying: frozenset[DeleteIdentity], config: OptimizingConfig
) -> tuple[TaskPlan, ...]:
    """The tasks with conversions under one of the staying equality deletes turned into rewrites.

    An equality delete needed by files outside the filter applies to a converted file for ever, so its conversion would
    save readers nothing. It does not apply to a rewritten file.
    """
    if not staying or not any(task.converted for task in tasks):
        return tuple(tasks)
    result: list[TaskPlan] = []
    for task in tasks:
        stuck = tuple(file for file in task.converted if _has_any(file, staying))
        paths = {file.data.path for file in stuck}
        rest = tuple(file for file in inputs_of(task) if file.data.path not in paths)
        if rest:
            result.append(_part(task, rest, config) if stuck else task)
        result += [rewriting_alone(task.key, file, live_bytes(file), config) for file in stuck]
    return tuple(result)


def marked(tasks: Sequence[TaskPlan], files: Sequence[ScannedFile]) -> tuple[TaskPlan, ...]:
    """The tasks; those whose deletes other live files still need are set to mark the files they convert.

    Without a mark, a file from which such a delete removes no row would be converted again by every later process.
    """
    if not any(task.converted for task in tasks):
        return tuple(tasks)
    live = LiveFiles.of(files)
    is_other = np.ones(len(live), np.bool_)
    is_other[live.ids_of(file.data.path for task in tasks for file in inputs_of(task))] = False
    others = np.flatnonzero(is_other)
    staying, least = needed_by(live, others), _least_needed(live, others)
    return tuple(
        replace(task, marks=True)
        if any(_has_any(file, staying) or _shares_from(file, least) for file in task.converted)
        else task
        for task in tasks
    )


def _least_needed(files: LiveFiles, ids: Ids) -> Mapping[Place, int]:
    """By place, the lowest number of a position delete of several files that any of the files may need.

    Those with a deletion vector need none.
    """
    columns, ids = files.columns, ids[~files.has_vector[ids]]
    needed = np.maximum(columns.numbers[ids], files.carried_through[ids] + 1)
    least = np.full(len(columns.places), _ABOVE_ALL, np.int64)
    np.minimum.at(least, columns.place[ids], needed)
    return {columns.places[place]: int(least[place]) for place in np.flatnonzero(least < _ABOVE_ALL).tolist()}


def _shares_from(file: ScannedFile, least: Mapping[Place, int]) -> bool:
    number = least.get((file.data.spec_id, file.data.partition))
    return number is not None and any(
        delete.kind is DeleteKind.POSITION and delete.named_file is None and delete.sequence_number >= number
        for delete in file.deletes
    )


def _has_any(file: ScannedFile, deletes: frozenset[DeleteIdentity]) -> bool:
    return any(delete.identity in deletes for delete in file.deletes)


def _shortened(task: TaskPlan, limit: int, shared: set[DeleteIdentity], *, first: bool) -> tuple[ScannedFile, ...]:
    """The inputs of the task that fit, oldest first; none when these alone would gain nothing.

    For the first task never none: two files, or one with deletes, are the smallest possible step.
    """
    files: list[ScannedFile] = []
    deletes = set(shared)
    for file in inputs_of(task):
        more = deletes | {delete.identity for delete in file.deletes}
        if len(files) + 1 + len(more) <= limit:
            files.append(file)
            deletes = more
    if len(files) > 1 or any(file.deletes for file in files):
        return tuple(files)
    least = next(((file,) for file in inputs_of(task) if file.deletes), inputs_of(task)[:2])
    return least if first else ()


def _part(task: TaskPlan, files: tuple[ScannedFile, ...], config: OptimizingConfig) -> TaskPlan:
    """The task restricted to these inputs."""
    paths = {file.data.path for file in task.rewritten}
    rewritten = tuple(file for file in files if file.data.path in paths)
    converted = tuple(file for file in files if file.data.path not in paths)
    outputs = 0
    if rewritten:
        size = sum(map(live_bytes, rewritten))
        outputs = max(1, min(task.output_count, -(-size // config.target_size)))
    return TaskPlan(task.key, rewritten, converted, outputs, read_cost(files, config))


WEIGHT = {OptimizingType.MINOR: 1, OptimizingType.MAJOR: 2, OptimizingType.FULL: 3}


def plan(
    scan: TableScan,
    evaluation: Evaluation,
    config: OptimizingConfig,
    threads: int,
    max_input_per_thread: int = DEFAULT_MAX_INPUT_BYTES,
    max_partitions: int | None = None,
) -> OptimizingPlan | None:
    """The tasks of one process on the evaluated scan; None when nothing would be gained.

    Partitions are taken by cost, the most expensive first, until their sum exceeds the limit of all threads, at most
    `max_partitions`. A partition that does not fit into `max_file_count` with those before it waits for the next
    process; the first one is cut. With `max-plan-bytes` partitions are taken by what they save for their work, and the
    one that reaches the limit is cut. Raises ValueError when the evaluation is of another snapshot.
    """
    if evaluation.snapshot_id != scan.snapshot_id:
        raise ValueError(f"the evaluation is of snapshot {evaluation.snapshot_id}, not of {scan.snapshot_id}")
    budget = max_input_per_thread * max(1, threads)
    due = [verdict for verdict in evaluation.partitions if verdict.type is not None]
    kinds: set[OptimizingType] = set()
    chosen: list[TaskPlan] = []
    files_left, bytes_left = config.max_file_count, config.max_plan_bytes
    partitions, spent, work_s, first_cut = 0, 0, 0.0, 0
    for verdict in sorted(due, key=lambda item: (_turn(item, config), order_of(item.key))):
        if spent > budget or partitions == max_partitions or first_cut:
            break
        tasks, is_cut = _fitting(verdict, files_left, bytes_left, config, first=not chosen)
        first_cut = len(chosen) + 1 if is_cut else 0
        if not tasks or verdict.type is None:
            continue
        kinds.add(verdict.type)
        chosen += tasks
        partitions += 1
        files_left -= file_count(tasks)
        bytes_left = None if bytes_left is None else bytes_left - weigh(tasks, config)[0]
        spent += verdict.cost
        work_s += forecast.work_s(tasks, verdict.type, config) if is_cut else verdict.work_s
    if not chosen:
        return None
    if first_cut:
        reason = messages.deferred_tasks(sum(len(verdict.work) for verdict in due) - len(chosen), config)
        evaluation = replace(evaluation, reason=f"{evaluation.reason}; {reason}")
    kind, tasks = max(kinds, key=WEIGHT.__getitem__), marked(chosen, scan.files)
    return OptimizingPlan(evaluation, scan.snapshot_id, scan.sequence_number, kind, tasks, work_s, first_cut)


def _turn(verdict: PartitionVerdict, config: OptimizingConfig) -> float:
    """The sort key of partitions of one plan."""
    if config.max_plan_bytes is None:
        return -verdict.cost
    return -forecast.value_of(saving_of([verdict]).files, 1, verdict.work_s)


def _fitting(
    verdict: PartitionVerdict, files_left: int, bytes_left: int | None, config: OptimizingConfig, *, first: bool
) -> tuple[tuple[TaskPlan, ...], bool]:
    """The tasks of a partition that fit into a plan, and whether `max-plan-bytes` leaves some to the next one."""
    tasks = within_file_count(verdict.work, files_left, config) if first else verdict.work
    if verdict.type is None or (not first and file_count(tasks) > files_left):
        return (), False
    if bytes_left is None:
        return tasks, False
    fitting = within_bytes(tasks, verdict.type, bytes_left, config, first=first)
    return fitting, len(fitting) < len(tasks)
