"""Operations of maintenance: actions, leases, trash, snapshots, format upgrades."""

import json
from dataclasses import replace

from amoro_core.admin.context import Call, Services, duration, milliseconds
from amoro_core.admin.processes import process_summary
from amoro_core.maintenance.snapshots import SnapshotTotals
from amoro_core.model.maintenance import Options
from amoro_core.model.paging import Window
from amoro_core.model.tables import SnapshotFacts, TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb
from amoro_core.services.maintenance import KnownAction, Maintained
from amoro_core.services.snapshots import USUAL, HeldLease
from amoro_core.services.trash import Trash, require_confirmed

#: The name of every undo action in answers.
UNDO = "undo"


def preview_maintenance(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """What the action would do on the table now."""
    identifier = services.catalogs.resolve(request.table)
    made = services.maintaining.preview(identifier, request.action, _options(request))
    return _answer(identifier, request.action, made)


def maintain_table(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """Begin a process of the action on the table, if there is something to do."""
    return _begin(services, request, _options(request))


def confirm_maintenance(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """The same, overriding breakers; or resume a process that a breaker holds."""
    require_confirmed(services.catalogs.resolve(request.table), request.confirm)
    return _begin(services, request, replace(_options(request), confirmed=True))


def preview_undo(services: Services, request: pb.UndoRequest, call: Call) -> pb.MaintainTableResponse:
    """The plan that would undo the process."""
    undone = process_summary(services, request.process_id)
    return _answer(undone.table, UNDO, services.maintaining.preview_undo(undone.process.process_id))


def undo_process(services: Services, request: pb.UndoRequest, call: Call) -> pb.MaintainTableResponse:
    """Start a process that undoes another one."""
    undone = process_summary(services, request.process_id)
    return _answer(undone.table, UNDO, services.maintaining.undo(undone.process.process_id))


def list_actions(services: Services, request: pb.ListActionsRequest, call: Call) -> pb.ListActionsResponse:
    """Every action on the table: on or off and by whose word, last, next, what runs."""
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    known = services.known_actions.list_actions(runtime)
    return pb.ListActionsResponse(table=str(runtime.identifier), actions=map(_action, known))


def _begin(services: Services, request: pb.MaintainTableRequest, options: Options) -> pb.MaintainTableResponse:
    services.maintaining.require(request.action)
    runtime = services.tables.require_maintainable(services.catalogs.resolve(request.table))
    made = services.maintaining.begin(runtime.table_id, request.action, trigger="request", options=options)
    return _answer(runtime.identifier, request.action, made)


def _options(request: pb.MaintainTableRequest) -> Options:
    return Options(
        older_than=duration(request.older_than_ms),
        retain_last=request.retain_last or None,
        snapshot_ids=tuple(request.snapshot_ids),
        locations=tuple(request.locations),
        file_list=request.file_list,
    )


def _answer(identifier: TableIdentifier, action: str, made: Maintained) -> pb.MaintainTableResponse:
    return pb.MaintainTableResponse(
        table=str(identifier),
        action=action,
        is_due=made.plan is not None,
        process_id=made.process_id,
        reason=made.plan.reason if made.plan else made.reason,
        due_ms=milliseconds(made.due_at),
        tasks=len(made.plan.tasks) if made.plan else 0,
        held=made.held,
        document=json.dumps(dict(made.plan.document)) if made.plan else "",
    )


def _action(known: KnownAction) -> pb.TableAction:
    record = known.record
    return pb.TableAction(
        action=record.action,
        is_on=known.consent.is_given,
        by=known.consent.reason,
        last_ms=milliseconds(record.last_at),
        next_ms=milliseconds(known.due_at),
        reason=record.reason,
        failures=record.failures,
        retry_ms=milliseconds(record.retry_at),
        process_id=known.process.process_id if known.process else "",
        is_due=known.is_due,
        paused_ms=milliseconds(record.paused_at),
        paused_for=record.paused_for,
        process_status=str(known.process.status) if known.process else "",
    )


def take_lease(services: Services, request: pb.TakeLeaseRequest, call: Call) -> pb.Lease:
    """Keep a snapshot for a time."""
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    held_for = duration(request.hold_ms) or USUAL
    holder = request.holder or call.caller
    taken = services.leasing.take(
        runtime,
        request.snapshot_id,
        holder,
        since=request.since,
        held_for=held_for,
        as_tag=request.as_tag,
    )
    return _message(taken)


def renew_lease(services: Services, request: pb.RenewLeaseRequest, call: Call) -> pb.Lease:
    """Extend the lease, counted from now."""
    return _message(services.leasing.renew(request.lease_id, duration(request.hold_ms) or USUAL))


def release_lease(services: Services, request: pb.ReleaseLeaseRequest, call: Call) -> pb.Lease:
    """End the lease."""
    return _message(services.leasing.release(request.lease_id))


def list_leases(services: Services, request: pb.ListLeasesRequest, call: Call) -> pb.ListLeasesResponse:
    """Active leases, the next to expire first."""
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    page = services.leasing.page(table_id, Window(request.limit, request.after))
    return pb.ListLeasesResponse(leases=map(_message, page.items), next=page.next, total=page.total)


def _message(held: HeldLease) -> pb.Lease:
    lease = held.lease
    return pb.Lease(
        lease_id=lease.lease_id,
        table=str(held.table),
        snapshot_id=lease.snapshot_id,
        since=lease.is_since,
        holder=lease.holder,
        created_ms=milliseconds(lease.created_at),
        expires_ms=milliseconds(lease.expires_at),
        tag=lease.tag,
    )


def list_trash(services: Services, request: pb.ListTrashRequest, call: Call) -> pb.ListTrashResponse:
    """Condemned files by process, the next to be deleted first."""
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    page = services.trash.page(table_id, Window(request.limit, request.after))
    return pb.ListTrashResponse(trash=map(_trash_message, page.items), next=page.next, total=page.total)


def show_trash(services: Services, request: pb.ShowTrashRequest, call: Call) -> pb.ShowTrashResponse:
    """The files that a process has condemned."""
    shown = services.trash.show(request.process_id, Window(request.limit, request.after))
    page = shown.files
    files = (
        pb.CondemnedFile(
            path=file.path,
            kind=file.kind.value,
            size_bytes=file.size_bytes or 0,
            modified_ms=milliseconds(file.modified_at),
            reason=file.reason,
            status=status.value,
            moved_to=place,
        )
        for file, status, place in page.items
    )
    return pb.ShowTrashResponse(trash=_trash_message(shown.trash), files=files, next=page.next, total=page.total)


def restore_trash(services: Services, request: pb.RestoreTrashRequest, call: Call) -> pb.Trash:
    """Restore the files that a process has condemned."""
    return _trash_message(services.trash.restore(request.process_id))


def hurry_trash(services: Services, request: pb.HurryTrashRequest, call: Call) -> pb.HurryTrashResponse:
    """Make all condemned files of the table due for the next emptying."""
    identifier = services.catalogs.resolve(request.table)
    require_confirmed(identifier, request.confirm)
    files, size = services.trash.make_due_now(services.tables.id_of(identifier))
    return pb.HurryTrashResponse(table=str(identifier), files=files, bytes=size)


def _trash_message(trash: Trash) -> pb.Trash:
    return pb.Trash(
        process_id=trash.process.process_id,
        table=str(trash.table),
        table_id=trash.process.table_id,
        action=trash.process.type,
        files=trash.files,
        bytes=trash.bytes,
        purge_ms=milliseconds(trash.purge_at),
        deleting_files=trash.deleting_files,
    )


def compare_snapshots(
    services: Services, request: snapshots_pb.CompareSnapshotsRequest, call: Call
) -> snapshots_pb.SnapshotComparison:
    """The two snapshots, and how one led to the other."""
    identifier = services.catalogs.resolve(request.table)
    found = services.snapshots.compare(identifier, request.before, request.after)
    return snapshots_pb.SnapshotComparison(
        table=str(identifier),
        before=_compared(found.before, found.totals_before),
        after=_compared(found.after, found.totals_after),
        is_ancestor=found.is_ancestor,
        commits=found.commits,
        own_commits=found.own_commits,
    )


def get_retention(services: Services, request: snapshots_pb.GetRetentionRequest, call: Call) -> snapshots_pb.Retention:
    """What the next expiry would decide on each snapshot, branch and tag."""
    identifier = services.catalogs.resolve(request.table)
    found = services.snapshots.retention(identifier)
    stay, go = found.selection.stay, found.selection.go
    fates = [
        snapshots_pb.SnapshotFate(
            snapshot_id=one.snapshot_id,
            committed_ms=milliseconds(one.committed_at),
            goes=one.snapshot_id in go,
            ground="" if one.snapshot_id in go else stay[one.snapshot_id].ground.value,
            reason=go[one.snapshot_id] if one.snapshot_id in go else stay[one.snapshot_id].reason,
        )
        for one in found.history.snapshots
    ]
    refs = [
        snapshots_pb.RefFate(
            name=ref.name,
            snapshot_id=ref.snapshot_id,
            branch=ref.is_branch,
            goes=ref.name in found.selection.refs,
            reason=found.selection.refs.get(ref.name, ""),
        )
        for ref in found.history.refs
    ]
    return snapshots_pb.Retention(
        table=str(identifier), snapshots=fates, refs=refs, going=len(go), staying=found.selection.staying
    )


def _compared(facts: SnapshotFacts, totals: SnapshotTotals) -> snapshots_pb.ComparedSnapshot:
    def told(value: int | None) -> int:
        return -1 if value is None else value

    return snapshots_pb.ComparedSnapshot(
        snapshot_id=facts.snapshot_id,
        committed_ms=milliseconds(facts.committed_at),
        operation=facts.operation,
        totals=snapshots_pb.SnapshotTotals(
            data_files=told(totals.data_files),
            delete_files=told(totals.delete_files),
            records=told(totals.records),
            position_deletes=told(totals.position_deletes),
            equality_deletes=told(totals.equality_deletes),
            bytes=told(totals.bytes),
        ),
    )


def upgrade_table(
    services: Services, request: snapshots_pb.UpgradeTableRequest, call: Call
) -> snapshots_pb.TableUpgrade:
    """Upgrade the table, or with `dry_run` say what that would do."""
    identifier = services.catalogs.resolve(request.table)
    done = services.upgrading.upgrade(identifier, request.format_version, dry_run=request.dry_run)
    return snapshots_pb.TableUpgrade(
        table=str(identifier), before=done.before, after=done.after, is_done=done.is_done, notes=done.notes
    )
