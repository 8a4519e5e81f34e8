"""The lists of tables and catalogs, and the page of a table, with values over time."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time, many
from amoro_core.errors import NotFound, TableRefused
from amoro_core.model.optimizing_config import Origin
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingStatus, Order, TableKey
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.web.charts import Chart, Line, lines
from amoro_core.web.pages.page_request import (
    ROWS,
    Listed,
    Page,
    PageRequest,
    Redirect,
    command,
    to,
    to_table,
    whole_number,
)

_TABLE_STATUSES = tuple(status.value for status in OptimizingStatus)
_KEYS = tuple(key.value for key in TableKey)
_ORDERS = tuple(order.value for order in Order)
_REFUSALS = tuple(REFUSALS)
_YES_OR_NO = ("yes", "no")
_MOST_CHOICES = 500  # in a list to choose from; a name that is not among them is typed as text


async def show_tables(visit: PageRequest) -> Page:
    """Fifty tables, filtered and sorted as the query says."""
    query = visit.query(
        text=(),
        catalog=(),
        namespace=(),
        status=_TABLE_STATUSES,
        group=(),
        enabled=_YES_OR_NO,
        refused=_REFUSALS,
        health_below=(),
        sort=_KEYS,
        order=_ORDERS,
        after=(),
    )
    filters = {key: value for key, value in query.items() if key not in ("sort", "order", "after")}
    response = await visit.ask("ListTables", _request(query), pb.ListTablesResponse)
    listed = Listed(
        "/tables",
        "tables",
        filters,
        len(response.tables),
        response.total,
        response.next,
        query["after"],
        sort=query["sort"] or TableKey.NAME,
        order=query["order"],
        total_is_exact=response.total_is_exact,
        default_sort=TableKey.NAME,
    )
    values = {
        "tables": response.tables,
        "list": listed,
        "catalogs": await catalog_names(visit),
        "groups": await group_names(visit),
        "statuses": _TABLE_STATUSES,
        "refusals": _REFUSALS,
        "same": command("amoro", "table", "list", *_options(query)),
    }
    return Page("tables.html", "Tables", values, is_live=True)


def _request(wanted: Mapping[str, str]) -> pb.ListTablesRequest:
    below = whole_number(wanted["health_below"], "score", 101)
    return pb.ListTablesRequest(
        catalog=wanted["catalog"],
        status=wanted["status"],
        group=wanted["group"],
        limit=ROWS,
        after=wanted["after"],
        sort=wanted["sort"],
        order=wanted["order"],
        text=wanted["text"],
        namespace=wanted["namespace"],
        enabled=None if not wanted["enabled"] else wanted["enabled"] == "yes",
        refusal=wanted["refused"],
        health_below=below or 0,
    )


def _options(wanted: Mapping[str, str]) -> list[str]:
    known = ("catalog", "status", "group")
    return [word for key in known if wanted[key] for word in (f"--{key}", wanted[key])]


async def catalog_names(visit: PageRequest) -> list[str]:
    """The names of the catalogs, to choose from."""
    response = await visit.ask("ListCatalogs", pb.ListCatalogsRequest(limit=_MOST_CHOICES), pb.ListCatalogsResponse)
    return [one.name for one in response.catalogs]


async def group_names(visit: PageRequest) -> list[str]:
    """The names of the optimizer groups, to choose from."""
    response = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=_MOST_CHOICES), pb.ListGroupsResponse)
    return [one.name for one in response.groups]


@dataclass(frozen=True, slots=True)
class ShownCatalog:
    """A catalog as the store has it, and its problem."""

    catalog: pb.Catalog
    look: pb.CatalogLook
    troubles: Sequence[monitoring.Condition]

    @property
    def tables(self) -> str:
        """The number of its known tables; "10,000+" where they were not counted to the end."""
        return f"{self.look.tables:,}" + ("" if self.look.tables_is_exact else "+")


async def show_catalogs(visit: PageRequest) -> Page:
    """Fifty catalogs by name."""
    query = visit.query(after=())
    request = pb.ListCatalogsRequest(limit=ROWS, after=query["after"])
    response = await visit.ask("ListCatalogs", request, pb.ListCatalogsResponse)
    held = await visit.ask("ListConditions", monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    shown = [
        ShownCatalog(one, look, [item for item in held.conditions if item.labels.get("catalog") == one.name])
        for one, look in zip(response.catalogs, response.looks, strict=True)
    ]
    listed = Listed("/catalogs", "catalogs", {}, len(shown), response.total, response.next, query["after"])
    values = {"catalogs": shown, "list": listed, "same": command("amoro", "catalog", "list")}
    return Page("catalogs.html", "Catalogs", values)


async def check(visit: PageRequest) -> Redirect:
    """List the catalog's tables now, to see whether it answers."""
    await visit.form()
    name = visit.named("catalog")
    response = await visit.ask("CheckCatalog", pb.CheckCatalogRequest(name=name), pb.CatalogCheck)
    if not response.ok:
        return Redirect(to("catalogs"), f"{name}: [{response.code}] {response.message} {response.hint}", "bad")
    took = format_duration(response.duration_ms)
    return Redirect(to("catalogs"), f"{name} answers: {many(response.tables, 'table')}, listed in {took}.")


