"""What happened, who did what, and what waits: events, audit, queue."""

import shlex

from starlette.routing import Route

from amoro_core.model.history_events import AuditOutcome, EventKind
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
    query = visit.query(kind=_KINDS, table=(), process=(), after=())
    kinds = [query["kind"]] if query["kind"] else []
    response = await visit.ask(
        "ListEvents",
        journal.ListEventsRequest(
            kinds=kinds, table=query["table"], process_id=query["process"], limit=ROWS, after=query["after"]
        ),
        journal.ListEventsResponse,
    )
    filters = {key: query[key] for key in ("kind", "table", "process")}
    listed = Listed(
        "/events",
        "events",
        filters,
        len(response.events),
        response.total,
        response.next,
        query["after"],
        total_is_exact=response.total_is_exact,
    )
    options = [f"--{key}={query[key]}" for key in ("kind", "table", "process") if query[key]]
    values = {
        "events": response.events,
        "list": listed,
        "kinds": _KINDS,
        "same": shlex.join(["amoro", "event", "list", *options]),
    }
    return Page("events.html", "Events", values, is_live=True)


async def show_audit(visit: PageRequest) -> Page:
    """A hundred calls that changed something, or were refused; the newest first."""
    query = visit.query(actor=(), operation=(), object=(), outcome=_OUTCOMES, after=())
    filters = {key: query[key] for key in ("actor", "operation", "object", "outcome")}
    request = audit.ListAuditRequest(
        actor=query["actor"],
        operation=query["operation"],
        object=query["object"],
        outcome=query["outcome"],
        limit=ROWS,
        after=query["after"],
    )
    response = await visit.ask("ListAudit", request, audit.ListAuditResponse)
    listed = Listed(
        "/audit",
        "calls",
        filters,
        len(response.events),
        response.total,
        response.next,
        query["after"],
        total_is_exact=response.total_is_exact,
    )
    options = [f"--{key}={value}" for key, value in filters.items() if value]
    values = {
        "events": [(one, sorted(one.parameters.items())) for one in response.events],
        "list": listed,
        "outcomes": _OUTCOMES,
        "same": shlex.join(["amoro", "audit", "list", *options]),
    }
    return Page("audit.html", "Audit", values, is_live=True)


async def show_queue(visit: PageRequest) -> Page:
    """The first hundred tables that wait for a plan, and processes that wait for a thread, in their order."""
    group = visit.query(group=())["group"]
    request = queue.ListQueueRequest(group=group, limit=ROWS)
    response = await visit.ask("ListQueue", request, queue.ListQueueResponse)
    groups = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=500), pb.ListGroupsResponse)
    values = {
        "pending": response.pending,
        "waiting": response.waiting,
        "pending_total": response.pending_total,
        "waiting_total": response.waiting_total,
        "group": group,
        "groups": [one.name for one in groups.groups],
        "same": shlex.join(["amoro", "group", "queue", *filter(None, [group])]),
    }
    return Page("queue.html", "Queue", values, is_live=True)
