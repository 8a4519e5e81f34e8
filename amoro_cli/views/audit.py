"""The audit."""

import json
from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import audit_pb2 as pb

AUDIT: "Listing[pb.AuditEvent]" = Listing(
    (
        Column("EVENT", lambda item: str(item.event_id), lambda item: item.event_id, right=True),
        Column("AT", lambda item: format_time(item.happened_ms), lambda item: item.happened_ms),
        Column("ACTOR", lambda item: f"{item.actor} ({item.said})" if item.said else item.actor),
        Column("ROLE", lambda item: item.role),
        Column("WAY", lambda item: item.way),
        Column("ADDRESS", lambda item: item.address or "-"),
        Column("OPERATION", lambda item: f"{item.operation} (dry run)" if item.dry_run else item.operation),
        Column("OBJECT", lambda item: item.object or "-"),
        Column("OUTCOME", lambda item: f"{item.outcome} [{item.code}]" if item.code else item.outcome),
    ),
    spare=("ADDRESS", "WAY", "ROLE", "EVENT"),
    elastic="OBJECT",
)


def audit_list(part: "Part[pb.AuditEvent]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.audit/v1: `audit`, `total`, `next`. The names are numbers."""
    nothing = "Nothing was changed."
    return list_document("amoro.audit/v1", AUDIT, part, arrangement, lambda item: str(item.event_id), nothing)


def audit_line(item: "pb.AuditEvent") -> str:
    """Schema amoro.audited/v1: the call as one line of JSON, in ASCII."""
    return json.dumps({"schema": "amoro.audited/v1", **encode(item)})
