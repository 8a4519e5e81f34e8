"""Planned tasks in their order, as the store alone tells them: what the board in memory is measured by."""

from collections.abc import Sequence

from amoro_core.model.clustering import CLUSTER
from amoro_core.model.processes import OptimizingTask, TaskId
from amoro_core.store import tasks
from amoro_core.store.connection import Connection
from amoro_core.store.rows import to_json

_NO_LIMIT = 2**31 - 1
#: A task waits until those of earlier stages of its process have ended.
_ITS_TURN = (
    "NOT EXISTS (SELECT 1 FROM task_runtime AS earlier WHERE earlier.process_id = task_runtime.process_id "
    "AND earlier.stage < task_runtime.stage AND earlier.status IN ('planned', 'scheduled', 'acked', 'failed'))"
)
#: A group of files that is put in order has to fit into whoever takes it.
_FITS = f"(work_kind <> '{CLUSTER}' OR input_bytes <= :most_clustered)"
_WAITING_PROCESSES = (
    # The first condition is the partial index's own, so that it is used.
    "SELECT process_id FROM table_process WHERE finished_at_ms IS NULL "
    "AND status IN ('running', 'committing') AND EXISTS (SELECT 1 FROM task_runtime "
    "WHERE group_name = :group AND task_runtime.process_id = table_process.process_id "
    "AND task_runtime.status = 'planned' AND work_kind IN (SELECT value FROM json_each(:kinds)) "
    f"AND {_ITS_TURN} AND {_FITS}) "
    "ORDER BY created_at_ms, process_id"
)
_WAITING_TASKS = (
    "SELECT task_number FROM task_runtime WHERE group_name = :group AND process_id = :process AND status = 'planned' "
    f"AND work_kind IN (SELECT value FROM json_each(:kinds)) AND {_ITS_TURN} AND {_FITS} "
    "ORDER BY task_number LIMIT :most"
)


def list_planned(
    db: Connection,
    group: str,
    kinds: Sequence[str],
    limit: int | None = None,
    per_process: int | None = None,
    max_cluster_bytes: int = 0,
) -> list[OptimizingTask]:
    """Tasks of running processes that wait for an optimizer of the group which knows these kinds of work, in the order
    in which they are scheduled.

    That is: the oldest process first, its tasks by number. Of each process at most `per_process`: scheduling n
    tasks never needs more, and a process may have thousands. Groups of files above `max_cluster_bytes` wait for
    somebody else.
    """
    # Process by process over the partial index: the cost does not grow with the tasks that are not asked for.
    found: list[OptimizingTask] = []
    most = _NO_LIMIT if limit is None else limit
    asked = {"group": group, "kinds": to_json(kinds), "most_clustered": max_cluster_bytes}
    for owner in db.select(_WAITING_PROCESSES, asked):
        if len(found) >= most:
            break
        wanted = min(most - len(found), _NO_LIMIT if per_process is None else per_process)
        rows = db.select(_WAITING_TASKS, {**asked, "process": owner["process_id"], "most": wanted})
        found += [tasks.get(db, TaskId(owner["process_id"], row["task_number"])) for row in rows]
    return found
