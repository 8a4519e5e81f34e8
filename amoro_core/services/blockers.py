"""Blockers, which keep kinds of work off a table for a while."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.errors import InvalidArgument, TableBlocked, TableBusy
from amoro_core.logger import get_logger
from amoro_core.model.paging import Page, Window, cut, page_limit
from amoro_core.model.processes import IN_NO_LANE, uuid7
from amoro_core.model.tables import LONGEST_HOLD, BlockedOperation, Blocker, OptimizingStatus, TableIdentifier
from amoro_core.store import actions, processes, tables
from amoro_core.store.database import Connection, Store

log = get_logger("amoro.blockers")


@dataclass(frozen=True, slots=True)
class HeldBlocker:
    """A blocker with the name of its table."""

    blocker: Blocker
    table: TableIdentifier


class BlockerService:
    """Blockers of all tables.

    Taking a blocker and storing a plan are decided in writes of the same store, so that a table never has both a
    blocker of optimizing and a process.
    """

    def __init__(self, store: Store, clock: Callable[[], datetime], held_for: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._held_for = held_for

    def block(
        self,
        table_id: int,
        operations: frozenset[BlockedOperation],
        held_for: timedelta | None = None,
        reason: str = "",
    ) -> HeldBlocker:
        """A new blocker against the operations.

        Raises TableBlocked while another one is held against any of them, TableBusy for optimizing while a process
        is planned or active on the table, TableNotFound, and InvalidArgument for no operation or a time that is not
        above zero and at most a day.
        """
        if not operations:
            raise InvalidArgument(
                "a blocker needs at least one operation", hint=f"One of: {', '.join(BlockedOperation)}."
            )
        duration = _checked(held_for or self._held_for)

        def take(db: Connection) -> HeldBlocker:
            now = self._clock()
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
            made = Blocker(uuid7(now), table_id, operations, now, now + duration, duration, reason)
            return HeldBlocker(actions.add_blocker(db, made), runtime.identifier)

        taken = self._store.write(take)
        log.info(
            "blocker.taken",
            blocker=taken.blocker.blocker_id,
            table=str(taken.table),
            operations=sorted(operations),
            until=taken.blocker.expires_at.isoformat(),
        )
        return taken

    def renew(self, blocker_id: str, held_for: timedelta | None = None) -> HeldBlocker:
        """Extend the blocker, counted from now, by its original duration or the given one. The id may be a prefix.

        Raises BlockerNotFound for one that was released or has expired: the blocked work may have begun since.
        """
        duration = None if held_for is None else _checked(held_for)

        def lengthen(db: Connection) -> HeldBlocker:
            now = self._clock()
            held = actions.find_blocker_by_prefix(db, blocker_id, now)
            longer = duration or held.held_for
            renewed = actions.save_blocker(db, replace(held, expires_at=now + longer, held_for=longer))
            return HeldBlocker(renewed, tables.get(db, held.table_id).identifier)

        return self._store.write(lengthen)

    def find(self, blocker_id: str) -> HeldBlocker:
        """The active blocker with that id, which may be a prefix. Raises BlockerNotFound."""

        def read(db: Connection) -> HeldBlocker:
            held = actions.find_blocker_by_prefix(db, blocker_id, self._clock())
            return HeldBlocker(held, tables.get(db, held.table_id).identifier)

        return self._store.read(read)

    def release(self, blocker_id: str) -> HeldBlocker:
        """End the blocker, and return it. The id may be a prefix. Raises BlockerNotFound."""

        def drop(db: Connection) -> HeldBlocker:
            held = actions.find_blocker_by_prefix(db, blocker_id, self._clock())
            actions.remove_blocker(db, held.blocker_id)
            return HeldBlocker(held, tables.get(db, held.table_id).identifier)

        released = self._store.write(drop)
        log.info("blocker.released", blocker=released.blocker.blocker_id, table=str(released.table))
        return released

    def list_active(self, table_id: int | None = None) -> list[HeldBlocker]:
        """Active blockers, of one table or all, oldest first."""
        return self._store.read(
            lambda db: [
                HeldBlocker(held, tables.get(db, held.table_id).identifier)
                for held in actions.list_blockers(db, self._clock(), table_id)
            ]
        )

    def page(self, table_id: int | None, window: Window) -> Page[HeldBlocker]:
        """Active blockers after an id, of one table or all, oldest first: their ids begin with when they were taken."""

        def read(db: Connection) -> Page[HeldBlocker]:
            now, most = self._clock(), page_limit(window.limit)
            found = actions.list_blocker_page(db, now, table_id, window.after, most + 1)
            page = cut(found, most, actions.count_blockers(db, now, table_id), lambda held: held.blocker_id)
            return page.mapped(lambda held: HeldBlocker(held, tables.get(db, held.table_id).identifier))

        return self._store.read(read)

    def blocked_from(self, operation: BlockedOperation) -> frozenset[int]:
        """The tables on which the operation is blocked now."""
        held = self._store.read(lambda db: actions.list_blockers(db, self._clock()))
        return frozenset(blocker.table_id for blocker in held if operation in blocker.operations)

    def trim(self) -> int:
        """Delete expired blockers, and return their number."""
        return self._store.write(lambda db: actions.remove_expired_blockers(db, self._clock()))


def _checked(held_for: timedelta) -> timedelta:
    if not timedelta(0) < held_for <= LONGEST_HOLD:
        raise InvalidArgument(
            "a blocker lasts longer than 0 seconds and at most 1 day", hint="Renew it before it ends."
        )
    return held_for
