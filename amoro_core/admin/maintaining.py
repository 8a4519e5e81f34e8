"""Actions beside optimizing: asked for by name."""

from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.maintaining import Maintained


def preview_maintenance(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """What the action would do on the table now."""
    identifier = services.catalogs.resolve(request.table)
    return _answer(identifier, request.action, services.maintaining.preview(identifier, request.action))


def maintain_table(services: Services, request: pb.MaintainTableRequest, call: Call) -> pb.MaintainTableResponse:
    """Begin a process of the action on the table, if there is something to do."""
    services.maintaining.require(request.action)
    runtime = services.tables.require_maintainable(services.catalogs.resolve(request.table))
    made = services.maintaining.begin(runtime.table_id, request.action, trigger="request")
    return _answer(runtime.identifier, request.action, made)


def _answer(identifier: TableIdentifier, action: str, made: Maintained) -> pb.MaintainTableResponse:
    return pb.MaintainTableResponse(
        table=str(identifier),
        action=action,
        is_due=made.plan is not None,
        process_id=made.process_id,
        reason=made.plan.reason if made.plan else made.reason,
        due_ms=milliseconds(made.due_at),
        tasks=len(made.plan.tasks) if made.plan else 0,
    )
