"""Results that came too late: their files will never be committed, so they are condemned at once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from amoro_core.actions.contract import Action
from amoro_core.errors import NotFound
from amoro_core.events import get_logger
from amoro_core.model.actions import TaskResult
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.processes import Attempt
from amoro_core.model.work import WorkResult
from amoro_core.store import condemned, tasks
from amoro_core.store.condemned import BatchStatus
from amoro_core.store.database import Connection
from amoro_core.transactions.cases import read_case

log = get_logger("amoro.late")

#: How long such files are kept for inspection before they are deleted.
KEEP = timedelta(days=1)


def condemn_late(
    db: Connection, attempt: Attempt, result: object, find_action: Callable[[str], Action], now: datetime
) -> int:
    """Condemn the files of a result that was absorbed; returns their number.

    Only if no result of that attempt can be accepted any more, because its process has ended or a later attempt has
    begun: one sent under an earlier registration may be sent again. Only files named after the attempt, and none of an
    accepted result, so that a faulty optimizer can condemn nothing else. Does nothing for an unknown task, a failure,
    or an unreadable result.
    """
    if not isinstance(result, WorkResult):
        return 0
    process_id, number = attempt.task_id.process_id, attempt.task_id.number
    try:
        case, task = read_case(db, process_id), tasks.get(db, attempt.task_id)
        if case.process.is_active and task.attempt <= attempt.number:
            return 0
        late = TaskResult(number, result.kind, tasks.read_input(db, attempt.task_id), result.payload)
    except NotFound:
        return 0
    try:
        action = find_action(case.process.type)
        taken = action.outputs(case, frozenset(one.number for one in case.results))
        named = action.outputs(replace(case, results=(late,)), frozenset((number,)))
    except Exception as error:  # whatever decoding raises
        log.warning("result.unreadable", attempt=str(attempt), why=str(error))
        return 0
    known = condemned.paths(db, case.process.table_id).union(taken)
    own = f"{attempt.task_id}-{attempt.number}-"
    files = [
        Condemned(path, FileKind.DATA, None, None, f"of the late result of attempt {attempt}")
        for path in named
        if path.rpartition("/")[2].startswith(own) and path not in known
    ]
    batches = condemned.batches_of(files, process_id, case.process.table_id, case.process.table_uuid, now + KEEP)
    condemned.add_many(db, [replace(one, status=BatchStatus.WAITING) for one in batches])
    return len(files)
