"""One table: what is known of it, its health by parts, and why it is (not) optimized now."""

import time
from collections.abc import Mapping
from typing import Any

from amoro_core.dashboard.charts.svg import Chart
from amoro_core.dashboard.pages.over_time import RANGES, Asked, drawn, found_series
from amoro_core.dashboard.pages.reasons import reasons
from amoro_core.dashboard.pages.urls import command, to_table
from amoro_core.dashboard.pages.visits import Shown, Visit
from amoro_core.documents.quantities import format_bytes, many
from amoro_core.errors import NotFound
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.records import record

#: The pages of a table: path below it, and label.
TABS = (
    ("", "Health"),
    ("files", "Files"),
    ("snapshots", "Snapshots"),
    ("processes", "Processes"),
    ("properties", "Properties"),
    ("plan", "Plan"),
)
_RECENT = 8
#: Those that are shown anew when something changes; the others keep what was asked for or typed.
_LIVE = frozenset({"", "processes"})
_TREND = "90d"
#: Series of a table, and what their charts are called.
_TRENDS = {
    "health": "Health over time",
    "small-files": "Small files over time",
    "delete-files": "Delete files over time",
}


@record
class HealthPart:
    """A part of the health score: the points that are left, and what would bring back those that are lost."""

    name: str
    left: int
    most: int
    found: str
    mended_by: str

    @property
    def lost(self) -> int:
        """The points that are missing."""
        return self.most - self.left


async def known_table(visit: Visit) -> pb.Table:
    """The table of the page, as the coordinator knows it. Raises TableNotFound, CatalogNotFound, InvalidArgument."""
    return await visit.ask("GetTable", pb.GetTableRequest(table=visit.named("table"), known_only=True), pb.Table)


def on_table(table: pb.Table, template: str, tab: str, **values: object) -> Shown:
    """A page of the table: its values, with those of the frame around all of its pages."""
    label = dict(TABS)[tab]
    shown = {"table": table, "tab": tab, "tabs": _tabs(table), **values}
    subjects = (("tables", str(table.table_id)), ("processes", "")) if tab in _LIVE else ()
    return Shown(template, f"{table.table}: {label}", shown, subjects=subjects)


async def show_table(visit: Visit) -> Shown:
    """Health, reasons, last processes; of a table that is not known, what became of it."""
    chosen = visit.query(range=RANGES)["range"] or _TREND
    try:
        table = await known_table(visit)
    except NotFound as error:
        return await _gone(visit, error)
    return await _show_known(visit, table, chosen)


async def _gone(visit: Visit, error: NotFound) -> Shown:
    """404 with the last events of a table of that name."""
    name = visit.named("table")
    asked = journal.ListEventsRequest(table=name, limit=_RECENT)
    found, hint = journal.ListEventsResponse(), ""
    try:
        found = await visit.ask("ListEvents", asked, journal.ListEventsResponse)
    except NotFound as unknown:
        hint = unknown.hint
    text = name.rpartition(".")[2].strip("`")
    values = {"error": error, "name": name, "events": found.events, "text": text, "hint": hint}
    return Shown("table_gone.html", "Not found", values, 404)


async def _show_known(visit: Visit, table: pb.Table, chosen: str) -> Shown:
    asked = pb.ListProcessesRequest(table=str(table.table_id), limit=_RECENT)
    found = await visit.ask("ListProcesses", asked, pb.ListProcessesResponse)
    now_ms = int(time.time() * 1000)
    return on_table(
        table,
        "table.html",
        "",
        parts_of_health=health_parts(table),
        charts=await _trends(visit, table, RANGES[chosen], now_ms),
        ranges=[(name, name == chosen) for name in RANGES],
        reasons=reasons(table, await _group(visit, table.group), now_ms),
        processes=found.processes,
        facts=_facts(table),
        same=command("amoro", "table", "show", table.table),
    )


def health_parts(table: pb.Table) -> tuple[HealthPart, ...]:
    """The parts of the score of an evaluated table; none of another."""
    if not table.HasField("health_parts"):
        return ()
    kept, files = table.health_parts, table.files
    small = f"{many(files.fragment_files, 'fragment')} and {files.undersized_files:,} undersized"
    deletes = many(files.position_delete_files, "file")
    dangling = f", {files.dangling_delete_files:,} of all deletes dangling" if files.dangling_delete_files else ""
    return (
        HealthPart(
            "small files",
            kept.small_files,
            40,
            f"{small} of {many(files.data_files, 'data file')}",
            "Merging them: minor optimizing takes fragments, major what is undersized.",
        ),
        HealthPart(
            "equality deletes",
            kept.equality_deletes,
            40,
            many(files.equality_delete_files, "file"),
            "Applying them: optimizing rewrites the data files that they delete from.",
        ),
        HealthPart(
            "position deletes",
            kept.position_deletes,
            20,
            f"{deletes}, {format_bytes(files.delete_bytes)} with equality deletes{dangling}",
            "Applying them: major and full optimizing rewrite data files with many deleted rows.",
        ),
    )


def _tabs(table: pb.Table) -> list[tuple[str, str, str]]:
    """Key, label and address of each page of the table."""
    return [(key, label, to_table(table.table, table.table_id, *filter(None, (key,)))) for key, label in TABS]


async def _trends(visit: Visit, table: pb.Table, length_ms: int, now_ms: int) -> list[Chart]:
    asked = Asked(tuple(_TRENDS), now_ms, length_ms, table=table.table)
    found = await found_series(visit, asked)
    return [drawn(found, asked, name, title) for name, title in _TRENDS.items()]


async def _group(visit: Visit, name: str) -> pb.Group | None:
    try:
        return await visit.ask("GetGroup", pb.GetGroupRequest(name=name), pb.Group)
    except NotFound:
        return None


def _facts(table: pb.Table) -> Mapping[str, Any]:
    files = table.files
    format_ = f"{(table.format or 'iceberg').capitalize()}, version {table.format_version}"
    return {
        "data": f"{many(files.data_files, 'file')}, {format_bytes(files.data_bytes)}",
        "coarse": f"{many(files.coarse_files, 'file')}, {format_bytes(files.coarse_bytes)}"
        if files.coarse_files
        else "",
        "rows": f"{files.records:,}, deletes not subtracted",
        "deletes": f"{files.equality_delete_files:,} equality, {files.position_delete_files:,} position",
        "format": format_ if table.format_version else "not known yet",
    }
