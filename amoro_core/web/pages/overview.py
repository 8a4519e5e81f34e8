"""The overview and the page of the system."""

import shlex
from collections import Counter
from collections.abc import Sequence

from starlette.routing import Route

from amoro_core.documents.formatting import format_bytes, format_count, format_duration
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol import queue_pb2 as queue
from amoro_core.web.app_context import principal_of
from amoro_core.web.pages.framework import Field, Page, PageRequest, Redirect, Site, confirm_page, may
from amoro_core.web.pages.tables import RANGES, read_series

_RUNNING, _EVENTS = 10, 20
_STEP_S = 600
_SICK = 50  # a health below it is shown
#: Series of the last day, and the titles of their charts.
_CHARTS = {
    "backlog-age": "How long the oldest waiting table has waited, 24 h",
    "threads-busy": "Running tasks, 24 h",
    "bytes-rewritten": "Bytes rewritten, 24 h",
    "files-removed": "Files fewer by what was committed, 24 h",
}


async def show_overview(visit: PageRequest) -> Page:
    """Conditions, tiles, charts of the last day, running processes, last events."""
    visit.query()
    alerts = await visit.ask("ListConditions", monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    running = pb.ListProcessesRequest(status="running", limit=_RUNNING)
    active = await visit.ask("ListProcesses", running, pb.ListProcessesResponse)
    events = await visit.ask("ListEvents", journal.ListEventsRequest(limit=_EVENTS), journal.ListEventsResponse)
    series = await read_series(visit, _CHARTS, RANGES["24h"], step_s=_STEP_S)
    values = {
        "conditions": alerts.conditions,
        "tiles": await _tiles(visit),
        "processes": active.processes,
        "running": active.total,
        "events": events.events,
        "charts": [series.chart(title, name, is_sum=True) for name, title in _CHARTS.items()],
        "same": "amoro status",
    }
    return Page("overview.html", "Overview", values, is_live=True)


async def _tiles(visit: PageRequest) -> tuple[tuple[str, str, str], ...]:
    """Label, figure, and the address of the page of its rows."""
    response = await visit.ask("GetOverview", queue.GetOverviewRequest(), queue.Overview)
    sick = await visit.ask("ListTables", pb.ListTablesRequest(limit=1, health_below=_SICK), pb.ListTablesResponse)
    tables: Counter[str] = Counter()
    for count in response.statuses:
        tables[count.status] += count.tables
    waited_ms = response.counted_ms - response.oldest_pending_ms if response.oldest_pending_ms else 0
    sick_figure = format_count(sick.total) + ("" if sick.total_is_exact else "+")
    return (
        ("tables", format_count(response.tables), "/tables"),
        ("enabled tables", format_count(response.enabled_tables), "/tables?enabled=yes"),
        ("waiting for a plan", format_count(tables["pending"]), "/tables?status=pending"),
        ("refused", format_count(tables["refused"]), "/tables?status=refused"),
        (f"health below {_SICK}", sick_figure, f"/tables?health_below={_SICK}"),
        ("running processes", format_count(response.running_processes), "/processes?status=running"),
        ("running tasks", format_count(response.running_tasks), "/queue"),
        ("optimizers", format_count(response.optimizers), "/optimizers"),
        ("rewritten in 24 h", format_bytes(response.rewritten_bytes), "/processes?status=success"),
        ("fewer files in 24 h", format_count(response.removed_files), "/processes?status=success"),
        ("the longest wait", format_duration(max(0, waited_ms)), "/queue"),
    )


def system_routes(site: Site) -> list[Route]:
    """The pages of settings and system, and their forms."""
    return [
        site.page("/settings", show_settings),
        site.page("/system", show_system),
        site.action("/system/check", check),
        *site.confirmed("/system/backup", ask_to_back_up, back_up),
    ]


async def show_settings(visit: PageRequest) -> Page:
    """Every setting whose key contains the text, with its value and where that comes from."""
    text = visit.query(text=())["text"]
    response = await visit.ask("GetSettings", pb.GetSettingsRequest(), pb.GetSettingsResponse)
    settings = [one for one in response.settings if text.lower() in one.key.lower()]
    return Page("settings.html", "Settings", {"settings": settings, "text": text})


async def show_system(visit: PageRequest) -> Page:
    """The coordinator, active conditions, and for administrators the state database."""
    visit.query()
    return await _system_page(visit, None)


async def check(visit: PageRequest) -> Page:
    """Check the whole state database."""
    await visit.form()
    response = await visit.ask("CheckState", pb.CheckStateRequest(), pb.CheckStateResponse)
    return await _system_page(visit, list(response.problems))


async def _system_page(visit: PageRequest, problems: Sequence[str] | None) -> Page:
    status = await visit.ask("GetStatus", pb.GetStatusRequest(), pb.GetStatusResponse)
    request = monitoring.ListConditionsRequest()
    conditions = await visit.ask("ListConditions", request, monitoring.ListConditionsResponse)
    state = None
    if may(await principal_of(visit.request), "GetState"):
        state = await visit.ask("GetState", pb.GetStateRequest(), pb.StateFacts)
    values = {"status": status, "problems": problems, "conditions": conditions.conditions, "state": state}
    return Page("system.html", "System", values)


async def ask_to_back_up(visit: PageRequest) -> Page:
    """The confirmation of a backup."""
    visit.query()
    effects = (
        "The state database of this moment is copied to a new file on the coordinator's machine. Work goes on.",
        "The copy holds the catalogs' secrets, and only its owner can read it. A file that exists is never replaced.",
    )
    path = Field("path", "Absolute path of the new file", is_needed=True)
    same = "amoro state backup PATH"
    return confirm_page("Back up the state", effects, "/system/backup", "Back up", "/system", same, (path,))


async def back_up(visit: PageRequest) -> Redirect:
    """Copy the state database to a new file."""
    typed = await visit.form("path")
    response = await visit.ask("BackupState", pb.BackupStateRequest(path=typed["path"]), pb.BackupStateResponse)
    return Redirect("/system", f"The state is in {shlex.quote(response.path)}, {format_bytes(response.bytes)}.")
