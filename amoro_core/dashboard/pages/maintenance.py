"""Maintenance of tables: what waits for a person, and actions with a dry run before them.

What a table's actions would do its catalog alone knows. Only forms ask it: the page itself never waits for it.
"""

import json
import shlex
from typing import Any

from starlette.routing import Route

from amoro_core.dashboard.pages.confirming import named
from amoro_core.dashboard.pages.site import Site
from amoro_core.dashboard.pages.urls import to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.errors import InvalidArgument, NotFound
from amoro_core.protocol import admin_pb2 as pb

_WAITING = 50
_EXAMPLES = 10  # of each list in a plan


def routes(site: Site) -> list[Route]:
    """The page of maintenance and its forms."""
    return [
        site.page("/maintenance", show_maintenance),
        site.action("/maintenance/look", look),
        site.action("/maintenance/preview", preview),
        site.action("/maintenance/run", run),
    ]


async def show_maintenance(visit: Visit) -> Shown:
    """Processes that wait for a person, and where to begin."""
    asked = visit.query(table=())
    return Shown("maintenance.html", "Maintenance", await _values(visit, asked["table"]))


async def look(visit: Visit) -> Shown:
    """Every action on the table: on or off and why, its last and its next run. Its catalog is asked."""
    table = (await visit.form("table"))["table"]
    found = await visit.ask("ListActions", pb.ListActionsRequest(table=table), pb.ListActionsResponse)
    values = await _values(visit, found.table)
    return Shown("maintenance.html", "Maintenance", {**values, "actions": found.actions})


async def preview(visit: Visit) -> Shown:
    """What the action would do on the table now. Nothing is changed."""
    typed = await visit.form("table", "action")
    request = pb.MaintainTableRequest(table=typed["table"], action=typed["action"])
    answer = await visit.ask("PreviewMaintenance", request, pb.MaintainTableResponse)
    command = shlex.join(["amoro", "table", "maintain", answer.table, "--action", answer.action, "--dry-run"])
    values = {"answer": answer, "plan": planned(answer.document), "command": command}
    values["table_id"] = await _number(visit, answer.table)
    return Shown("preview.html", f"Dry run of {answer.action}", values)


async def run(visit: Visit) -> Gone:
    """Begin the action on the table whose name was typed."""
    typed = await visit.form("table", "action", "confirm")
    if not named(typed["confirm"], typed["table"]):
        raise InvalidArgument(
            f"{typed['confirm']!r} is not the name of the table",
            hint=f"Type {typed['table']} to run {typed['action']}.",
        )
    request = pb.MaintainTableRequest(table=typed["table"], action=typed["action"])
    answer = await visit.ask("MaintainTable", request, pb.MaintainTableResponse)
    if not answer.process_id:
        return Gone(to("maintenance", table=answer.table), f"Nothing to do: {answer.reason}", "wait")
    return Gone(to("processes", answer.process_id), answer.held or f"{answer.action} has begun.")


async def _number(visit: Visit, table: str) -> int:
    """The number of a table; 0 of one that is not known yet."""
    try:
        return (await visit.ask("GetTable", pb.GetTableRequest(table=table, known_only=True), pb.Table)).table_id
    except NotFound:
        return 0


async def _values(visit: Visit, table: str) -> dict[str, Any]:
    waiting: list[pb.Process] = []
    for status in ("held", "requested"):
        request = pb.ListProcessesRequest(status=status, limit=_WAITING)
        waiting += (await visit.ask("ListProcesses", request, pb.ListProcessesResponse)).processes
    return {"table": table, "waiting": waiting, "actions": None}


def planned(document: str) -> list[tuple[str, str, list[str]]]:
    """The plan's keys with their values, or the count and the first ten of what a list has."""
    lines: list[tuple[str, str, list[str]]] = []
    for key, value in (json.loads(document) if document else {}).items():
        label = key.replace("_", " ")
        if isinstance(value, list):
            lines.append((label, f"{len(value):,}", [_told(one) for one in value[:_EXAMPLES]]))
        elif isinstance(value, dict):
            lines.append((label, "", [f"{name}: {_told(one)}" for name, one in list(value.items())[:_EXAMPLES]]))
        else:
            lines.append((label, _told(value), []))
    return lines


def _told(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_told(one)}" for key, one in value.items())
    return json.dumps(value) if isinstance(value, list) else str(value)
