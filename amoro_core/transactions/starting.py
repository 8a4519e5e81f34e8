"""Plans that are stored before they are started: which begin by themselves, which are closed, and the start."""

from datetime import datetime

from amoro_core.actions.contract import Action, Clustering
from amoro_core.errors import IllegalState, TableBusy
from amoro_core.model.clustering import REJECTS
from amoro_core.model.lanes import LAYOUT
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from amoro_core.model.tables import TableRuntime
from amoro_core.state import processes as process_machine
from amoro_core.store import process_plans, processes, tables
from amoro_core.store.database import Connection
from amoro_core.transactions.announcing import announce, needs_renewal
from amoro_core.transactions.planned import EVALUATION, Asked, require_free, require_unblocked
from amoro_core.transactions.settling import Effects, settle
from amoro_core.transactions.telling import keep_process

_UNDER_WAY = (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


def list_requested(db: Connection, table_id: int | None = None) -> list[OptimizingProcess]:
    """Plans that wait for their start, oldest first; of the table, where it is given."""
    found = processes.list_active(db) if table_id is None else processes.list_active_of(db, table_id)
    return [one for one in found if one.status == ProcessStatus.REQUESTED]


def list_expired(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Plans that nobody started in their time."""
    waiting = [(one, process_plans.get(db, one.process_id).expires_at) for one in list_requested(db)]
    return [one for one, at in waiting if at is not None and at <= now]


def list_startable(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Plans that begin by themselves by now."""
    waiting = [(one, process_plans.get(db, one.process_id).start_at) for one in list_requested(db)]
    return [one for one, at in waiting if at is not None and at <= now]


def require_may_begin(
    db: Connection, runtime: TableRuntime, action: Action, asked: Asked, now: datetime, *, stored: bool = False
) -> None:
    """Raise TableBusy or TableBlocked where no process of the action may begin now.

    What is stored before it is started needs its lane at its start only; the clock makes no such plan while another
    one of the table waits. `stored`: asked within the write that stores it.
    """
    if not isinstance(action, Clustering):
        require_free(db, runtime, action.lane, now, maintains=True, action=action.name)
        return
    require_unblocked(db, runtime, action.lane, now, maintains=True)
    if asked.trigger != EVALUATION:
        return
    if waiting := list_requested(db, runtime.table_id):
        raise TableBusy(f"its last plan was not started yet: amoro process start {waiting[-1].process_id}")
    if not stored:
        require_free(db, runtime, action.lane, now, maintains=True, action=action.name)


def start(db: Connection, process: OptimizingProcess, effects: Effects, now: datetime) -> OptimizingProcess:
    """Let a plan begin. Raises TableBusy or TableBlocked, and IllegalState for one that has begun or has ended."""
    refuse_starting(process)
    runtime = tables.get(db, process.table_id)
    require_free(db, runtime, process.lane, now, maintains=True, own=process.process_id, action=process.action)
    if process_plans.get(db, process.process_id).document.get(REJECTS):
        announce(db, runtime, process, now)
    started = keep_process(db, process, process_machine.advance(process, process_machine.Started(), now), now)
    effects.work = True
    settle(db, process.process_id, effects, now)
    return started


def list_to_renew(db: Connection, now: datetime) -> list[OptimizingProcess]:
    """Processes that run and whose blocker of writers ends soon, or has ended."""
    going = (one for one in processes.list_active(db) if one.lane == LAYOUT and one.status in _UNDER_WAY)
    rejecting = (one for one in going if process_plans.get(db, one.process_id).document.get(REJECTS))
    return [one for one in rejecting if needs_renewal(db, one, now)]


def refuse_starting(process: OptimizingProcess) -> None:
    """Raise IllegalState, with the way out, for a process that waits for no start."""
    if process.status == ProcessStatus.REQUESTED:
        return
    name = f"process {process.process_id} ({process.type})"
    if process.is_active:
        raise IllegalState(f"{name} has begun already: it is {process.status}")
    why = f": {process.failure}" if process.failure else ""
    raise IllegalState(f"{name} is {process.status}{why}", hint="Plan anew: amoro optimize TABLE --type cluster")
