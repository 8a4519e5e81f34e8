"""The plan of one process: the partitions that matter most, within its limits."""

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import TableScan
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionVerdict, TaskPlan
from amoro_core.model.tables import OptimizingType
from amoro_core.planning.costs import file_count
from amoro_core.planning.limits import settled, within_file_count
from amoro_core.planning.partitions import equality_coverage, order_of, partitions_of
from amoro_core.planning.tasks import Selection, tasks_of

MAX_INPUT_PER_THREAD_BYTES = 512 * 1024 * 1024
WEIGHT = {OptimizingType.MINOR: 1, OptimizingType.MAJOR: 2, OptimizingType.FULL: 3}


def plan(
    scan: TableScan,
    evaluation: Evaluation,
    config: OptimizingConfig,
    *,
    threads: int,
    max_input_per_thread: int = MAX_INPUT_PER_THREAD_BYTES,
    requested: OptimizingType | None = None,
    force: bool = False,
) -> OptimizingPlan | None:
    """The tasks of one process on that scan; None when nothing would be gained.

    `requested` and `force` are those of the evaluation. Partitions go by cost, the most expensive first, until
    their sum passes the limit of all threads. A partition that does not fit into `max_file_count` with those
    before it waits for the next process; the first one is cut.
    """
    partitions = {partition.key: partition for partition in partitions_of(scan, config)}
    coverage = equality_coverage(scan)
    budget = max_input_per_thread * max(1, threads)
    chosen: dict[PartitionVerdict, tuple[TaskPlan, ...]] = {}
    files_left, spent = config.max_file_count, 0
    for verdict in sorted(evaluation.partitions, key=lambda verdict: (-verdict.cost, order_of(verdict.key))):
        if verdict.type is None or verdict.key not in partitions or spent > budget:
            continue
        selection = Selection(verdict.type, requested=requested is not None, force=force)
        whole = tasks_of(partitions[verdict.key], selection, config)
        tasks = whole if chosen else within_file_count(whole, files_left, config)
        count = file_count(tasks)
        if not tasks or (chosen and count > files_left):
            continue
        chosen[verdict] = tasks
        files_left -= count
        spent += verdict.cost
    tasks = settled([task for some in chosen.values() for task in some], coverage, config)
    if not tasks:
        return None
    kind = max((verdict.type for verdict in chosen if verdict.type is not None), key=WEIGHT.__getitem__)
    return OptimizingPlan(evaluation, scan.snapshot_id, scan.sequence_number, kind, tasks)
