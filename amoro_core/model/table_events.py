"""Events of engines and object stores about commits to tables, in the shapes of those who send them."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from amoro_core.errors import MalformedRequest

MOST_EVENT_BYTES = 1 << 20  # of a body
MOST_EVENTS = 1000
#: Of a body.
MEDIA_TYPES = ("application/json", "application/cloudevents+json", "application/cloudevents-batch+json")
_SHAPES = (
    "CloudEvents 1.0, one or a list (the table in data.table, else subject), Records of S3 or MinIO, or an event of "
    "EventBridge"
)
#: The JSON Schema of a body.
EVENTS_SCHEMA: dict[str, Any] = {
    "description": f"{_SHAPES}.",
    "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "maxItems": MOST_EVENTS}],
}
#: The metadata file of a commit; every other object belongs to no commit yet.
_METADATA = re.compile(r".*/metadata/[^/]+\.metadata\.json", re.DOTALL)


def events_of(body: Any) -> dict[str, Any]:
    """The body as the JSON of a ReceiveEventsRequest; events of other objects than new metadata files are counted only.

    Raises MalformedRequest for a body with an event of another shape, or without a table.
    """
    match body:
        case {"Records": [*items]} | [*items]:
            pass
        case _:
            items = [body]
    events = [_event(item, f"event {number}") for number, item in enumerate(items, 1)]
    named = [event for event in events if event]
    return {"events": named, "ignored": len(events) - len(named)}


def _event(item: Any, name: str) -> dict[str, str]:
    """The event's table, or the path of its object; empty where that is no new metadata file."""
    match item:
        case {"specversion": "1.0", "id": str(), "source": str(), "type": str()}:
            data = item.get("data")
            table = (data.get("table") if isinstance(data, Mapping) else None) or item.get("subject")
            if table and isinstance(table, str):
                return {"table": table}
            raise MalformedRequest(f"{name} names no table", hint="Name it in data.table or subject.", value=item["id"])
        case {"eventName": str() as kind, "s3": {"bucket": {"name": str() as bucket}, "object": {"key": str() as key}}}:
            key = unquote_plus(key)
        case {
            "detail-type": str() as kind,
            "detail": {"bucket": {"name": str() as bucket}, "object": {"key": str() as key}},
        }:
            pass  # EventBridge does not encode keys
        case _:
            raise MalformedRequest(f"{name} has no shape that is known", hint=f"Send {_SHAPES}.", value=item)
    path = f"s3://{bucket}/{key}" if bucket else f"/{key.lstrip('/')}"
    return {"path": path} if "ObjectCreated" in kind.replace(" ", "") and _METADATA.fullmatch(path) else {}
