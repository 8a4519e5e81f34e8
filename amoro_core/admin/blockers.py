"""Blockers, which keep work off tables."""

from amoro_core.admin.arguments import duration, word
from amoro_core.admin.messages.tables import blocker
from amoro_core.admin.services import Call, Services
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.paging import Window
from amoro_core.protocol import admin_pb2 as pb


def block_table(services: Services, request: pb.BlockTableRequest, call: Call) -> pb.Blocker:
    """Block kinds of work on the table for a time."""
    named = [word(BlockedOperation, text, "kind of work") for text in request.operations]
    operations = frozenset(item for item in named if item is not None) or {BlockedOperation.OPTIMIZE}
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    held_for = duration(request.hold_ms)
    return blocker(services.blockers.block(runtime.table_id, frozenset(operations), held_for, request.reason))


def renew_blocker(services: Services, request: pb.RenewBlockerRequest, call: Call) -> pb.Blocker:
    """Extend the blocker, counted from now."""
    return blocker(services.blockers.renew(request.blocker_id, duration(request.hold_ms)))


def release_blocker(services: Services, request: pb.ReleaseBlockerRequest, call: Call) -> pb.Blocker:
    """End the blocker."""
    return blocker(services.blockers.release(request.blocker_id))


def list_blockers(services: Services, request: pb.ListBlockersRequest, call: Call) -> pb.ListBlockersResponse:
    """Active blockers, the oldest first."""
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    page = services.blockers.page(table_id, Window(request.limit, request.after))
    return pb.ListBlockersResponse(blockers=map(blocker, page.items), next=page.next, total=page.total)
