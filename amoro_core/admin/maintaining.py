"""Actions other than optimizing: requested by name, and their state on a table."""

import json
from dataclasses import replace

from amoro_core.admin.arguments import duration
from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.processes import process_summary
from amoro_core.admin.services import Call, Services
from amoro_core.model.maintenance import Options
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.known_actions import KnownAction
from amoro_core.services.maintaining import Maintained
from amoro_core.services.trash import require_confirmed

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
