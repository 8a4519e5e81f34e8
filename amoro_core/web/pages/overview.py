"""The overview, the system, and what happened: events, report, audit, queue."""

import shlex
from collections.abc import Sequence
from typing import Any

from starlette.routing import Route

from amoro_core.documents.formatting import format_bytes, format_count, format_duration
from amoro_core.model.history_events import AuditOutcome, EventKind
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.web.app_context import principal_of
from amoro_core.web.pages.framework import (
    Field,
    Listed,
    Page,
    PageRequest,
    Redirect,
    Site,
    confirm_page,
    group_names,
    may,
    with_times,
)
from amoro_core.web.pages.tables import RANGES, read_series
from amoro_core.web.rest import openapi

_RUNNING, _EVENTS, _TABLES = 10, 10, 8
_STEP_S = 600
#: Series of the last day, and the titles of their charts.
_CHARTS = {
    "backlog-age": "How long the oldest waiting table has waited",
    "threads-busy": "Running tasks",
    "bytes-rewritten": "Bytes rewritten",
    "files-removed": "Files fewer by what was committed",
}


async def show_overview(visit: PageRequest) -> Page:
    """What is wrong, which tables are worst, what was done in a day; running processes, last events."""
    failing = await visit.ask(pb.ListTablesRequest(state="failing", limit=_TABLES), pb.ListTablesResponse)
    worst = await visit.ask(pb.ListTablesRequest(sort="saving", order="desc", limit=_TABLES), pb.ListTablesResponse)
    alerts = await visit.ask(monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    active = await visit.ask(pb.ListProcessesRequest(status="running", limit=_RUNNING), pb.ListProcessesResponse)
    events = await visit.ask(journal.ListEventsRequest(limit=_EVENTS), journal.ListEventsResponse)
    series = await read_series(visit, _CHARTS, RANGES["24h"], step_s=_STEP_S)
    day = journal.GetReportRequest(since_ms=series.since_ms, until_ms=series.until_ms)
    values = {
        "conditions": alerts.conditions,
        "report": await visit.ask(day, journal.Report),
        "failing": failing,
        "worst": [table for table in worst.tables if table.saved_files > 0 or table.saved_bytes > 0],
        "tiles": await _tiles(visit, failing),
        "processes": active.processes,
        "running": active.total,
        "events": events.events,
        "charts": [series.chart(title, name, is_sum=True) for name, title in _CHARTS.items()],
    }
    return Page("overview.html", "Overview", values, is_live=True)


async def _tiles(visit: PageRequest, failing: pb.ListTablesResponse) -> tuple[tuple[str, str, str], ...]:
    """Label, figure, and the address of the page of its rows."""
    response = await visit.ask(queue.GetOverviewRequest(), queue.Overview)
    states = {"failing": failing}
    for state in ("due", "observed", "refused"):
        states[state] = await visit.ask(pb.ListTablesRequest(state=state, limit=1), pb.ListTablesResponse)
    waited_ms = response.counted_ms - response.oldest_pending_ms if response.oldest_pending_ms else 0
    return (
        ("tables", format_count(response.tables), "/tables"),
        ("enabled tables", format_count(response.enabled_tables), "/tables?enabled=yes"),
        *(
            (state, format_count(page.total) + ("" if page.total_is_exact else "+"), f"/tables?state={state}")
            for state, page in states.items()
        ),
        ("running processes", format_count(response.running_processes), "/processes?status=running"),
        ("running tasks", format_count(response.running_tasks), "/queue"),
        ("optimizers", format_count(response.optimizers), "/optimizers"),
        ("the longest wait", format_duration(max(0, waited_ms)), "/queue"),
    )


def system_routes(site: Site) -> list[Route]:
    """The pages of settings and system, and their forms."""
    return [
        site.page("/settings", show_settings, text=()),
        site.page("/system", show_system),
        site.action("/system/check", check),
        site.page("/rest", show_rest),
        *site.confirmed("/system/backup", ask_to_back_up, back_up, "path"),
    ]


async def show_settings(visit: PageRequest) -> Page:
    """Every setting whose key contains the text, with its value and where that comes from."""
    text = visit.query["text"]
    response = await visit.ask(pb.GetSettingsRequest(), pb.GetSettingsResponse)
    settings = [setting for setting in response.settings if text.lower() in setting.key.lower()]
    return Page("settings.html", "Settings", {"settings": settings, "text": text})


async def show_rest(visit: PageRequest) -> Page:
    """Every route of REST: what it does, who may use it, what it takes."""
    routes: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in openapi.description()["paths"].items():
        for method, route in methods.items():
            routes.setdefault(route["tags"][0], []).append((method.upper(), path, route))
    return Page("rest.html", "REST", {"routes": routes})


async def check(visit: PageRequest) -> Page:
    """Check the whole state database."""
    response = await visit.ask(pb.CheckStateRequest(), pb.CheckStateResponse)
    return await show_system(visit, list(response.problems))


async def show_system(visit: PageRequest, problems: Sequence[str] | None = None) -> Page:
    """The coordinator, active conditions, and for administrators the state database; `problems` that a check found."""
    status = await visit.ask(pb.GetStatusRequest(), pb.GetStatusResponse)
    conditions = await visit.ask(monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    listening = await visit.ask(journal.ListListenersRequest(), journal.ListListenersResponse)
    state = None
    if may(await principal_of(visit.request), "GetState"):
        state = await visit.ask(pb.GetStateRequest(), pb.StateFacts)
    values: dict[str, object] = {"status": status, "problems": problems, "conditions": conditions.conditions}
    values |= {"state": state, "listeners": listening.listeners}
    return Page("system.html", "System", values)


async def ask_to_back_up(visit: PageRequest) -> Page:
    """The confirmation of a backup."""
    effects = (
        "The state database of this moment is copied to a new file on the coordinator's machine. Work goes on.",
        "The copy holds the catalogs' secrets, and only its owner can read it. A file that exists is never replaced.",
    )
    path = Field("path", "Absolute path of the new file", is_needed=True)
    return confirm_page("Back up the state", effects, "Back up", "/system", "amoro state backup PATH", (path,))


async def back_up(visit: PageRequest) -> Redirect:
    """Copy the state database to a new file."""
    response = await visit.ask(pb.BackupStateRequest(**visit.form), pb.BackupStateResponse)
    return Redirect("/system", f"The state is in {shlex.quote(response.path)}, {format_bytes(response.bytes)}.")


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
    fields = with_times(visit.query)
    kinds, process_id = filter(None, [fields.pop("kind")]), fields.pop("process")
    request = journal.ListEventsRequest(**fields, kinds=kinds, process_id=process_id, limit=ROWS)
    response = await visit.ask(request, journal.ListEventsResponse)
    values = {"list": Listed("/events", "events", visit.query, response, response.events), "kinds": EventKind}
    return Page("events.html", "Events", values, is_live=True)


async def show_report(visit: PageRequest) -> Page:
    """What was done in a time, what failed, and which tables have got worse; without a time in the last 12 hours."""
    report = await visit.ask(journal.GetReportRequest(**with_times(visit.query)), journal.Report)
    return Page("report.html", "Report", {"report": report, "query": visit.query})


async def show_audit(visit: PageRequest) -> Page:
    """A hundred calls that changed something, or were refused; the newest first."""
    response = await visit.ask(audit.ListAuditRequest(**visit.query, limit=ROWS), audit.ListAuditResponse)
    values = {"list": Listed("/audit", "calls", visit.query, response, response.events), "outcomes": AuditOutcome}
    return Page("audit.html", "Audit", values, is_live=True)


async def show_queue(visit: PageRequest) -> Page:
    """The first hundred tables that wait for a plan, and processes that wait for a thread, in their order."""
    response = await visit.ask(queue.ListQueueRequest(**visit.query, limit=ROWS), queue.ListQueueResponse)
    values = {"queue": response, "group": visit.query["group"], "groups": await group_names(visit)}
    return Page("queue.html", "Queue", values, is_live=True)
