"""Optimizing tasks and their payloads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from amoro_core.errors import IllegalState, TaskNotFound
from amoro_core.model.history_events import MOST_ATTEMPTS, TaskAttempt
from amoro_core.model.processes import Attempt, OptimizerThread, OptimizingTask, TaskId, TaskStatus
from amoro_core.store.connection import Connection, Row, RowMapping, insert_into, to_json, to_ms, update_of

_TASKS = RowMapping(
    OptimizingTask,
    group="group_name",
    cost="cost_bytes",
    partition="partition_path",
    kind="work_kind",
    without=["task_id", "thread", "ended_on"],
)
_KEY = ("process_id", "task_number")
_INSERT_INPUT = insert_into("task_payload", (*_KEY, "input"))
_OF_TASK = "WHERE process_id = :process_id AND task_number = :task_number"
_AS_BEFORE = "AND status = :status_before AND attempt = :attempt_before"
_SAVE_OUTPUT = f"UPDATE task_payload SET output = :output, output_attempt = :attempt {_OF_TASK}"
#: What is asked of some tasks, in no order; the tasks first, so that each is found by its key.
_OF_ASKED = (
    "FROM json_each(:asked) AS one CROSS JOIN {table} ON process_id = json_extract(one.value, '$[0]') "
    "AND task_number = json_extract(one.value, '$[1]')"
)
_GET_MANY = f"SELECT task_runtime.* {_OF_ASKED.format(table='task_runtime')}"
_READ_INPUTS = f"SELECT process_id, task_number, input {_OF_ASKED.format(table='task_payload')}"


def add_many(db: Connection, planned: Sequence[tuple[OptimizingTask, bytes]]) -> None:
    """Keep new tasks with their inputs."""
    rows = [_to_row(task) for task, _ in planned]
    if rows:
        db.execute_many(insert_into("task_runtime", tuple(rows[0])), rows)
    db.execute_many(_INSERT_INPUT, ({**_key(task.task_id), "input": payload} for task, payload in planned))


def get(db: Connection, task_id: TaskId) -> OptimizingTask:
    """Raises TaskNotFound."""
    row = db.select_one(f"SELECT * FROM task_runtime {_OF_TASK}", _key(task_id))
    if row is None:
        raise _missing(task_id)
    return _from_row(row)


def get_many(db: Connection, task_ids: Iterable[TaskId]) -> dict[TaskId, OptimizingTask]:
    """These tasks by their ids; one that is not known is left out."""
    tasks = map(_from_row, db.select(_GET_MANY, _ids_parameter(task_ids)))
    return {task.task_id: task for task in tasks}


def change_many(db: Connection, changes: Iterable[tuple[OptimizingTask, OptimizingTask]]) -> None:
    """Store tasks after a change; of each pair the first is what the store has. None is to be there twice.

    Only columns that change are written, so that the others' indexes, checks and references cost nothing.

    Raises TaskNotFound; IllegalState for one that is in another status or attempt than before the change.
    """
    by_columns: dict[tuple[str, ...], list[tuple[OptimizingTask, Row]]] = {}
    for before, after in changes:
        changed = _changed(before, after)
        row = {**_key(before.task_id), "status_before": before.status.value, "attempt_before": before.attempt}
        by_columns.setdefault(tuple(changed), []).append((after, row | changed))
    for columns, rows in by_columns.items():
        if columns and db.execute_many(_update(columns), (row for _, row in rows)) < len(rows):
            _refuse_unchanged(db, [after for after, _ in rows])


def _refuse_unchanged(db: Connection, expected: Sequence[OptimizingTask]) -> None:
    """Name the task that is not as it was to be after a change."""
    by_id = get_many(db, (task.task_id for task in expected))
    for task in expected:
        stored = by_id.get(task.task_id)
        if stored is None:
            raise _missing(task.task_id)
        if (stored.status, stored.attempt) != (task.status, task.attempt):
            raise IllegalState(
                f"task {task.task_id} is {stored.status} in attempt {stored.attempt}, not as it was before its change"
            )
    raise IllegalState(f"of {len(expected)} tasks one was not as it was before its change")


def _changed(before: OptimizingTask, after: OptimizingTask) -> Row:
    """The columns in which the two differ, as they are afterwards."""
    was = _to_row(before)
    return {column: value for column, value in _to_row(after).items() if value != was[column]}


@cache
def _update(columns: tuple[str, ...]) -> str:
    return f"{update_of('task_runtime', columns, _KEY)} {_AS_BEFORE}"


def move_open(db: Connection, process_id: str, group: str) -> int:
    """Give what is not done of a process to another group; how many tasks."""
    return db.execute(
        "UPDATE task_runtime SET group_name = :group WHERE process_id = :process AND group_name <> :group "
        "AND status NOT IN ('success', 'canceled')",
        {"group": group, "process": process_id},
    )


def list_for_process(db: Connection, process_id: str) -> list[OptimizingTask]:
    """All tasks of a process, by number."""
    return _select(db, "process_id = :process_id", {"process_id": process_id})


def list_page(
    db: Connection, process_id: str, status: TaskStatus | None, after: int, limit: int
) -> list[OptimizingTask]:
    """At most `limit` tasks of a process, by number, above `after`; in the status where it is given."""
    where = "process_id = :process_id AND task_number > :after AND (:status IS NULL OR status = :status)"
    values = {"process_id": process_id, "after": after, "status": status and status.value, "most": limit}
    return _select(db, where, values, "LIMIT :most")


def list_assigned_of(db: Connection, process_ids: Iterable[str]) -> list[OptimizingTask]:
    """Scheduled and acked tasks of these processes, by process and number."""
    where = "optimizer_id IS NOT NULL AND process_id IN (SELECT value FROM json_each(:processes))"
    return _select(db, where, {"processes": to_json(sorted(process_ids))})


def largest_waiting(db: Connection, process_id: str, kind: str) -> tuple[int, int] | None:
    """The number and the input bytes of the largest planned task of that kind of work; None: none is planned."""
    row = db.select_one(
        "SELECT task_number, input_bytes FROM task_runtime WHERE process_id = :process AND status = 'planned' "
        "AND work_kind = :kind ORDER BY input_bytes DESC, task_number LIMIT 1",
        {"process": process_id, "kind": kind},
    )
    return None if row is None else (row["task_number"], row["input_bytes"])


def list_assigned(db: Connection, optimizer_id: str | None = None) -> list[OptimizingTask]:
    """Scheduled and acked tasks, of one optimizer where it is given; by process and number."""
    if optimizer_id is None:
        return _select(db, "optimizer_id IS NOT NULL", {})
    return _select(db, "optimizer_id = :optimizer_id", {"optimizer_id": optimizer_id})


def list_assigned_on(db: Connection, optimizer_id: str, thread_ids: Sequence[int]) -> list[OptimizingTask]:
    """Scheduled and acked tasks of these threads of the optimizer, by process and number."""
    where = "optimizer_id = :optimizer_id AND thread_id IN (SELECT value FROM json_each(:threads))"
    return _select(db, where, {"optimizer_id": optimizer_id, "threads": to_json(list(thread_ids))})


def count_assigned(db: Connection) -> dict[str, int]:
    """How many tasks optimizers hold, by group."""
    rows = db.select(
        "SELECT group_name, count(*) AS tasks FROM task_runtime WHERE optimizer_id IS NOT NULL GROUP BY group_name"
    )
    return {row["group_name"]: int(row["tasks"]) for row in rows}


@dataclass(frozen=True, slots=True)
class TaskHold:
    """The time for which a task of a table held a thread of a group; `until` None: it still does."""

    group: str
    table_id: int
    since: datetime
    until: datetime | None


_HOLDS = RowMapping(TaskHold, group="group_name", since="scheduled_at_ms", until="finished_at_ms")


def list_holds(db: Connection, since: datetime) -> list[TaskHold]:
    """Of tasks that hold a thread or have ended after that moment; no whole tasks, since they may be many."""
    columns = "SELECT group_name, table_id, scheduled_at_ms, finished_at_ms FROM task_runtime"
    return _HOLDS.select(
        db,
        f"{columns} WHERE finished_at_ms > :since_ms AND scheduled_at_ms IS NOT NULL "
        f"UNION ALL {columns} WHERE optimizer_id IS NOT NULL",
        {"since_ms": to_ms(since)},
    )


def read_input(db: Connection, task_id: TaskId) -> bytes:
    """The input as it was planned. Raises TaskNotFound."""
    return bytes(_payload(db, task_id, "input")["input"])


def save_input(db: Connection, task_id: TaskId, payload: bytes) -> None:
    """Put another input in the place of the planned one, for attempts that are yet to come. Raises TaskNotFound."""
    if not db.execute(f"UPDATE task_payload SET input = :input {_OF_TASK}", {**_key(task_id), "input": payload}):
        raise _missing(task_id)


def last_attempt(db: Connection, process_id: str) -> int:
    """The highest number of an attempt of any of the process's tasks; 0 where there was none."""
    sql = "SELECT coalesce(max(attempt), 0) FROM task_runtime WHERE process_id = :process_id"
    return int(db.value(sql, {"process_id": process_id}))


