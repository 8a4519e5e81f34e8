"""The plan of one process: the costliest partitions, within its limits."""

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import TableScan
from amoro_core.model.groups import DEFAULT_MAX_INPUT_BYTES
from amoro_core.model.plans import Evaluation, OptimizingPlan, TaskPlan
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.costs import file_count
from amoro_core.planning.limits import marked, within_file_count
from amoro_core.planning.partitions import order_of

WEIGHT = {OptimizingType.MINOR: 1, OptimizingType.MAJOR: 2, OptimizingType.FULL: 3}


def plan(
    scan: TableScan,
    evaluation: Evaluation,
    config: OptimizingConfig,
    *,
    threads: int,
    max_input_per_thread: int = DEFAULT_MAX_INPUT_BYTES,
    requested: OptimizingType | None = None,
    force: bool = False,
    max_partitions: int | None = None,
) -> OptimizingPlan | None:
    """The tasks of one process on the evaluated scan; None when nothing would be gained.

    `requested` and `force` are those of the evaluation, whose verdicts contain the work. Partitions are taken by cost,
    the most expensive first, until their sum exceeds the limit of all threads, at most `max_partitions`. A partition
    that does not fit into `max_file_count` with those before it waits for the next process; the first one is cut.
    Raises ValueError when the evaluation is of another snapshot.
    """
    if evaluation.snapshot_id != scan.snapshot_id:
        raise ValueError(f"the evaluation is of snapshot {evaluation.snapshot_id}, not of {scan.snapshot_id}")
    budget = max_input_per_thread * max(1, threads)
    kinds: set[OptimizingType] = set()
    chosen: list[TaskPlan] = []
    partitions, files_left, spent = 0, config.max_file_count, 0
    for verdict in sorted(evaluation.partitions, key=lambda verdict: (-verdict.cost, order_of(verdict.key))):
        if spent > budget or (max_partitions is not None and partitions >= max_partitions):
            break
        if verdict.type is None:
            continue
        tasks = verdict.work if chosen else within_file_count(verdict.work, files_left, config)
        count = file_count(tasks)
        if not tasks or (chosen and count > files_left):
            continue
        kinds.add(verdict.type)
        chosen += tasks
        partitions += 1
        files_left -= count
        spent += verdict.cost
    if not chosen:
        return None
    tasks = marked(chosen, scan.files)
    return OptimizingPlan(evaluation, scan.snapshot_id, scan.sequence_number, max(kinds, key=WEIGHT.__getitem__), tasks)
