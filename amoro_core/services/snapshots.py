"""Snapshots of a table compared, what the next expiry takes, and leases."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import Action
from amoro_core.actions.snapshots import NAME as EXPIRY
from amoro_core.errors import (
    AmoroError,
    CommitConflict,
    CommitUnknown,
    Fenced,
    InvalidArgument,
    LeaseNotFound,
    StoreFailed,
    TableBusy,
    TableNotFound,
    TableRefused,
)
from amoro_core.formats.ports import AnyTable, Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.maintenance.snapshots import Comparison, RetentionConfig, SnapshotSelection, Target, compare, select
from amoro_core.model.commits import SnapshotsRemoved
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.paging import ALL, Page, Window, cut, opened_pair, page_limit, sealed
from amoro_core.model.processes import ProcessStatus, pick, uuid7
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import History, TableIdentifier, TableRuntime
from amoro_core.store import processes, snapshot_leases, tables
from amoro_core.store.database import Connection, Store
from amoro_core.store.snapshot_leases import SnapshotLease
from amoro_core.transactions.maintenance_schedule import surroundings


@dataclass
class SnapshotService:
    """Snapshots from a table's metadata; reads no manifest and changes nothing."""

    store: Store
    tables: Tables
    find_action: Callable[[str], Action]
    clock: Callable[[], datetime]

    def compare(self, identifier: TableIdentifier, before: int, after: int) -> Comparison:
        """Compare two snapshots by their ids.

        Raises InvalidArgument for an unknown id, TableNotFound, CatalogUnavailable, TableRefused.
        """
        table = with_roles(self.tables.open(identifier), (Role.READ,), "reading it")
        snapshots = {snapshot_facts.snapshot_id: snapshot_facts for snapshot_facts in table.snapshots()}
        for unknown in {before, after} - snapshots.keys():
            raise InvalidArgument(f"the table has no snapshot {unknown}", hint="See: amoro table snapshots TABLE")
        return compare(tuple(snapshots.values()), snapshots[before], snapshots[after])

    def retention(self, identifier: TableIdentifier) -> tuple[History, SnapshotSelection]:
        """The snapshots and references, and which of them the next expiry would take.

        Raises TableNotFound, CatalogUnavailable, TableRefused (a malformed property, a format without expiry).
        """
        table = with_roles(self.tables.open(identifier), (Role.EXPIRE,), "reading it")
        properties = self.tables.effective_properties(identifier.catalog, table)
        config, keep = parse_into(RetentionConfig, properties), parse_into(MaintenanceConfig, properties).undo_keep
        now = self.clock()

        def read(db: Connection) -> Surroundings:
            runtime = tables.find(db, identifier)
            table_id = runtime.table_id if runtime else 0
            return surroundings(db, table_id, self.find_action, now, undo_keep=keep) if table_id else Surroundings()

        context, history = self.store.read(read), table.history()
        target = Target(pinned=dict(context.pinned), since=dict(context.since))
        return history, select(history.snapshots, history.refs, config, target, now)


log = get_logger("amoro.leasing")

LONGEST = timedelta(days=7)  # from each renewal
USUAL = timedelta(days=1)
#: Duration of a lease that our own reading takes and renews: the most by which it outlives a crash.
READING = timedelta(hours=1)
#: How long such a reading waits for an expiry in progress, and how often it checks, in seconds.
_WAIT_S, _PAUSE_S = 60.0, 0.5
#: Attempts to commit a tag while others commit.
_TRIES = 20
_TAGGING = frozenset({Role.READ, Role.COMMIT, Role.MAINTAIN, Role.EXPIRE})
_LONGEST_HOLDER = 255  # characters


@dataclass(frozen=True, slots=True)
class TableLease:
    """A lease, with the table that it is about."""

    lease: SnapshotLease
    table: TableIdentifier


