"""Plans that are stored before they are started, and groups whose files are no longer live."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from amoro_core.actions.action_api import Action, Clustering
from amoro_core.errors import AmoroError, CommitConflict, TableBlocked, TableBusy
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.files import TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.processes import LAYOUT, OptimizingProcess, ProcessContext, ProcessStatus, TaskStatus
from amoro_core.scan.live_files import LiveFiles
from amoro_core.state import tasks as task_machine
from amoro_core.store import processes, table_stats, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import Effects, advance_process, renew_block
from amoro_core.transactions.journal import advance_task
from amoro_core.transactions.partial_commits import Ending, close
from amoro_core.transactions.process_context import open_planned, read_context
from amoro_core.transactions.store_plan import (
    list_expired,
    list_requested,
    list_startable,
    list_to_renew,
    refuse_starting,
    start,
)

log = get_logger("amoro.starting")

_OPEN = (TaskStatus.PLANNED, TaskStatus.SCHEDULED, TaskStatus.ACKED)
_GOING = (ProcessStatus.REQUESTED, ProcessStatus.RUNNING, ProcessStatus.COMMITTING)


class StartingService:
    """Starts plans that wait, closes those whose time is over, and gives up groups whose files are gone."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        announce: Callable[[Effects], None],
    ) -> None:
        """`announce` signals the effects of a stored change."""
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._announce = announce
        self._seen: dict[str, int | None] = {}  # the head that a process was compared with last

    def start(self, process_id: str) -> OptimizingProcess:
        """Let a plan that waits begin; the id may be a unique prefix.

        Raises ProcessNotFound, IllegalState for one that has begun or has ended, CommitConflict where a file of it is
        gone (it is closed then), TableBusy, TableBlocked, and what loading the table raises.
        """
        process = self._store.read(lambda db: processes.find_by_prefix(db, process_id))
        refuse_starting(process)
        if gone := self._look_at(process):
            raise CommitConflict(
                f"process {process.process_id} was closed: {gone}",
                hint="Plan anew: amoro optimize TABLE --type cluster",
            )
        return self._start(process)

    def waiting(self, table_id: int) -> list[str]:
        """The ids of the table's plans that wait for their start, oldest first."""
        return [one.process_id for one in self._store.read(lambda db: list_requested(db, table_id))]

    def _start(self, process: OptimizingProcess) -> OptimizingProcess:
        effects = Effects()
        failpoint("start.before_store")
        started = self._store.write(lambda db: start(db, processes.get(db, process.process_id), effects, self._clock()))
        failpoint("start.after_store")
        log.info("process.started", process=process.process_id, type=process.type)
        self._announce(effects)
        return started

    def start_due(self) -> list[str]:
        """Start plans whose time has come, unless their tables are busy or blocked; the ids of the processes."""
        begun = []
        for process in self._store.read(lambda db: list_startable(db, self._clock())):
            try:
                self._start(process)
            except (TableBusy, TableBlocked) as busy:
                log.debug("process.waits", process=process.process_id, why=busy.message)
            else:
                begun.append(process.process_id)
        return begun

    def close_expired(self) -> list[str]:
        """Close plans that were not started before they expired; the ids of the processes."""
        if not self._store.read(lambda db: list_expired(db, self._clock())):
            return []
        effects = Effects()

        def end(db: Connection) -> list[str]:
            old = list_expired(db, self._clock())
            for one in old:
                ending = Ending("nobody started it within self-optimizing.cluster.plan-ttl")
                close(db, one, ending, self._clock())
            return [one.process_id for one in old]

        closed = self._store.write(end)
        self._announce(effects)
        return closed

    def renew_blockers(self) -> list[str]:
        """Renew blockers of writers that expire soon; the ids of processes that lost theirs.

        To be called several times in half a day.
        """
        lost = []
        for process in self._store.read(lambda db: list_to_renew(db, self._clock())):
            if not self._store.write(partial(self._renew, process)):
                lost.append(process.process_id)
                log.warning("blocker.taken_by_others", process=process.process_id)
        return lost

    def _renew(self, process: OptimizingProcess, db: Connection) -> bool:
        if not processes.get(db, process.process_id).is_active:
            return True
        return renew_block(db, process, self._clock())

    def look_after(self, table_id: int) -> None:
        """Compare the files of the table's plans that order rows with its head, once for each head.

        A plan that was not started is closed where one of them is gone; of one that runs the groups are given up whose
        files are gone. Raises what loading the table raises.
        """
        active = self._store.read(lambda db: processes.list_active_of(db, table_id))
        for process in active:
            if process.lane == LAYOUT and process.status in _GOING:
                self._look_at(process)

    def _look_at(self, process: OptimizingProcess) -> str:
        """The reason if the process was closed because a file is gone; else ""."""
        case = self._store.read(lambda db: read_context(db, process.process_id))
        try:
            opened = open_planned(self._tables, case)
        except CommitConflict as another:
            if process.status != ProcessStatus.REQUESTED:
                return ""  # it is ended as every process is whose table is another one
            return self._close(process, another)
        head = opened.facts.snapshot_id
        if head == self._seen.get(process.process_id, process.snapshot_id):
            return ""
        table = with_roles(opened, (Role.READ,), process.type)
        found = None if head is None else table.scan_of(head)
        works = self._store.read(lambda db: self._open_files(db, case))
        live = self._live(found, works)
        gone = {
            number: f"{lost[0]} is no longer live"
            for number, paths in works.items()
            if (lost := [path for path in paths if normalise(path) not in live])
        }
        self._seen[process.process_id] = head
        if not gone:
            return ""
        if process.status == ProcessStatus.REQUESTED:
            return self._close(process, CommitConflict(next(iter(gone.values()))))
        self._give_up(process, gone)
        return ""

    @staticmethod
    def _live(scan: TableScan | None, works: Mapping[int, tuple[str, ...]]) -> set[str]:
        """The normalised paths of those of the files that are live."""
        live = LiveFiles.of(scan.files if scan is not None else ())
        ids = live.ids_of(path for paths in works.values() for path in paths)
        return {normalise(live.columns.row(at).path) for at in ids.tolist()}

    def _open_files(self, db: Connection, case: ProcessContext) -> dict[int, tuple[str, ...]]:
        """The data files of each group that is not done, by the number of its task."""
        action = self._find_action(case.process.type)
        if not isinstance(action, Clustering):
            return {}
        return {
            task.task_id.number: action.data_files(tasks.read_input(db, task.task_id))
            for task in tasks.list_for_process(db, case.process.process_id)
            if task.status in _OPEN
        }

    def _give_up(self, process: OptimizingProcess, gone: Mapping[int, str]) -> None:
        effects = Effects()

        def drop(db: Connection) -> None:
            now = self._clock()
            if processes.get(db, process.process_id).status not in _GOING:
                return
            table_stats.add_dropped_groups(db, process.process_id, gone)
            for task in tasks.list_for_process(db, process.process_id):
                reason = gone.get(task.task_id.number)
                if reason is not None and task.status in _OPEN:
                    advance_task(db, task, task_machine.Cancel(reason), now)
            advance_process(db, process.process_id, effects, now)

        self._store.write(drop)
        for number, reason in gone.items():
            log.warning("group.dropped", process=process.process_id, task=number, reason=reason)
        self._announce(effects)

    def _close(self, process: OptimizingProcess, error: AmoroError) -> str:
        def end(db: Connection) -> None:
            current = processes.get(db, process.process_id)
            if current.status == ProcessStatus.REQUESTED:
                close(db, current, Ending(error.message, error.code), self._clock())

        self._store.write(end)
        log.info("process.closed", process=process.process_id, reason=error.message)
        self._announce(Effects())
        return error.message
