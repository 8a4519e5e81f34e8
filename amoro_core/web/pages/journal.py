"""What happened, who did what, and what waits: events, report, audit, queue."""

from starlette.routing import Route

from amoro_core.model.history_events import AuditOutcome, EventKind
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.web.pages.framework import Listed, Page, PageRequest, Site, group_names, times_of

ROWS = 100


def routes(site: Site) -> list[Route]:
    """The pages of events, report, audit and queue."""
    return [
        site.page("/events", show_events, kind=EventKind, table=(), process=(), since=(), until=(), after=()),
        site.page("/report", show_report, since=(), until=(), table=()),
        site.page("/audit", show_audit, actor=(), operation=(), object=(), outcome=AuditOutcome, after=()),
        site.page("/queue", show_queue, group=()),
    ]


async def show_events(visit: PageRequest) -> Page:
    """A hundred events, the newest first."""
    query = visit.query
    request = journal.ListEventsRequest(
        kinds=filter(None, [query["kind"]]),
        table=query["table"],
        process_id=query["process"],
        **times_of(query),
        limit=ROWS,
        after=query["after"],
    )
    response = await visit.ask("ListEvents", request, journal.ListEventsResponse)
    values = {"list": Listed("/events", "events", query, response, response.events), "kinds": EventKind}
    return Page("events.html", "Events", values, is_live=True)


async def show_report(visit: PageRequest) -> Page:
    """What was done in a time, what failed, and which tables have got worse; without a time in the last 12 hours."""
    request = journal.GetReportRequest(**times_of(visit.query), table=visit.query["table"])
    report = await visit.ask("GetReport", request, journal.Report)
    return Page("report.html", "Report", {"report": report, "query": visit.query})


async def show_audit(visit: PageRequest) -> Page:
    """A hundred calls that changed something, or were refused; the newest first."""
    request = audit.ListAuditRequest(**visit.query, limit=ROWS)
    response = await visit.ask("ListAudit", request, audit.ListAuditResponse)
    values = {"list": Listed("/audit", "calls", visit.query, response, response.events), "outcomes": AuditOutcome}
    return Page("audit.html", "Audit", values, is_live=True)


async def show_queue(visit: PageRequest) -> Page:
    """The first hundred tables that wait for a plan, and processes that wait for a thread, in their order."""
    request = queue.ListQueueRequest(**visit.query, limit=ROWS)
    response = await visit.ask("ListQueue", request, queue.ListQueueResponse)
    values = {"queue": response, "group": visit.query["group"], "groups": await group_names(visit)}
    return Page("queue.html", "Queue", values, is_live=True)