@dataclass
class LeaseService:
    """Leases of the snapshots of all tables."""

    store: Store
    tables: Tables
    clock: Callable[[], datetime]
    wait: Callable[[float], None] = time.sleep

    def take(
        self,
        runtime: TableRuntime,
        snapshot_id: int,
        holder: str,
        *,
        since: bool = False,
        held_for: timedelta = USUAL,
        as_tag: bool = False,
    ) -> TableLease:
        """Keep a snapshot and its chain to the branch's head; with `since`, also all newer ones.

        `as_tag`: also tag the snapshot in the table until the lease ends, which expiry by other tools respects. Raises
        InvalidArgument for an unknown snapshot, an empty holder, or a time beyond a week; TableBusy while snapshots are
        being removed, or may be; errors of loading the table, and of committing the tag: CommitUnknown if it may exist.
        """
        _checked(held_for)
        if since and as_tag:
            raise InvalidArgument(
                "a tag keeps one snapshot, and a lease since a snapshot all newer ones",
                hint="Take --as-tag with --snapshot.",
            )
        if not holder.strip() or len(holder) > _LONGEST_HOLDER:
            raise InvalidArgument(
                f"invalid holder {holder!r}", hint=f"Say who needs it, in at most {_LONGEST_HOLDER} characters."
            )
        table = self._having(runtime.identifier, snapshot_id)

        def keep(db: Connection) -> TableLease:
            now = self.clock()
            _refuse_expiring(db, runtime, snapshot_id)
            snapshot_leases.remove_expired(db, now)
            uuid = table.facts.uuid
            lease_id, ends = uuid7(now), now + held_for
            tag = f"lease-{lease_id}" if as_tag else ""
            lease = SnapshotLease(lease_id, runtime.table_id, uuid, snapshot_id, since, holder.strip(), now, ends, tag)
            snapshot_leases.add(db, lease)
            return TableLease(lease, runtime.identifier)

        table_lease = self.store.write(keep)
        try:
            self._having(runtime.identifier, snapshot_id)  # it may have been removed before the lease was visible
            if as_tag:
                self._set_tag(table_lease)
        except AmoroError:
            self.store.write(lambda db: snapshot_leases.remove(db, table_lease.lease.lease_id))
            raise
        log.info("lease.taken", lease=table_lease.lease.lease_id, table=str(table_lease.table), snapshot=snapshot_id)
        return table_lease

    @contextmanager
    def reading(
        self, identifier: TableIdentifier, snapshot_ids: Collection[int], holder: str, is_cancelled: Callable[[], bool]
    ) -> Iterator[Callable[[], None]]:
        """Keep the snapshots while the block reads them, by one lease on the oldest, which also keeps newer ones.

        Yields a function that renews the lease, to be called regularly. No lease is taken on a table that is unknown
        here, since its snapshots are not expired here, nor if the state is read-only. Raises like `take`, but waits a
        moment for an expiry to end; renewing raises LeaseNotFound if the lease was released.
        """
        runtime = None if self.store.only_reads else self.store.read(lambda db: tables.find(db, identifier))
        if runtime is None:
            yield lambda: None  # there is no lease to renew
            return
        lease = self._take_after_expiry(runtime, snapshot_ids, holder, is_cancelled)
        renewed_at = lease.created_at

        def keep() -> None:
            nonlocal renewed_at
            if self.clock() - renewed_at >= READING / 2:
                renewed_at = self.clock()
                self.renew(lease.lease_id, READING)

        try:
            yield keep
        finally:
            with suppress(LeaseNotFound, StoreFailed, Fenced):
                self.release(lease.lease_id)

    def _take_after_expiry(
        self, runtime: TableRuntime, snapshot_ids: Collection[int], holder: str, is_cancelled: Callable[[], bool]
    ) -> SnapshotLease:
        table = with_roles(self.tables.open(runtime.identifier), (Role.READ,), "leasing a snapshot")
        numbers = {snapshot_facts.snapshot_id: snapshot_facts.sequence_number for snapshot_facts in table.snapshots()}
        oldest = min(snapshot_ids, key=lambda item: numbers.get(item, 0))
        waits = [_PAUSE_S] * round(_WAIT_S / _PAUSE_S)
        while True:
            try:
                return self.take(runtime, oldest, holder, since=len(snapshot_ids) > 1, held_for=READING).lease
            except TableBusy:
                if not waits or is_cancelled():
                    raise
                self.wait(waits.pop())

    def _having(self, identifier: TableIdentifier, snapshot_id: int) -> Readable:
        """The present table, which has the snapshot. Raises InvalidArgument."""
        table = with_roles(self.tables.open(identifier), (Role.READ,), "leasing a snapshot")
        if all(snapshot_facts.snapshot_id != snapshot_id for snapshot_facts in table.snapshots()):
            raise InvalidArgument(
                f"{identifier} has no snapshot {snapshot_id}", hint=f"See: amoro table snapshots {identifier}"
            )
        return table

    def renew(self, prefix: str, held_for: timedelta = USUAL) -> TableLease:
        """Extend the lease and its tag, counted from now.

        Raises LeaseNotFound for one that has ended: its snapshot may be gone; for a tag, like `take`.
        """
        _checked(held_for)
        held = self.store.read(lambda db: self._find(db, prefix))
        if held.lease.tag:
            self._set_tag(TableLease(replace(held.lease, expires_at=self.clock() + held_for), held.table))

        def lengthen(db: Connection) -> TableLease:
            table_lease = self._find(db, held.lease.lease_id)
            renewed = replace(table_lease.lease, expires_at=self.clock() + held_for)
            snapshot_leases.renew(db, renewed.lease_id, renewed.expires_at)
            return TableLease(renewed, table_lease.table)

        return self.store.write(lengthen)

    def release(self, prefix: str) -> TableLease:
        """End a lease, after removing its tag, and return it. Raises LeaseNotFound; for a tag, like `take`."""
        table_lease = self.store.read(lambda db: self._find(db, prefix))
        if table_lease.lease.tag:
            with suppress(TableNotFound):  # its tags are gone with it
                self._remove_tag(table_lease)

        def drop(db: Connection) -> TableLease:
            result = self._find(db, table_lease.lease.lease_id)
            snapshot_leases.remove(db, result.lease.lease_id)
            return result

        return self.store.write(drop)

    def find(self, prefix: str) -> TableLease:
        """The lease that holds with that id, or whose id begins or ends so. Raises LeaseNotFound, InvalidArgument."""
        return self.store.read(lambda db: self._find(db, prefix))

    def page(self, table_id: int | None = None, window: Window = ALL) -> Page[TableLease]:
        """Active leases, the next to expire first; of one table or all.

        `after` is the `next` of the page before. Raises InvalidArgument for another one.
        """
        most, scope = page_limit(window.limit), ("leases", table_id)
        after = opened_pair(window.after, scope)

        def read(db: Connection) -> Page[TableLease]:
            now = self.clock()
            leases = snapshot_leases.list_page(db, now, table_id, after, most + 1)
            total = snapshot_leases.count(db, now, table_id)
            page = cut(leases, most, total, lambda lease: sealed(scope, snapshot_leases.place_of(lease)))
            names = tables.names(db, {lease.table_id for lease in page.items})
            return page.mapped(lambda lease: TableLease(lease, names[lease.table_id]))

        return self.store.read(read)

    def _set_tag(self, table_lease: TableLease) -> None:
        """Create the lease's tag, or extend it to the end of the lease."""
        lease = table_lease.lease

        def stage(table: AnyTable) -> bytes:
            return table.stage_tag(lease.tag, lease.snapshot_id, _age_ms(table, lease), again=True)

        def is_set(table: AnyTable) -> bool:
            ages = {ref.name: ref.max_ref_age for ref in table.history(anew=True).refs}
            return ages.get(lease.tag) == timedelta(milliseconds=_age_ms(table, lease))

        self._commit(table_lease, stage, is_set)

    def _remove_tag(self, table_lease: TableLease) -> None:
        tag = table_lease.lease.tag

        def is_removed(table: AnyTable) -> bool:
            return all(ref.name != tag for ref in table.history(anew=True).refs)

        def stage(table: AnyTable) -> bytes | None:
            return None if is_removed(table) else table.stage_expiry(frozenset(), [tag], clean=False)[0]

        self._commit(table_lease, stage, is_removed)

    def _commit(
        self, table_lease: TableLease, stage: Callable[[AnyTable], bytes | None], landed: Callable[[AnyTable], bool]
    ) -> None:
        """Commit what `stage` makes for the present table, until it has `landed`; None: there is nothing to do.

        Sending it twice is harmless. Raises TableNotFound, also for another table of the name, TableBusy,
        CommitConflict, CommitUnknown, and errors of staging and sending.
        """
        self._refuse_unknown(table_lease.lease)
        refusal = self.tables.formats.commits_refused(self.tables.catalog(table_lease.table.catalog))
        if refusal is not None:
            raise TableRefused(refusal, reason="catalog")
        for _ in range(_TRIES):
            table = with_roles(self.tables.open(table_lease.table), _TAGGING, "a lease as a tag")
            table.refuse_unsupported()
            if table.facts.uuid != table_lease.lease.table_uuid:
                name = table_lease.table
                raise TableNotFound(f"{name} is another table by now: UUID {table.facts.uuid}", table=name)
            payload = stage(table)
            if payload is None:
                return
            self.store.require_own()
            try:
                table.send(payload)
            except CommitConflict:
                continue
            except CommitUnknown as error:
                if landed(table):
                    return
                lease = table_lease.lease
                until = f"until {lease.expires_at:%Y-%m-%d %H:%M} UTC"
                raise CommitUnknown(f"{error.message}; tag {lease.tag} may be there, {until}") from error
            if landed(table):  # the answer to a change of the age alone does not tell
                return
        raise CommitConflict(f"other writers were faster {_TRIES} times in a row", hint="Try again.")

    def _refuse_unknown(self, lease: SnapshotLease) -> None:
        """Raise TableBusy while it is unknown whether a commit of ours landed: its evidence must stay."""
        for process in self.store.read(lambda db: processes.list_active_of(db, lease.table_id, lease.table_uuid)):
            if process.status == ProcessStatus.COMMIT_UNKNOWN:
                raise TableBusy(
                    f"it is not known whether the commit of process {process.process_id} was applied",
                    hint=f"Wait for its end: amoro process show {process.process_id}",
                )

    def _find(self, db: Connection, text: str) -> TableLease:
        match = pick(text, snapshot_leases.list_leases(db, self.clock()), "a lease", lambda item: (item.lease_id,))
        if match is None:
            raise LeaseNotFound(f"no lease {text!r} holds: it was released or has expired")
        return TableLease(match, tables.get(db, match.table_id).identifier)