def remove_all(db: Connection, process_id: str) -> None:
    """Forget the process's tasks with their inputs and outputs."""
    of_process = {"process_id": process_id}
    db.execute("DELETE FROM task_payload WHERE process_id = :process_id", of_process)
    db.execute("DELETE FROM task_runtime WHERE process_id = :process_id", of_process)


def read_inputs(db: Connection, task_ids: Iterable[TaskId]) -> dict[TaskId, bytes]:
    """The inputs of these tasks, as `read_input`; one that is not known is left out."""
    rows = db.select(_READ_INPUTS, _ids_parameter(task_ids))
    return {TaskId(row["process_id"], row["task_number"]): bytes(row["input"]) for row in rows}


def save_output(db: Connection, task_id: TaskId, attempt: int, payload: bytes) -> None:
    """Keep what an attempt made; it replaces what an earlier one made. Raises TaskNotFound."""
    if not db.execute(_SAVE_OUTPUT, {**_key(task_id), "attempt": attempt, "output": payload}):
        raise _missing(task_id)


def read_output(db: Connection, task_id: TaskId) -> tuple[int, bytes] | None:
    """The attempt and what it made; None before any has succeeded. Raises TaskNotFound."""
    row = _payload(db, task_id, "output_attempt, output")
    return None if row["output"] is None else (row["output_attempt"], row["output"])


