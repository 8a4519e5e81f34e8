"""Blockers, which keep kinds of work off a table for a while."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import OPTIMIZING_ROLES
from amoro_core.errors import InvalidArgument, TableBlocked, TableBusy
from amoro_core.formats.ports import with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.optimizing_config import ConflictGranularity, parse_config
from amoro_core.model.paging import Page, Window, page_limit
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import FILES, IN_NO_LANE, LAYOUT, ProcessStatus, uuid7
from amoro_core.model.tables import (
    LONGEST_HOLD,
    BlockedOperation,
    Blocker,
    OptimizingStatus,
    TableIdentifier,
    TableRuntime,
)
from amoro_core.store import actions, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.advance_process import Effects, Signals
from amoro_core.transactions.process_context import give_up, holder

log = get_logger("amoro.blockers")


@dataclass(frozen=True, slots=True)
class TableBlocker:
    """A blocker with the name of its table."""

    blocker: Blocker
    table: TableIdentifier


_Paths = frozenset[str] | None
#: What a new blocker is about: the condition ("": the whole table), the paths of its partitions in which processes
#: hinder it (None: everywhere), and the ids of blockers of other partitions.
_Scope = tuple[str, _Paths, frozenset[str]]
_WHOLE: _Scope = ("", None, frozenset())


@dataclass
class BlockerService:
    """Blockers of all tables.

    Taking a blocker and storing a plan are decided in writes of the same store, so that a table never has both a
    blocker of optimizing and a process.
    """

    store: Store
    tables: Tables
    clock: Callable[[], datetime]
    signals: Signals
    held_for: timedelta

    def block(
        self,
        table_id: int,
        operations: frozenset[BlockedOperation],
        held_for: timedelta | None = None,
        reason: str = "",
        condition: str = "",
        *,
        yields: bool = False,
    ) -> TableBlocker:
        """A new blocker against the operations; with a condition against optimizing of these partitions alone.

        With `yields` processes that run give way. Raises TableBlocked while another one is held against any of the
        operations, TableBusy for optimizing while a process is planned or active on the table (of some partitions: as
        `self-optimizing.conflict-granularity` says), TableNotFound, InvalidArgument for no operation, a time that is
        not above zero and at most a day, or a condition that selects no whole partitions, and what loading raises.
        """
        if not operations:
            raise InvalidArgument(
                "a blocker needs at least one operation", hint=f"One of: {', '.join(BlockedOperation)}."
            )
        duration = _checked(held_for or self.held_for)
        if (condition or yields) and operations != {BlockedOperation.OPTIMIZE}:
            raise InvalidArgument(
                f"a condition, and giving way, concern optimizing, not {', '.join(sorted(operations))}",
                hint="Block other operations for the whole table.",
            )
        where, paths, disjoint = self._scope(table_id, condition, yields=yields) if condition else _WHOLE
        effects = Effects()

        def take(db: Connection) -> TableBlocker:
            now = self.clock()
            runtime = tables.get(db, table_id)
            # Who refuses writers refuses those that announce partitions, too, unless it gives way.
            against = operations | ({BlockedOperation.BATCH_WRITE} if where and not yields else set())
            for other in actions.list_blockers(db, now, table_id):
                if other.operations & against and other.blocker_id not in disjoint:
                    raise TableBlocked(f"{runtime.identifier} is {other.words}", hint="Try again when it has expired.")
            blocker = Blocker(uuid7(now), table_id, operations, now, now + duration, duration, reason, where)
            if BlockedOperation.OPTIMIZE in operations:
                _clear_way(db, runtime, blocker, paths, effects, yields=yields)
            self._remove(db, actions.list_expired_blockers(db, now))
            return _named(db, actions.add_blocker(db, blocker))

        table_blocker = self.store.write(take)
        self.signals.announce(effects)
        log.info(
            "blocker.taken",
            blocker=table_blocker.blocker.blocker_id,
            table=str(table_blocker.table),
            operations=sorted(operations),
            until=table_blocker.blocker.expires_at.isoformat(),
        )
        return table_blocker

    def _scope(self, table_id: int, condition: str, *, yields: bool) -> _Scope:
        """What a condition means on the table as it is now. Raises InvalidArgument, and what loading raises."""
        runtime = self.store.read(lambda db: tables.get(db, table_id))
        table = with_roles(self.tables.open(runtime.identifier), OPTIMIZING_ROLES, "a condition")
        config = parse_config(self.tables.effective_properties(runtime.identifier.catalog, table))
        holds, granularity = table.chooses(condition, widely=True), config.conflict_granularity
        if granularity is ConflictGranularity.TABLE:
            return _WHOLE
        blockers = self.store.read(lambda db: actions.list_blockers(db, self.clock(), table_id))
        others = [blocker for blocker in blockers if blocker.condition and blocker.condition != condition]
        passes = granularity is ConflictGranularity.FILE and not yields
        scan = None if passes and not others else table.scan()
        keys = {PartitionKey(file.data.spec_id, file.data.partition) for file in (scan.files if scan else ())}
        there = list(filter(holds, keys))
        unrelated = (other for other in others if not any(map(holder(table, other.condition), there)))
        disjoint = frozenset(other.blocker_id for other in unrelated)
        return condition, frozenset(() if passes else map(table.partition_path, there)), disjoint

    def renew(self, blocker_id: str, held_for: timedelta | None = None) -> TableBlocker:
        """Extend the blocker from now, by its original duration or the given one. The id may be a prefix.

        Raises BlockerNotFound for one that was released or has expired: the blocked work may have begun since.
        """
        duration = None if held_for is None else _checked(held_for)

        def lengthen(db: Connection) -> TableBlocker:
            now = self.clock()
            blocker = actions.find_blocker_by_part(db, blocker_id, now)
            longer = duration or blocker.held_for
            return _named(db, actions.save_blocker(db, replace(blocker, expires_at=now + longer, held_for=longer)))

        return self.store.write(lengthen)

    def find(self, blocker_id: str) -> TableBlocker:
        """The active blocker with that id, which may be a prefix. Raises BlockerNotFound."""
        return self.store.read(lambda db: _named(db, actions.find_blocker_by_part(db, blocker_id, self.clock())))

    def release(self, blocker_id: str) -> TableBlocker:
        """End the blocker, and return it. The id may be a prefix. Raises BlockerNotFound."""

        def drop(db: Connection) -> TableBlocker:
            blocker = actions.find_blocker_by_part(db, blocker_id, self.clock())
            self._remove(db, [blocker])
            return _named(db, blocker)

        released = self.store.write(drop)
        log.info("blocker.released", blocker=released.blocker.blocker_id, table=str(released.table))
        return released

    def list_active(self, table_id: int | None = None) -> list[TableBlocker]:
        """Active blockers, of one table or all, oldest first."""
        return self.store.read(
            lambda db: [_named(db, blocker) for blocker in actions.list_blockers(db, self.clock(), table_id)]
        )

    def page(self, table_id: int | None, window: Window) -> Page[TableBlocker]:
        """Active blockers after an id, of one table or all, oldest first: their ids begin with when they were taken."""
        most = page_limit(window.limit)

        def read(db: Connection) -> Page[TableBlocker]:
            page = actions.blocker_page(db, self.clock(), table_id, window.after, most)
            return page.mapped(lambda blocker: _named(db, blocker))

        return self.store.read(read)

    def blocked_from(self, operation: BlockedOperation) -> frozenset[int]:
        """The tables on which the operation is blocked now, as a whole."""
        blockers = self.store.read(lambda db: actions.list_blockers(db, self.clock()))
        return frozenset(item.table_id for item in blockers if operation in item.operations and not item.condition)

    def trim(self) -> int:
        """Delete expired blockers, and return their number."""
        return self.store.write(lambda db: self._remove(db, actions.list_expired_blockers(db, self.clock())))

    def _remove(self, db: Connection, ended: Sequence[Blocker]) -> int:
        """Delete blockers, and let tables be evaluated with the partitions that these held; how many there were."""
        for blocker in ended:
            actions.remove_blocker(db, blocker.blocker_id)
        tables.refresh_at_once(db, {blocker.table_id for blocker in ended if blocker.condition}, evaluates=True)
        return len(ended)


def _clear_way(
    db: Connection, runtime: TableRuntime, blocker: Blocker, paths: _Paths, effects: Effects, *, yields: bool
) -> None:
    """Let processes with files there give way to the blocker, if `yields`. Raises TableBusy for one that does not."""
    for process in processes.list_active_of(db, runtime.table_id):
        replaces = process.lane in (FILES, LAYOUT)
        partitions = {task.task_id.number: task.partition for task in tasks.list_for_process(db, process.process_id)}
        there = [number for number, path in partitions.items() if paths is None or not path or path in paths]
        is_apart = paths is not None and (not replaces or not paths or (partitions and not there))
        if process.status in IN_NO_LANE or is_apart:
            continue
        if not (yields and replaces and process.status is ProcessStatus.RUNNING):
            raise TableBusy(
                f"process {process.process_id} ({process.type}, {process.status}) is active on {runtime.identifier}"
                + (f" where {blocker.condition}" if blocker.condition else ""),
                hint=f"Wait for its end, or cancel it while it runs: amoro process cancel {process.process_id}",
            )
        why = f"it gives way to a writer{f' ({blocker.reason})' if blocker.reason else ''}: {blocker.blocker_id}"
        give_up(db, process, dict.fromkeys(there, why), effects, blocker.created_at)
    if runtime.status is OptimizingStatus.PLANNING and paths is None:
        raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.")


def _named(db: Connection, blocker: Blocker) -> TableBlocker:
    return TableBlocker(blocker, tables.get(db, blocker.table_id).identifier)


def _checked(held_for: timedelta) -> timedelta:
    if not timedelta(0) < held_for <= LONGEST_HOLD:
        raise InvalidArgument(
            f"a blocker of {held_for} is not possible: it lasts at most {LONGEST_HOLD}",
            hint="Take a shorter one, and renew it before it ends.",
        )
    return held_for