def _age_ms(table: AnyTable, lease: SnapshotLease) -> int:
    """The age of the lease's snapshot when the lease ends, which is the maximum age of the tag."""
    facts = next((snapshot for snapshot in table.snapshots() if snapshot.snapshot_id == lease.snapshot_id), None)
    if facts is None:
        raise CommitConflict(f"snapshot {lease.snapshot_id} is not in the table any more")
    return max(1, round((lease.expires_at - facts.committed_at) / timedelta(milliseconds=1)))


def _checked(held_for: timedelta) -> None:
    if not timedelta() < held_for <= LONGEST:
        raise InvalidArgument(
            f"a lease of {held_for.total_seconds():g} s is not possible",
            hint=f"It lasts at most {LONGEST.days} days; renew it in time.",
        )


def _refuse_expiring(db: Connection, runtime: TableRuntime, snapshot_id: int) -> None:
    """Raise TableBusy while snapshots are being removed: a plan made before the lease ignores it.

    Also for a snapshot that a commit attempt with an unknown outcome may have removed.
    """
    for process in processes.list_active_of(db, runtime.table_id, runtime.uuid):
        if process.type == EXPIRY and process.status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING):
            raise TableBusy(
                f"process {process.process_id} is removing snapshots of {runtime.identifier}",
                hint="Try again in a moment.",
            )
        for attempt in processes.list_commits(db, process.process_id):
            evidence = attempt.evidence
            if attempt.is_open and isinstance(evidence, SnapshotsRemoved) and snapshot_id in evidence.snapshot_ids:
                raise TableBusy(
                    f"process {process.process_id} may be removing snapshot {snapshot_id}: its commit was sent",
                    hint=f"Wait for its end: amoro process show {process.process_id}",
                )
