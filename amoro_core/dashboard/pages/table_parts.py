"""Pages below a table that are lists of what the coordinator knows: its processes and its properties."""

from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.table import known_table, on_table
from amoro_core.dashboard.pages.urls import command, to_table
from amoro_core.dashboard.pages.visits import Shown, Visit
from amoro_core.errors import TableRefused
from amoro_core.model.config import Origin
from amoro_core.model.processes import ProcessStatus
from amoro_core.protocol import admin_pb2 as pb

_STATUSES = tuple(status.value for status in ProcessStatus)
_ORIGINS = tuple(origin.value for origin in Origin)


async def show_processes(visit: Visit) -> Shown:
    """The processes of every action on the table, the newest first."""
    asked, table = visit.query(status=_STATUSES, after=()), await known_table(visit)
    request = pb.ListProcessesRequest(
        table=str(table.table_id), status=asked["status"], limit=ROWS, after=asked["after"]
    )
    found = await visit.ask("ListProcesses", request, pb.ListProcessesResponse)
    path = to_table(table.table, table.table_id, "processes")
    listed = Listed(
        path, "processes", {"status": asked["status"]}, len(found.processes), found.total, found.next, asked["after"]
    )
    return on_table(
        table,
        "table_processes.html",
        "processes",
        processes=found.processes,
        list=listed,
        statuses=_STATUSES,
        same=command("amoro", "process", "list", "--table", table.table),
    )


async def show_properties(visit: Visit) -> Shown:
    """The properties that control the table's work, each with its default and its origin."""
    origin = visit.query(origin=_ORIGINS)["origin"]
    table, refused, found = await known_table(visit), "", pb.GetTablePropertiesResponse()
    asked = pb.GetTablePropertiesRequest(table=table.table, known_only=True)
    try:
        found = await visit.ask("GetTableProperties", asked, pb.GetTablePropertiesResponse)
    except TableRefused as error:
        refused = error.message
    return on_table(
        table,
        "table_properties.html",
        "properties",
        properties=found.properties,
        shown=[one for one in found.properties if origin in ("", one.origin)],
        origin=origin,
        origins=_ORIGINS,
        refused=refused,
        same=command("amoro", "table", "properties", table.table),
    )
