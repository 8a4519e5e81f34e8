"""Leases: somebody's word that a snapshot is needed for a while, which expiry keeps."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.expiring import NAME as EXPIRY
from amoro_core.errors import AmoroError, InvalidArgument, LeaseNotFound, TableBusy
from amoro_core.events import get_logger
from amoro_core.formats.port import Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.commits import SnapshotsGone
from amoro_core.model.ids import uuid7
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import TableIdentifier, TableRuntime
from amoro_core.store import commits, processes, snapshot_leases, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.snapshot_leases import SnapshotLease

log = get_logger("amoro.leasing")

LONGEST = timedelta(days=7)  # from each renewal
USUAL = timedelta(days=1)
_LONGEST_HOLDER = 255  # characters


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease, with the table that it is about."""

    lease: SnapshotLease
    table: TableIdentifier


class LeaseService:
    """Leases of the snapshots of all tables."""

    def __init__(self, store: Store, tables_of: Tables, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock

    def take(
        self, runtime: TableRuntime, snapshot_id: int, holder: str, *, since: bool = False, held_for: timedelta = USUAL
    ) -> HeldLease:
        """Keep a snapshot, with its chain to the branch's head; with `since` all newer ones as well.

        Raises InvalidArgument for a snapshot that the table does not have, a holder without a name, or a time beyond
        a week; TableBusy while snapshots are being removed, or may be; and what loading the table raises.
        """
        _checked(held_for)
        if not holder.strip() or len(holder) > _LONGEST_HOLDER:
            raise InvalidArgument(
                f"{holder!r} is no holder", hint=f"Say who needs it, in at most {_LONGEST_HOLDER} characters."
            )
        table = self._having(runtime.identifier, snapshot_id)

        def keep(db: Connection) -> HeldLease:
            now = self._clock()
            _refuse_expiring(db, runtime, snapshot_id)
            snapshot_leases.remove_expired(db, now)
            uuid = table.facts.uuid
            made = SnapshotLease(
                uuid7(now), runtime.table_id, uuid, snapshot_id, since, holder.strip(), now, now + held_for
            )
            snapshot_leases.add(db, made)
            return HeldLease(made, runtime.identifier)

        taken = self._store.write(keep)
        try:
            self._having(runtime.identifier, snapshot_id)  # it may have gone before anybody could know of the lease
        except AmoroError:
            self._store.write(lambda db: snapshot_leases.remove(db, taken.lease.lease_id))
            raise
        log.info("lease.taken", lease=taken.lease.lease_id, table=str(taken.table), snapshot=snapshot_id)
        return taken

    def _having(self, identifier: TableIdentifier, snapshot_id: int) -> Readable:
        """The table as it is now, which has the snapshot. Raises InvalidArgument."""
        table = with_roles(self._tables.open(identifier), (Role.READ,), "leasing a snapshot")
        if all(one.snapshot_id != snapshot_id for one in table.snapshots()):
            raise InvalidArgument(
                f"{identifier} has no snapshot {snapshot_id}", hint=f"See: amoro table snapshots {identifier}"
            )
        return table

    def renew(self, prefix: str, held_for: timedelta = USUAL) -> HeldLease:
        """The lease, which holds so long from now on.

        Raises LeaseNotFound for one that has ended: its snapshot may have gone.
        """
        _checked(held_for)

        def lengthen(db: Connection) -> HeldLease:
            found = self._find(db, prefix)
            renewed = replace(found.lease, expires_at=self._clock() + held_for)
            snapshot_leases.renew(db, renewed.lease_id, renewed.expires_at)
            return HeldLease(renewed, found.table)

        return self._store.write(lengthen)

    def release(self, prefix: str) -> HeldLease:
        """End a lease; what it was. Raises LeaseNotFound."""

        def drop(db: Connection) -> HeldLease:
            found = self._find(db, prefix)
            snapshot_leases.remove(db, found.lease.lease_id)
            return found

        return self._store.write(drop)

    def list_leases(self, table_id: int | None = None) -> list[HeldLease]:
        """Those that hold now, the next to end first; of one table or all."""
        return self._store.read(
            lambda db: [
                HeldLease(one, tables.get(db, one.table_id).identifier)
                for one in snapshot_leases.list_leases(db, self._clock(), table_id)
            ]
        )

    def _find(self, db: Connection, prefix: str) -> HeldLease:
        found = [one for one in snapshot_leases.find(db, prefix) if one.expires_at > self._clock()]
        if not prefix or not found:
            raise LeaseNotFound(f"no lease {prefix!r} holds: it was released or has expired")
        if len(found) > 1:
            raise InvalidArgument(f"more than one lease begins with {prefix!r}", hint="Give more characters.")
        return HeldLease(found[0], tables.get(db, found[0].table_id).identifier)


def _checked(held_for: timedelta) -> None:
    if not timedelta() < held_for <= LONGEST:
        raise InvalidArgument(
            f"a lease of {held_for.total_seconds():g} s is not possible",
            hint=f"It lasts at most {LONGEST.days} days; renew it in time.",
        )


def _refuse_expiring(db: Connection, runtime: TableRuntime, snapshot_id: int) -> None:
    """Raise TableBusy while snapshots are being removed: what was planned before the lease does not know of it.

    Also for a snapshot that an attempt may have removed of which nobody knows.
    """
    for process in processes.list_active_of(db, runtime.table_id, runtime.uuid):
        if process.type == EXPIRY and process.status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING):
            raise TableBusy(
                f"process {process.process_id} is removing snapshots of {runtime.identifier}",
                hint="Try again in a moment.",
            )
        for attempt in commits.list_for_process(db, process.process_id):
            gone = attempt.evidence
            if attempt.is_open and isinstance(gone, SnapshotsGone) and snapshot_id in gone.snapshot_ids:
                raise TableBusy(
                    f"process {process.process_id} may be removing snapshot {snapshot_id}: its commit was sent",
                    hint=f"Wait for its end: amoro process show {process.process_id}",
                )
