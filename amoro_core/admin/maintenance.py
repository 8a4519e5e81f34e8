"""Operations of maintenance: actions, leases, trash, snapshots, format upgrades."""

import json
from dataclasses import replace

from amoro_core.admin.context import Call, Services, as_message, duration, milliseconds, table_id, table_ids
from amoro_core.admin.processes import process_summary
from amoro_core.maintenance.snapshots import SnapshotTotals
from amoro_core.model.maintenance import Options
from amoro_core.model.paging import Window
from amoro_core.model.principals import is_pattern
from amoro_core.model.tables import SnapshotFacts, TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb
from amoro_core.services.maintenance import ActionStatus, Maintained
from amoro_core.services.snapshots import USUAL, TableLease
from amoro_core.services.trash import Trash, require_confirmed

#: The name of every undo action in answers.
UNDO = "undo"


def preview_maintenance(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """What the action would do on the table now."""
    identifier = services.catalogs.resolve(request.table)
    result = services.maintaining.preview(identifier, request.action, _options(request))
    return _answer(identifier, request.action, result)


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
    """Every action on the table, on or off and why, last, next, what runs; or what is known of it, or of several."""
    if request.known_only or not request.table or is_pattern(request.table):
        stored, total = services.maintaining.list_stored(table_ids(services, request.table), request.limit)
        actions = [_action(status, identifier) for identifier, status in stored]
        return pb.ListActionsResponse(table=request.table, actions=actions, total=total)
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    actions = [_action(item, runtime.identifier) for item in services.maintaining.list_actions(runtime)]
    return pb.ListActionsResponse(table=str(runtime.identifier), actions=actions, total=len(actions))


def _begin(services: Services, request: pb.MaintainTableRequest, options: Options) -> pb.MaintainTableResponse:
    services.maintaining.require(request.action)
    runtime = services.tables.require_maintainable(services.catalogs.resolve(request.table))
    result = services.maintaining.begin(runtime.table_id, request.action, trigger="request", options=options)
    return _answer(runtime.identifier, request.action, result)


def _options(request: pb.MaintainTableRequest) -> Options:
    return Options(
        older_than=duration(request.older_than_ms),
        retain_last=request.retain_last or None,
        snapshot_ids=tuple(request.snapshot_ids),
        locations=tuple(request.locations),
        file_list=request.file_list,
    )


def _answer(identifier: TableIdentifier, action: str, result: Maintained) -> pb.MaintainTableResponse:
    plan = result.plan
    return as_message(
        pb.MaintainTableResponse,
        result,
        table=str(identifier),
        action=action,
        is_due=plan is not None,
        reason=plan.reason if plan else result.reason,
        tasks=len(plan.tasks) if plan else 0,
        document=json.dumps(dict(plan.document)) if plan else "",
    )


def _action(item: ActionStatus, table: TableIdentifier) -> pb.TableAction:
    return as_message(
        pb.TableAction,
        item,
        item.record,
        table=str(table),
        is_on=item.consent.is_given,
        by=item.consent.reason,
        next_ms=milliseconds(item.due_at),
        process_id=item.process.process_id if item.process else "",
        process_status=str(item.process.status) if item.process else "",
    )


def take_lease(services: Services, request: pb.TakeLeaseRequest, call: Call) -> pb.Lease:
    """Keep a snapshot for a time."""
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    lease = services.leasing.take(
        runtime,
        request.snapshot_id,
        request.holder or call.caller,
        since=request.since,
        held_for=duration(request.hold_ms) or USUAL,
        as_tag=request.as_tag,
    )
    return _lease(lease)


def renew_lease(services: Services, request: pb.RenewLeaseRequest, call: Call) -> pb.Lease:
    """Extend the lease, counted from now."""
    return _lease(services.leasing.renew(request.lease_id, duration(request.hold_ms) or USUAL))


def release_lease(services: Services, request: pb.ReleaseLeaseRequest, call: Call) -> pb.Lease:
    """End the lease."""
    return _lease(services.leasing.release(request.lease_id))


def list_leases(services: Services, request: pb.ListLeasesRequest, call: Call) -> pb.ListLeasesResponse:
    """Active leases, the next to expire first."""
    page = services.leasing.page(table_id(services, request.table), Window(request.limit, request.after))
    return pb.ListLeasesResponse(leases=map(_lease, page.items), next=page.next, total=page.total)


def _lease(item: TableLease) -> pb.Lease:
    return as_message(pb.Lease, item, item.lease)


def list_trash(services: Services, request: pb.ListTrashRequest, call: Call) -> pb.ListTrashResponse:
    """Files that wait to be deleted, by process, the next to be deleted first."""
    page = services.trash.page(table_id(services, request.table), Window(request.limit, request.after))
    return pb.ListTrashResponse(trash=map(_trash, page.items), next=page.next, total=page.total)


def show_trash(services: Services, request: pb.ShowTrashRequest, call: Call) -> pb.ShowTrashResponse:
    """The files that a process marked for deletion."""
    trash, page = services.trash.show(request.process_id, Window(request.limit, request.after))
    files = (
        as_message(pb.CondemnedFile, file, status=status.value, moved_to=place) for file, status, place in page.items
    )
    return pb.ShowTrashResponse(trash=_trash(trash), files=files, next=page.next, total=page.total)


def restore_trash(services: Services, request: pb.RestoreTrashRequest, call: Call) -> pb.Trash:
    """Restore the files that a process marked for deletion."""
    return _trash(services.trash.restore(request.process_id))


def hurry_trash(services: Services, request: pb.HurryTrashRequest, call: Call) -> pb.HurryTrashResponse:
    """Make all files of the table's trash due to be deleted."""
    identifier = services.catalogs.resolve(request.table)
    require_confirmed(identifier, request.confirm)
    files, size = services.trash.make_due_now(services.tables.id_of(identifier))
    return pb.HurryTrashResponse(table=str(identifier), files=files, bytes=size)


def _trash(item: Trash) -> pb.Trash:
    return as_message(pb.Trash, item, item.process, action=item.process.type)


def compare_snapshots(
    services: Services, request: snapshots_pb.CompareSnapshotsRequest, call: Call
) -> snapshots_pb.SnapshotComparison:
    """The two snapshots, and how one led to the other."""
    identifier = services.catalogs.resolve(request.table)
    result = services.snapshots.compare(identifier, request.before, request.after)
    return as_message(
        snapshots_pb.SnapshotComparison,
        result,
        table=str(identifier),
        before=_compared(result.before, result.totals_before),
        after=_compared(result.after, result.totals_after),
    )


def get_retention(services: Services, request: snapshots_pb.GetRetentionRequest, call: Call) -> snapshots_pb.Retention:
    """What the next expiry would decide on each snapshot, branch and tag."""
    identifier = services.catalogs.resolve(request.table)
    history, selection = services.snapshots.retention(identifier)
    stay, go = selection.stay, selection.go
    fates = [
        as_message(
            snapshots_pb.SnapshotFate,
            snapshot,
            goes=snapshot.snapshot_id in go,
            ground="" if snapshot.snapshot_id in go else stay[snapshot.snapshot_id].ground.value,
            reason=go[snapshot.snapshot_id] if snapshot.snapshot_id in go else stay[snapshot.snapshot_id].reason,
        )
        for snapshot in history.snapshots
    ]
    refs = [
        as_message(snapshots_pb.RefFate, ref, goes=ref.name in selection.refs, reason=selection.refs.get(ref.name, ""))
        for ref in history.refs
    ]
    return snapshots_pb.Retention(
        table=str(identifier), snapshots=fates, refs=refs, going=len(go), staying=selection.staying
    )


def _compared(facts: SnapshotFacts, totals: SnapshotTotals) -> snapshots_pb.ComparedSnapshot:
    """The snapshot with its totals; −1 for one that its writer did not record."""
    message = as_message(snapshots_pb.SnapshotTotals, totals)
    for field in message.DESCRIPTOR.fields:
        if getattr(totals, field.name) is None:
            setattr(message, field.name, -1)
    return as_message(snapshots_pb.ComparedSnapshot, facts, totals=message)


def upgrade_table(
    services: Services, request: snapshots_pb.UpgradeTableRequest, call: Call
) -> snapshots_pb.TableUpgrade:
    """Upgrade the table, or with `dry_run` say what that would do."""
    identifier = services.catalogs.resolve(request.table)
    result = services.maintaining.upgrade(identifier, request.format_version, dry_run=request.dry_run)
    return as_message(snapshots_pb.TableUpgrade, result, table=str(identifier))