def _payload(db: Connection, task_id: TaskId, columns: str) -> Row:
    row = db.select_one(f"SELECT {columns} FROM task_payload {_OF_TASK}", _key(task_id))
    if row is None:
        raise _missing(task_id)
    return row


def _missing(task_id: TaskId) -> TaskNotFound:
    return TaskNotFound(f"task {task_id} is not known")


def _ids_parameter(task_ids: Iterable[TaskId]) -> Row:
    return {"asked": to_json([(id_.process_id, id_.number) for id_ in task_ids])}


def _key(task_id: TaskId) -> Row:
    return {"process_id": task_id.process_id, "task_number": task_id.number}


def _to_row(task: OptimizingTask) -> Row:
    holder, last = task.thread, task.ended_on
    return {
        **_key(task.task_id),
        **_TASKS.to_row(task),
        "optimizer_id": holder and holder.optimizer_id,
        "thread_id": holder and holder.thread_id,
        "ended_optimizer_id": last and last.optimizer_id,
        "ended_thread_id": last and last.thread_id,
    }


def _select(db: Connection, where: str, values: Row, limit: str = "") -> list[OptimizingTask]:
    rows = db.select(f"SELECT * FROM task_runtime WHERE {where} ORDER BY process_id, task_number {limit}", values)
    return [_from_row(row) for row in rows]


def _from_row(row: Row) -> OptimizingTask:
    holder, last = row["optimizer_id"], row["ended_optimizer_id"]
    return _TASKS.from_row(
        row,
        task_id=TaskId(row["process_id"], row["task_number"]),
        thread=None if holder is None else OptimizerThread(holder, row["thread_id"]),
        ended_on=None if last is None else OptimizerThread(last, row["ended_thread_id"]),
    )


#: Bytes of a piece, which is what travels at once.
PIECE_BYTES = 1 << 20


def save_blobs(db: Connection, process_id: str, blobs: Mapping[str, bytes]) -> None:
    """Store the process's blobs by their SHA-256, replacing its previous ones."""
    remove_blobs(db, process_id)
    db.execute_many(
        "INSERT INTO work_blob (process_id, sha256, piece, content) VALUES (:process_id, :sha256, :piece, :content)",
        (
            {
                "process_id": process_id,
                "sha256": sha256,
                "piece": number,
                "content": content[start : start + PIECE_BYTES],
            }
            for sha256, content in blobs.items()
            for number, start in enumerate(range(0, len(content), PIECE_BYTES))
        ),
    )


