"""Blockers, which keep kinds of work off a table for a while."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.errors import InvalidArgument, TableBlocked, TableBusy
from amoro_core.logger import get_logger
from amoro_core.model.paging import Page, Window, page_limit
from amoro_core.model.processes import IN_NO_LANE, uuid7
from amoro_core.model.tables import LONGEST_HOLD, BlockedOperation, Blocker, OptimizingStatus, TableIdentifier
from amoro_core.store import actions, processes, tables
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.blockers")


@dataclass(frozen=True, slots=True)
class TableBlocker:
    """A blocker with the name of its table."""

    blocker: Blocker
    table: TableIdentifier


@dataclass
class BlockerService:
    """Blockers of all tables.

    Taking a blocker and storing a plan are decided in writes of the same store, so that a table never has both a
    blocker of optimizing and a process.
    """

    store: Store
    clock: Callable[[], datetime]
    held_for: timedelta

    def block(
        self,
        table_id: int,
        operations: frozenset[BlockedOperation],
        held_for: timedelta | None = None,
        reason: str = "",
    ) -> TableBlocker:
        """A new blocker against the operations.

        Raises TableBlocked while another one is held against any of them, TableBusy for optimizing while a process
        is planned or active on the table, TableNotFound, and InvalidArgument for no operation or a time that is not
        above zero and at most a day.
        """
        if not operations:
            raise InvalidArgument(
                "a blocker needs at least one operation", hint=f"One of: {', '.join(BlockedOperation)}."
            )
        duration = _checked(held_for or self.held_for)

        def take(db: Connection) -> TableBlocker:
            now = self.clock()
            runtime = tables.get(db, table_id)
            held = actions.find_blocker_against(db, table_id, operations, now)
            if held is not None:
                raise TableBlocked(f"{runtime.identifier} is {held.words}", hint="Try again when it has expired.")
            if BlockedOperation.OPTIMIZE in operations:
                under_way = (one for one in processes.list_active_of(db, table_id) if one.status not in IN_NO_LANE)
                active = next(under_way, None)
                if active is not None:
                    raise TableBusy(
                        f"process {active.process_id} ({active.type}, {active.status}) is active on "
                        f"{runtime.identifier}",
                        hint=f"Wait for its end, or cancel it while it runs: amoro process cancel {active.process_id}",
                    )
                if runtime.status is OptimizingStatus.PLANNING:
                    raise TableBusy(f"table {runtime.identifier} is {runtime.status}", hint="Try again later.")
            actions.remove_expired_blockers(db, now)
            blocker = Blocker(uuid7(now), table_id, operations, now, now + duration, duration, reason)
            return _named(db, actions.add_blocker(db, blocker))

        table_blocker = self.store.write(take)
        log.info(
            "blocker.taken",
            blocker=table_blocker.blocker.blocker_id,
            table=str(table_blocker.table),
            operations=sorted(operations),
            until=table_blocker.blocker.expires_at.isoformat(),
        )
        return table_blocker

    def renew(self, blocker_id: str, held_for: timedelta | None = None) -> TableBlocker:
        """Extend the blocker from now, by its original duration or the given one. The id may be a prefix.

        Raises BlockerNotFound for one that was released or has expired: the blocked work may have begun since.
        """
        duration = None if held_for is None else _checked(held_for)

        def lengthen(db: Connection) -> TableBlocker:
            now = self.clock()
            held = actions.find_blocker_by_part(db, blocker_id, now)
            longer = duration or held.held_for
            return _named(db, actions.save_blocker(db, replace(held, expires_at=now + longer, held_for=longer)))

        return self.store.write(lengthen)

    def find(self, blocker_id: str) -> TableBlocker:
        """The active blocker with that id, which may be a prefix. Raises BlockerNotFound."""
        return self.store.read(lambda db: _named(db, actions.find_blocker_by_part(db, blocker_id, self.clock())))

    def release(self, blocker_id: str) -> TableBlocker:
        """End the blocker, and return it. The id may be a prefix. Raises BlockerNotFound."""

        def drop(db: Connection) -> TableBlocker:
            held = actions.find_blocker_by_part(db, blocker_id, self.clock())
            actions.remove_blocker(db, held.blocker_id)
            return _named(db, held)

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
            return page.mapped(lambda held: _named(db, held))

        return self.store.read(read)

    def blocked_from(self, operation: BlockedOperation) -> frozenset[int]:
        """The tables on which the operation is blocked now."""
        held = self.store.read(lambda db: actions.list_blockers(db, self.clock()))
        return frozenset(blocker.table_id for blocker in held if operation in blocker.operations)

    def trim(self) -> int:
        """Delete expired blockers, and return their number."""
        return self.store.write(lambda db: actions.remove_expired_blockers(db, self.clock()))


def _named(db: Connection, blocker: Blocker) -> TableBlocker:
    return TableBlocker(blocker, tables.get(db, blocker.table_id).identifier)


def _checked(held_for: timedelta) -> timedelta:
    if not timedelta(0) < held_for <= LONGEST_HOLD:
        raise InvalidArgument(
            f"a blocker of {held_for} is not possible: it lasts at most {LONGEST_HOLD}",
            hint="Take a shorter one, and renew it before it ends.",
        )
    return held_for
