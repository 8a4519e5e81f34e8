"""The audit."""

from amoro_core.admin.arguments import word
from amoro_core.admin.messages.values import milliseconds, moment
from amoro_core.admin.services import Call, Services
from amoro_core.model.audit import AuditEvent, AuditFilter, AuditOutcome
from amoro_core.model.paging import Window, page_limit
from amoro_core.protocol import audit_pb2 as pb

#: Calls on a page without a limit.
EVENTS = 100


def list_audit(services: Services, request: pb.ListAuditRequest, call: Call) -> pb.ListAuditResponse:
    """Calls that change something, the newest first."""
    wanted = AuditFilter(
        request.actor,
        request.operation,
        request.object,
        word(AuditOutcome, request.outcome, "outcome"),
        moment(request.since_ms) if request.since_ms else None,
    )
    page, is_exact = services.auditing.list_events(wanted, Window(page_limit(request.limit or EVENTS), request.after))
    shown = map(_message, page.items)
    return pb.ListAuditResponse(events=shown, next=page.next, total=page.total, total_is_exact=is_exact)


def _message(item: AuditEvent) -> pb.AuditEvent:
    call, who = item.call, item.call.principal
    return pb.AuditEvent(
        event_id=item.event_id,
        happened_ms=milliseconds(item.at),
        actor=who.name,
        actor_kind="user" if who.is_user else "token",
        said=who.said,
        role=who.role.value,
        pattern=who.pattern,
        address=who.address,
        way=who.way.value,
        operation=call.operation,
        object=call.object,
        parameters=call.parameters,
        dry_run=call.is_dry_run,
        outcome=item.outcome.value,
        code=item.code,
    )