HOUR_MS = 3_600_000
#: Ranges by the word in the address of a page.
RANGES = {
    "1h": HOUR_MS,
    "24h": 24 * HOUR_MS,
    "7d": 7 * 24 * HOUR_MS,
    "30d": 30 * 24 * HOUR_MS,
    "90d": 90 * 24 * HOUR_MS,
    "400d": 400 * 24 * HOUR_MS,
}


@dataclass(frozen=True, slots=True)
class SeriesRequest:
    """Series to draw: their names, up to when, for how long, and whose. `step_s` 0: one that fits."""

    names: Sequence[str]
    until_ms: int
    length_ms: int
    table: str = ""
    label: str = ""
    step_s: int = 0


async def found_series(visit: PageRequest, wanted: SeriesRequest) -> journal.GetSeriesResponse:
    """The series, in the order of the requested names."""
    request = journal.GetSeriesRequest(
        names=wanted.names,
        label=wanted.label,
        table=wanted.table,
        since_ms=wanted.until_ms - wanted.length_ms,
        until_ms=wanted.until_ms,
        step_s=wanted.step_s,
    )
    return await visit.ask("GetSeries", request, journal.GetSeriesResponse)


def drawn(
    result: journal.GetSeriesResponse, wanted: SeriesRequest, name: str, title: str, *, added: bool = False
) -> Chart:
    """The series of that name as lines, one for each label, or as their sum; a step without values is a gap."""
    own = [one for one in result.series if one.name == name]
    unit = own[0].unit if own else ""
    value = [_line(one, result.step_s * 1000, wanted) for one in own]
    if added:
        value = _added(value, name)
    return lines(value, wanted.until_ms - wanted.length_ms, wanted.until_ms, title, _written(unit))


def _line(one: journal.Series, step_ms: int, wanted: SeriesRequest) -> Line:
    points = [(point.from_ms, _value(one, point)) for point in one.points]
    if one.kind != "state":
        return Line(one.label or one.name, points, step_ms)
    # It holds until it changes: no time without a value is a gap.
    if points:
        points.append((wanted.until_ms, points[-1][1]))
    return Line(one.label or one.name, points, wanted.length_ms)


def _added(result: Sequence[Line], label: str) -> list[Line]:
    """One line of the sums of them all, step by step."""
    if not result:
        return []
    points: Counter[int] = Counter()
    for one in result:
        points.update(dict(one.points))
    return [Line(label, sorted(points.items()), result[0].step_ms)]


def _value(one: journal.Series, point: journal.SeriesPoint) -> float:
    return float(point.sum) if one.kind == "total" else point.sum / max(point.n, 1)


def _written(unit: str) -> Callable[[float], str]:
    if unit == "bytes":
        return lambda value: format_bytes(round(value))
    if unit == "seconds":
        return lambda value: format_duration(round(value * 1000))
    return "{:,.3g}".format


