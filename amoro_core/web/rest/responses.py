"""Answers of operations as documents and lists, with their entity tags."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import urlencode

from google.protobuf.message import Message

from amoro_core.documents.json_documents import (
    check_body,
    encode,
    group_body,
    maintain_body,
    optimize_body,
    rows_body,
    schemas,
)
from amoro_core.protocol.operations import Route
from amoro_core.web.rest.requests import PREFIX, ParsedRequest, cursor_of

Body = dict[str, Any]

#: The syntax of the header If-Match.
TAGS = r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'

#: Bodies that are more than a message, by schema; the second argument is the process that was waited for.
_BODIES: Mapping[str, Callable[[Any, Any], Body]] = {
    "amoro.check/v1": lambda answer, process: check_body(answer.problems),
    "amoro.group/v1": lambda answer, process: group_body(answer),
    "amoro.rows/v1": lambda answer, process: rows_body(answer),
    "amoro.maintain/v1": lambda answer, process: maintain_body(answer, process),
    "amoro.optimize/v1": lambda answer, process: optimize_body(answer.plan, answer.process_id, process, answer.changes),
}


def document(route: Route, answer: Message, process: Message | None = None) -> Body:
    """The document of the route's answer."""
    make = _BODIES.get(route.schema)
    return {"schema": route.schema, **(make(answer, process) if make else encode(answer))}


def listed(parsed: ParsedRequest, answer: Any) -> Body:
    """The list that the answer has: `items`, `next`, `total`, `total_is_exact`."""
    route, names = parsed.route, item_keys(parsed.route)
    rows = document(route, answer)[route.items]
    items = [{name: value for name, value in item.items() if name in names} for item in rows]
    fields = answer.DESCRIPTOR.fields_by_name
    is_paged = "next" in fields
    following = cursor_of(parsed.path, parsed.query, answer.next) if is_paged and answer.next else None
    exact = answer.total_is_exact if "total_is_exact" in fields else True
    total = answer.total if is_paged else len(items)
    return {"items": items, "next": following, "total": total, "total_is_exact": exact}


def link_to_next(parsed: ParsedRequest, following: str) -> str:
    """The header `Link` to the next page of a list, or of a document that comes in pages."""
    query = urlencode({**parsed.query, "after": [following]}, doseq=True)
    return f'<{PREFIX}{parsed.path}?{query}>; rel="next"'


@cache
def item_keys(route: Route) -> frozenset[str]:
    """The keys that an item of the route's list has."""
    return frozenset(item_schema(route)["properties"])


def item_schema(route: Route) -> Body:
    """The JSON Schema of an item of the route's list."""
    result: Body = schemas()[route.schema]["properties"][route.key or route.items]["items"]
    return result


def encoded(body: Body) -> bytes:
    """The body as it is sent."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


#: By schema, the keys that PATCH changes; the rest of these documents changes every second.
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "amoro.table/v1": ("table", "table_uuid", "enabled", "enabled_origin"),
    "amoro.group/v1": ("name", "scheduling_policy", "container", "properties"),
}


def tag_of(body: Body, content: bytes) -> str:
    """The entity tag: a digest of the keys that PATCH changes, a dot, a digest of the whole body."""
    keys = _OWN_KEYS.get(body.get("schema", ""))
    own = encoded({key: body[key] for key in keys}) if keys else content
    return f'"{_digest(own)}.{_digest(content)}"'


def is_tag(header: str, tag: str) -> bool:
    """Whether a header If-None-Match names the tag."""
    given = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in given or tag in given


def is_unchanged(header: str, tag: str) -> bool:
    """Whether a header If-Match names a tag of the same that PATCH changes."""
    given = [tag.strip().partition(".")[0] for tag in header.split(",")]
    return "*" in given or tag.partition(".")[0] in given


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
