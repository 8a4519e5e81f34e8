"""What happened, who did what, and what waits: events, audit, queue."""

import shlex

from starlette.routing import Route

from amoro_core.model.audit import AuditOutcome
from amoro_core.model.history_events import EventKind
from amoro_core.model.paging import Line
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.page_request import Listed, Page, PageRequest

ROWS = 100
_KINDS = tuple(kind.value for kind in EventKind)
_OUTCOMES = tuple(outcome.value for outcome in AuditOutcome)


def routes(site: Site) -> list[Route]:
    """The pages of events, audit and queue."""
    return [
        site.page("/events", show_events),
        site.page("/audit", show_audit),
        site.page("/queue", show_queue),
    ]


async def show_events(visit: PageRequest) -> Page:
    """A hundred events, the newest first."""
    asked = visit.query(kind=_KINDS, table=(), process=(), after=())
    kinds = [asked["kind"]] if asked["kind"] else []
    found = await visit.ask(
        "ListEvents",
        journal.ListEventsRequest(
            kinds=kinds, table=asked["table"], process_id=asked["process"], limit=ROWS, after=asked["after"]
        ),
        journal.ListEventsResponse,
    )
    filters = {key: asked[key] for key in ("kind", "table", "process")}
    listed = Listed(
        "/events",
        "events",
        filters,
        len(found.events),
        found.total,
        found.next,
        asked["after"],
        total_is_exact=found.total_is_exact,
    )
    options = [f"--{key}={asked[key]}" for key in ("kind", "table", "process") if asked[key]]
    values = {
        "events": found.events,
        "list": listed,
        "kinds": _KINDS,
        "same": shlex.join(["amoro", "event", "list", *options]),
    }
    return Page("events.html", "Events", values, is_live=True)


async def show_audit(visit: PageRequest) -> Page:
    """A hundred calls that changed something, or were refused; the newest first."""
    asked = visit.query(actor=(), operation=(), object=(), outcome=_OUTCOMES, after=())
    filters = {key: asked[key] for key in ("actor", "operation", "object", "outcome")}
    request = audit.ListAuditRequest(
        actor=asked["actor"],
        operation=asked["operation"],
        object=asked["object"],
        outcome=asked["outcome"],
        limit=ROWS,
        after=asked["after"],
    )
    found = await visit.ask("ListAudit", request, audit.ListAuditResponse)
    listed = Listed(
        "/audit",
        "calls",
        filters,
        len(found.events),
        found.total,
        found.next,
        asked["after"],
        total_is_exact=found.total_is_exact,
    )
    options = [f"--{key}={value}" for key, value in filters.items() if value]
    values = {
        "events": [(one, sorted(one.parameters.items())) for one in found.events],
        "list": listed,
        "outcomes": _OUTCOMES,
        "same": shlex.join(["amoro", "audit", "list", *options]),
    }
    return Page("audit.html", "Audit", values, is_live=True)


async def show_queue(visit: PageRequest) -> Page:
    """What waits for a plan and what waits for a thread, a hundred of each in the order in which it gets it.

    Each list has pages of its own: the address has a cursor of both.
    """
    asked = visit.query(group=(), pending=(), waiting=())

    async def part(only: Line) -> queue.ListQueueResponse:
        request = queue.ListQueueRequest(group=asked["group"], limit=ROWS, after=asked[only], only=only)
        return await visit.ask("ListQueue", request, queue.ListQueueResponse)

    def listed(only: Line, noun: str, shown: int, total: int, following: str) -> Listed:
        other = {key: value for key, value in asked.items() if key != only}
        return Listed("/queue", noun, other, shown, total, following, asked[only], cursor=only)

    tables, processes = await part(Line.PENDING), await part(Line.WAITING)
    groups = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=500), pb.ListGroupsResponse)
    values = {
        "pending": tables.pending,
        "waiting": processes.waiting,
        "tables": listed(Line.PENDING, "tables", len(tables.pending), tables.pending_total, tables.next),
        "processes": listed(Line.WAITING, "processes", len(processes.waiting), processes.waiting_total, processes.next),
        "order_changed": tables.order_changed or processes.order_changed,
        "group": asked["group"],
        "groups": [one.name for one in groups.groups],
        "same": shlex.join(["amoro", "group", "queue", *filter(None, [asked["group"]])]),
    }
    return Page("queue.html", "Queue", values, is_live=True)
