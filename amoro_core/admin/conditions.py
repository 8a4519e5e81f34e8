"""The conditions that hold."""

from datetime import datetime

from amoro_core.admin.messages.values import milliseconds
from amoro_core.admin.services import Call, Services
from amoro_core.model.conditions import Held
from amoro_core.protocol import monitoring_pb2 as pb


def list_conditions(services: Services, request: pb.ListConditionsRequest, call: Call) -> pb.ListConditionsResponse:
    """Every condition that holds now, the worst first; those that have not held for long enough are not raised."""
    held, now = services.conditions.look()
    return pb.ListConditionsResponse(conditions=[_condition(one, now) for one in held])


def _condition(held: Held, now: datetime) -> pb.Condition:
    condition = held.condition
    return pb.Condition(
        name=condition.name,
        severity=condition.severity.value,
        raised=held.is_raised(now),
        text=held.text,
        labels=held.named,
        value=held.value,
        since_ms=milliseconds(held.since),
        meaning=condition.meaning,
        remedy=condition.remedy,
    )