_AT_WORK = {
    OptimizingStatus.PLANNING: "It is being planned.",
    OptimizingStatus.MINOR_OPTIMIZING: "It is being optimized: minor.",
    OptimizingStatus.MAJOR_OPTIMIZING: "It is being optimized: major.",
    OptimizingStatus.FULL_OPTIMIZING: "It is being optimized: full.",
    OptimizingStatus.COMMITTING: "Its rewritten files are being committed.",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that holds the table back or drives it. `look`: good, busy, wait or bad, as badges have it."""

    look: str
    title: str
    text: str = ""
    links_to: str = ""  # the target of its link: process, group, enable, block


def reasons(table: pb.Table, group: pb.Group | None, now_ms: int) -> tuple[Reason, ...]:
    """The reasons why the table is or is not optimized now, the most urgent first. `group` None: unknown."""
    return (*_held(table), *_work(table), *_back_off(table, now_ms), *_room(table, group), *_evaluated(table, now_ms))


def _held(table: pb.Table) -> Iterator[Reason]:
    if table.status == OptimizingStatus.REFUSED:
        yield Reason("bad", "It is refused", table.status_reason)
    if not table.enabled:
        yield Reason("wait", "It is only observed", table.enabled_origin or "It was never enabled.", "enable")
    else:
        yield Reason("good", "It is enabled", table.enabled_origin)
    for blocker in table.blockers:
        until = f"Until {format_time(blocker.expires_ms)}"
        yield Reason("wait", f"Blocked: {', '.join(blocker.operations)}", f"{until}. {blocker.reason}", "block")


def _work(table: pb.Table) -> Iterator[Reason]:
    if values := _AT_WORK.get(OptimizingStatus(table.status)):
        yield Reason("busy", values, table.status_reason, "process" if table.process_id else "")
    elif table.process_id:
        yield Reason("busy", "A process has not ended.", table.status_reason, "process")
    if table.status == OptimizingStatus.PENDING:
        yield Reason("wait", "It waits for its plan.", table.status_reason, "queue")


def _back_off(table: pb.Table, now_ms: int) -> Iterator[Reason]:
    if table.retry_at_ms > now_ms:
        yield Reason(
            "wait", f"It is tried again at {format_time(table.retry_at_ms)}", "After failures it is left alone."
        )
    if table.failure:
        yield Reason("bad", "The last try failed", table.failure)
    if table.late_deletes:
        yield Reason("bad", "Rows that another application deleted came back", table.late_deletes)


def _room(table: pb.Table, group: pb.Group | None) -> Iterator[Reason]:
    if table.no_optimizer:
        yield Reason("bad", "No optimizer takes its tasks", table.no_optimizer, "group")
        return
    if group is None:
        return
    if group.threads and group.running_tasks >= group.threads:
        text = f"Each of the {format_count(group.threads)} threads of {group.name} has a task."
        yield Reason("wait", "Its group has no free thread", text, "group")
    for use in group.uses:
        if use.table == table.table and 0 < use.limit <= use.running_tasks:
            text = f"It runs {use.running_tasks} tasks; its quota of {use.quota:g} allows {use.limit} threads now."
            yield Reason("wait", "Its quota is used up", text, "group")


def _evaluated(table: pb.Table, now_ms: int) -> Iterator[Reason]:
    if table.status == OptimizingStatus.IDLE:
        known = table.status_reason or "Nothing was found to do when it was last looked at."
        yield Reason("good" if table.enabled else "", "There is nothing to do", known)
    if table.next_due_ms > now_ms:
        text = "Then it is due by the clock, without a new commit."
        yield Reason("", f"Next due at {format_time(table.next_due_ms)}", text)


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
#: Tabs that refresh themselves; the others keep what was requested or typed.
_LIVE = frozenset({"", "processes"})
_TREND = "90d"
#: Series of a table, and the titles of their charts.
_TRENDS = {
    "health": "Health over time",
    "small-files": "Small files over time",
    "delete-files": "Delete files over time",
}


@dataclass(frozen=True, slots=True)
class HealthPart:
    """A part of the health score: the points that are left, and how to regain the lost ones."""

    name: str
    left: int
    most: int
    found: str
    mended_by: str

    @property
    def lost(self) -> int:
        """The points that are missing."""
        return self.most - self.left


async def table_of(visit: PageRequest) -> pb.Table:
    """The table of the page, as the coordinator knows it. Raises TableNotFound, CatalogNotFound, InvalidArgument."""
    return await visit.ask("GetTable", pb.GetTableRequest(table=visit.named("table"), known_only=True), pb.Table)


def table_page(table: pb.Table, template: str, tab: str, **values: object) -> Page:
    """A page of the table: its values, with those of the frame around all of its pages."""
    label = dict(TABS)[tab]
    shown = {"table": table, "tab": tab, "tabs": _tabs(table), **values}
    return Page(template, f"{table.table}: {label}", shown, is_live=tab in _LIVE)


async def show_table(visit: PageRequest) -> Page:
    """Health, reasons and last processes; for an unknown table its last events."""
    chosen = visit.query(range=RANGES)["range"] or _TREND
    try:
        table = await table_of(visit)
    except NotFound as error:
        return await _gone(visit, error)
    return await _show_known(visit, table, chosen)


async def _gone(visit: PageRequest, error: NotFound) -> Page:
    """404 with the last events of a table of that name."""
    name = visit.named("table")
    request = journal.ListEventsRequest(table=name, limit=_RECENT)
    response, hint = journal.ListEventsResponse(), ""
    try:
        response = await visit.ask("ListEvents", request, journal.ListEventsResponse)
    except NotFound as unknown:
        hint = unknown.hint
    text = name.rpartition(".")[2].strip("`")
    values = {"error": error, "name": name, "events": response.events, "text": text, "hint": hint}
    return Page("table_gone.html", "Not found", values, 404)


async def _show_known(visit: PageRequest, table: pb.Table, chosen: str) -> Page:
    request = pb.ListProcessesRequest(table=str(table.table_id), limit=_RECENT)
    response = await visit.ask("ListProcesses", request, pb.ListProcessesResponse)
    now_ms = int(time.time() * 1000)
    return table_page(
        table,
        "table.html",
        "",
        parts_of_health=health_parts(table),
        charts=await _trends(visit, table, RANGES[chosen], now_ms),
        ranges=[(name, name == chosen) for name in RANGES],
        reasons=reasons(table, await _group(visit, table.group), now_ms),
        processes=response.processes,
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


async def _trends(visit: PageRequest, table: pb.Table, length_ms: int, now_ms: int) -> list[Chart]:
    wanted = SeriesRequest(tuple(_TRENDS), now_ms, length_ms, table=table.table)
    result = await found_series(visit, wanted)
    return [drawn(result, wanted, name, title) for name, title in _TRENDS.items()]


async def _group(visit: PageRequest, name: str) -> pb.Group | None:
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


_STATUSES = tuple(status.value for status in ProcessStatus)
_ORIGINS = tuple(origin.value for origin in Origin)


async def show_processes(visit: PageRequest) -> Page:
    """The processes of every action on the table, the newest first."""
    query, table = visit.query(status=_STATUSES, after=()), await table_of(visit)
    request = pb.ListProcessesRequest(
        table=str(table.table_id), status=query["status"], limit=ROWS, after=query["after"]
    )
    response = await visit.ask("ListProcesses", request, pb.ListProcessesResponse)
    path = to_table(table.table, table.table_id, "processes")
    listed = Listed(
        path,
        "processes",
        {"status": query["status"]},
        len(response.processes),
        response.total,
        response.next,
        query["after"],
    )
    return table_page(
        table,
        "table_processes.html",
        "processes",
        processes=response.processes,
        list=listed,
        statuses=_STATUSES,
        same=command("amoro", "process", "list", "--table", table.table),
    )


async def show_properties(visit: PageRequest) -> Page:
    """The properties that control the table's work, each with its default and its origin."""
    origin = visit.query(origin=_ORIGINS)["origin"]
    table, refused, response = await table_of(visit), "", pb.GetTablePropertiesResponse()
    request = pb.GetTablePropertiesRequest(table=table.table, known_only=True)
    try:
        response = await visit.ask("GetTableProperties", request, pb.GetTablePropertiesResponse)
    except TableRefused as error:
        refused = error.message
    return table_page(
        table,
        "table_properties.html",
        "properties",
        properties=response.properties,
        shown=[one for one in response.properties if origin in ("", one.origin)],
        origin=origin,
        origins=_ORIGINS,
        refused=refused,
        same=command("amoro", "table", "properties", table.table),
    )
