"""The coordinator itself: its status, settings and state database."""

import os
import sys

from amoro_core.admin.context import LEADER, Call, Services, as_message, milliseconds
from amoro_core.model.paging import Window
from amoro_core.model.tables import TableFilter, TableState
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring_pb


def get_status(services: Services, request: pb.GetStatusRequest, call: Call) -> pb.GetStatusResponse:
    """Version, start and address of the coordinator, and how many tables, optimizers and processes there are."""
    program = services.program
    return as_message(
        pb.GetStatusResponse,
        program,
        address=program.address(),
        http_address=program.http_address(),
        tables=services.tables.count(),
        failing_tables=services.overview.tables(TableFilter(state=TableState.FAILING), window=Window(1)).total,
        optimizers=len(services.optimizers.list_optimizers()),
        running_processes=services.overview.count_running(),
        pid=os.getpid(),
    )


def get_settings(services: Services, request: pb.GetSettingsRequest, call: Call) -> pb.GetSettingsResponse:
    """Every setting with its origin and its default."""
    program = services.program
    settings = [
        pb.Setting(key=key, value=value, origin=origin, default=program.defaults.get(key, ""))
        for key, value, origin in program.settings
    ]
    return pb.GetSettingsResponse(settings=settings)


def get_state(services: Services, request: pb.GetStateRequest, call: Call) -> pb.StateFacts:
    """The state database's size, schema and last backup."""
    facts, backup = services.state.facts()
    return as_message(
        pb.StateFacts,
        facts,
        bytes=facts.size_bytes,
        leader_pid=os.getpid() if services.program.role == LEADER else 0,
        backup_ms=milliseconds(backup.at if backup else None),
        backup_path=backup.path if backup else "",
        python=sys.version.split()[0],
        sqlite=facts.engine,
    )


def backup_state(services: Services, request: pb.BackupStateRequest, call: Call) -> pb.BackupStateResponse:
    """Copy the state database to a new file."""
    return pb.BackupStateResponse(path=request.path, bytes=services.state.backup(request.path))


def check_state(services: Services, request: pb.CheckStateRequest, call: Call) -> pb.CheckStateResponse:
    """The problems of the state database."""
    return pb.CheckStateResponse(problems=services.state.check())


def list_conditions(
    services: Services, request: monitoring_pb.ListConditionsRequest, call: Call
) -> monitoring_pb.ListConditionsResponse:
    """Every condition that holds now, the worst first; those that have not held for long enough are not raised."""
    alerts, now = services.conditions.look()
    conditions = [
        as_message(monitoring_pb.Condition, alert, alert.condition, raised=alert.is_raised(now), labels=alert.named)
        for alert in alerts
    ]
    return monitoring_pb.ListConditionsResponse(conditions=conditions)
