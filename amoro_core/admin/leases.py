"""Leases of snapshots."""

from amoro_core.admin.arguments import duration
from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.paging import Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.leasing import USUAL, HeldLease


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