def find_blob_piece(db: Connection, process_id: str, sha256: str, piece: int) -> bytes | None:
    """The piece of the blob with that number, from 0; None if there is none."""
    content = db.value(
        "SELECT content FROM work_blob WHERE process_id = :process_id AND sha256 = :sha256 AND piece = :piece",
        {"process_id": process_id, "sha256": sha256, "piece": piece},
    )
    return None if content is None else bytes(content)


def remove_blobs(db: Connection, process_id: str) -> None:
    """Delete the blobs of the process."""
    db.execute("DELETE FROM work_blob WHERE process_id = :process_id", {"process_id": process_id})


_ATTEMPTS = RowMapping(TaskAttempt, without=["attempt", "thread"])
_TRIM_ATTEMPTS = (
    "DELETE FROM task_attempt WHERE process_id = :process_id AND task_number = :task_number "
    f"AND attempt <= :attempt - {MOST_ATTEMPTS}"
)
#: Those that ended and those that run, of one process; of none twice, since the two differ in their numbers.
_ALL_ATTEMPTS = (
    "SELECT process_id, task_number, attempt, optimizer_id, thread_id, outcome, scheduled_at_ms, acked_at_ms, "
    "finished_at_ms, failure_code, failure, input_rows, input_bytes FROM task_attempt WHERE process_id = :process_id "
    "UNION ALL SELECT process_id, task_number, attempt, optimizer_id, thread_id, 'running', scheduled_at_ms, "
    "acked_at_ms, NULL, '', '', input_rows, input_bytes FROM task_runtime "
    "WHERE process_id = :process_id AND optimizer_id IS NOT NULL"
)


def add_attempts(db: Connection, ended: Iterable[TaskAttempt]) -> None:
    """Keep attempts that have ended; of each task the latest hundred stay."""
    rows = list(map(_attempt_to_row, ended))
    for row in rows:
        db.insert("task_attempt", row)
    db.execute_many(_TRIM_ATTEMPTS, (row for row in rows if row["attempt"] > MOST_ATTEMPTS))


def list_attempts(
    db: Connection, process_id: str, task_number: int | None, after: tuple[int, int], limit: int
) -> list[TaskAttempt]:
    """At most `limit` attempts of a process by task and number, above the pair `after`; of one task if it is given."""
    place = {"task_after": after[0], "attempt_after": after[1]}
    rows = db.select(
        f"SELECT * FROM ({_ALL_ATTEMPTS}) WHERE (task_number, attempt) > (:task_after, :attempt_after) "
        "AND (:task IS NULL OR task_number = :task) ORDER BY task_number, attempt LIMIT :most",
        {"process_id": process_id, "task": task_number, "most": limit, **place},
    )
    return [_attempt_from_row(row) for row in rows]


def count_attempts(db: Connection, process_id: str, task_number: int | None = None) -> int:
    """How many attempts of a process are known, of one task where it is given; running ones, too."""
    counted = db.value(
        "SELECT (SELECT count(*) FROM task_attempt WHERE process_id = :process_id "
        "AND (:task IS NULL OR task_number = :task)) + (SELECT count(*) FROM task_runtime "
        "WHERE process_id = :process_id AND optimizer_id IS NOT NULL AND (:task IS NULL OR task_number = :task))",
        {"process_id": process_id, "task": task_number},
    )
    return int(counted)


def _attempt_to_row(ended: TaskAttempt) -> Row:
    task, thread = ended.attempt.task_id, ended.thread
    if ended.finished_at is None:
        raise ValueError(f"attempt {ended.attempt} has not ended")
    return {
        **_key(task),
        "attempt": ended.attempt.number,
        "optimizer_id": thread.optimizer_id,
        "thread_id": thread.thread_id,
        **_ATTEMPTS.to_row(ended),
    }


def _attempt_from_row(row: Row) -> TaskAttempt:
    attempt = Attempt(TaskId(row["process_id"], row["task_number"]), row["attempt"])
    return _ATTEMPTS.from_row(row, attempt=attempt, thread=OptimizerThread(row["optimizer_id"], row["thread_id"]))
