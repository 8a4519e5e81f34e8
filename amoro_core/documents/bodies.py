"""Documents that are more than a message: without the key `schema`, which whoever shows them adds."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amoro_core.documents.encoding import encode

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

Body = dict[str, Any]


def optimize_body(plan: "pb.Plan", process_id: str, process: "pb.Process | None", changes: Sequence[str] = ()) -> Body:
    """Of amoro.optimize/v1.

    The outcome is "nothing_to_do", "changed" where the kept plan is not the plan any more, "planned" when the end was
    not waited for, else the status of the process.
    """
    begun = "planned" if process_id else "changed" if changes else "nothing_to_do"
    return {
        "table": plan.table,
        "outcome": process.status if process else begun,
        "process_id": process_id or None,
        "changes": list(changes),
        "plan": encode(plan),
        "process": encode(process) if process else None,
    }


def maintain_body(answer: "pb.MaintainTableResponse", process: "pb.Process | None") -> Body:
    """Of amoro.maintain/v1.

    The outcome is "nothing_to_do", "due" of a dry run, "planned" when the end was not waited for, else the status of
    the process. `plan` is what would be done, or was planned: the items with their reasons.
    """
    planned = "planned" if answer.process_id else "due" if answer.is_due else "nothing_to_do"
    told = encode(answer)
    del told["document"]
    return {
        **told,
        "outcome": process.status if process else planned,
        "plan": json.loads(answer.document) if answer.document else None,
        "process": encode(process) if process else None,
    }


def group_body(group: "pb.Group") -> Body:
    """Of amoro.group/v1: `occupation` is null for a table without limit."""
    body = encode(group)
    for use in body["uses"]:
        use["occupation"] = None if use["occupation"] < 0 else use["occupation"]
    return body


def check_body(problems: Sequence[str]) -> Body:
    """Of amoro.check/v1."""
    return {"ok": not problems, "problems": list(problems)}
