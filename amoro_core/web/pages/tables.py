"""The lists of tables and catalogs, and the page of a table, with values over time."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time, many
from amoro_core.errors import AmoroError, NotFound, TableRefused
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import ICEBERG, OptimizingStatus, Order, Origin, TableKey, TableState
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.web.charts import Chart, Line, lines
from amoro_core.web.pages.framework import (
    MOST_CHOICES,
    ROWS,
    Field,
    Listed,
    Page,
    PageRequest,
    Redirect,
    confirm_page,
    group_names,
    to,
    to_table,
    typed_lines,
    typed_properties,
    whole_number,
)

#: Parameters of the list of tables, with their values.
FILTERS: Mapping[str, Iterable[str]] = {
    **dict.fromkeys(("text", "catalog", "namespace", "group", "health_below", "after"), ()),
    "state": TableState,
    "status": OptimizingStatus,
    "enabled": ("yes", "no"),
    "refused": REFUSALS,
    "sort": TableKey,
    "order": Order,
}
_SUGGESTED = 12


async def show_tables(visit: PageRequest) -> Page:
    """Fifty tables, filtered and sorted as the query says."""
    query = dict(visit.query)
    is_enabled, refusal, score = query.pop("enabled"), query.pop("refused"), query.pop("health_below")
    request = pb.ListTablesRequest(
        **query,
        limit=ROWS,
        enabled=is_enabled == "yes" if is_enabled else None,
        refusal=refusal,
        health_below=whole_number(score, "score", 101),
    )
    response = await visit.ask(request, pb.ListTablesResponse)
    values = {
        "list": Listed("/tables", "tables", visit.query, response, response.tables),
        "catalogs": await _catalog_names(visit),
        "groups": await group_names(visit),
        "states": TableState,
        "refusals": REFUSALS,
    }
    return Page("tables.html", "Tables", values, is_live=True)


async def find(visit: PageRequest) -> Page:
    """Tables whose names have the text in them, as choices of the search."""
    response = await visit.ask(pb.ListTablesRequest(**visit.query, limit=_SUGGESTED), pb.ListTablesResponse)
    return Page("find.html", "Tables", {"tables": response.tables})


async def _catalog_names(visit: PageRequest) -> list[str]:
    response = await visit.ask(pb.ListCatalogsRequest(limit=MOST_CHOICES), pb.ListCatalogsResponse)
    return [catalog.name for catalog in response.catalogs]


async def show_catalogs(visit: PageRequest) -> Page:
    """Fifty catalogs by name, each with what is known of it without asking it, and its problems."""
    response = await visit.ask(pb.ListCatalogsRequest(limit=ROWS, **visit.query), pb.ListCatalogsResponse)
    alerts = await visit.ask(monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    values = {
        "catalogs": [
            (catalog, look, [item for item in alerts.conditions if item.labels.get("catalog") == catalog.name])
            for catalog, look in zip(response.catalogs, response.looks, strict=True)
        ],
        "list": Listed("/catalogs", "catalogs", visit.query, response, response.catalogs),
    }
    return Page("catalogs.html", "Catalogs", values)


_CATALOG_TYPES = ("rest", "sql", "hive", "glue")
CATALOG_FIELDS = ("name", "type", "uri", "warehouse", "properties", "allowed_locations")


async def ask_for_catalog(visit: PageRequest) -> Page:
    """The form of a new catalog."""
    fields = (
        Field("name", "Name", is_needed=True),
        Field("type", "Type", _CATALOG_TYPES[0], values=_CATALOG_TYPES),
        Field("uri", "Address, such as https://catalog.example/iceberg or sqlite:////data/catalog.db"),
        Field("warehouse", "Warehouse, where the catalog needs one"),
        Field("properties", "More properties, KEY=VALUE on each line", type="lines"),
        Field("allowed_locations", "Allowed locations beside those of its tables, one on each line", type="lines"),
    )
    effects = (
        "It is asked for its tables first, and is not added if it does not answer.",
        "Its tables are looked at from then on. None is optimized before it is enabled.",
    )
    same = "amoro catalog add NAME type=rest uri=https://…"
    return confirm_page("Add a catalog", effects, "Add", "/catalogs", same, fields)


async def add_catalog(visit: PageRequest) -> Redirect:
    """Add the catalog."""
    typed = visit.form
    own = {key: typed[key] for key in ("type", "uri", "warehouse") if typed[key]}
    request = pb.AddCatalogRequest(
        name=typed["name"],
        properties={**typed_properties(typed["properties"]), **own},
        allowed_locations=typed_lines(typed["allowed_locations"]),
    )
    added = await visit.ask(request, pb.Catalog)
    return Redirect(to("tables", catalog=added.name), f"{added.name} is added. Its tables are shown as they are found.")


async def check(visit: PageRequest) -> Redirect:
    """List the catalog's tables now, to see whether it answers."""
    name = visit.named("catalog")
    response = await visit.ask(pb.CheckCatalogRequest(name=name), pb.CatalogCheck)
    if not response.ok:
        return Redirect(to("catalogs"), f"{name}: [{response.code}] {response.message} {response.hint}", "bad")
    took = format_duration(response.duration_ms)
    return Redirect(to("catalogs"), f"{name} answers: {many(response.tables, 'table')}, listed in {took}.")


_HOUR_MS = 3_600_000
_HOURS = {"1h": 1, "6h": 6, "1d": 24, "24h": 24, "7d": 168, "30d": 720, "90d": 2160, "400d": 9600}
#: Ranges in milliseconds by the word in the address of a page.
RANGES = {name: hours * _HOUR_MS for name, hours in _HOURS.items()}
CHOICES = tuple(name for name in RANGES if name != "24h")  # which is 1d


_MOST_LINES = 6  # of a chart, as many as there are colours


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Series over a range of time; `label`: they are all of that one."""

    response: journal.GetSeriesResponse
    since_ms: int
    until_ms: int
    label: str

    def chart(self, title: str, *names: str, is_sum: bool = False) -> Chart:
        """The series of these names as lines, one for each label, or as their sum; a step without values is a gap."""
        own = [series for name in names for series in self.response.series if series.name == name]
        drawn = [self._line(series) for series in own]
        drawn = _sum(drawn, title) if is_sum else drawn[:_MOST_LINES]
        return lines(drawn, self.since_ms, self.until_ms, title, _writer(own[0].unit if own else ""))

    def _line(self, series: journal.Series) -> Line:
        name = series.label if series.label and not self.label else series.name.replace("-", " ")
        points = [(point.from_ms, _value(series, point)) for point in series.points]
        if series.kind != "state":
            return Line(name, points, self.response.step_s * 1000)
        # It holds until it changes: no time without a value is a gap.
        if points:
            points.append((self.until_ms, points[-1][1]))
        return Line(name, points, self.until_ms - self.since_ms)


async def read_series(
    visit: PageRequest, names: Iterable[str], length_ms: int, *, table: str = "", label: str = "", step_s: int = 0
) -> TimeSeries:
    """The series from a time that long ago until now, of a table or with a label. `step_s` 0: one that fits."""
    until_ms = round(time.time() * 1000)
    since_ms = until_ms - length_ms
    request = journal.GetSeriesRequest(
        names=names, label=label, table=table, since_ms=since_ms, until_ms=until_ms, step_s=step_s
    )
    response = await visit.ask(request, journal.GetSeriesResponse)
    return TimeSeries(response, since_ms, until_ms, label)


def _sum(series: Sequence[Line], label: str) -> list[Line]:
    """One line of the sums of them all, step by step."""
    if not series:
        return []
    points: Counter[int] = Counter()
    for item in series:
        points.update(dict(item.points))
    return [Line(label, sorted(points.items()), series[0].step_ms)]


def _value(series: journal.Series, point: journal.SeriesPoint) -> float:
    return float(point.sum) if series.kind == "total" else point.sum / max(point.n, 1)


def _writer(unit: str) -> Callable[[float], str]:
    if unit == "bytes":
        return lambda value: format_bytes(round(value))
    if unit == "seconds":
        return lambda value: format_duration(round(value * 1000))
    return lambda value: f"{value:,.3g}" if value < 1000 else format_count(round(value))


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
    links_to: str = ""  # the target of its link: process, group or queue


def reasons(table: pb.Table, group: pb.Group | None, now_ms: int) -> tuple[Reason, ...]:
    """The reasons why the table is or is not optimized now, the most urgent first. `group` None: unknown."""
    return (*_obstacles(table), *_work(table), *_back_off(table, now_ms), *_room(table, group), *_rest(table, now_ms))


def _obstacles(table: pb.Table) -> Iterator[Reason]:
    if table.status == OptimizingStatus.REFUSED:
        yield Reason("bad", "It is refused", table.status_reason)
    if not table.enabled:
        yield Reason("wait", "It is only observed", table.enabled_origin or "It was never enabled.")
    else:
        yield Reason("good", "It is enabled", table.enabled_origin)
    for blocker in table.blockers:
        until = f"Until {format_time(blocker.expires_ms)}"
        where = f" where {blocker.condition}" if blocker.condition else ""
        yield Reason("wait", f"Blocked: {', '.join(blocker.operations)}{where}", f"{until}. {blocker.reason}")


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
        tries = f"The last {table.failures} tries failed" if table.failures > 1 else "The last try failed"
        since = f"Since {format_time(table.failing_since_ms)}: " if table.failing_since_ms else ""
        yield Reason("bad", tries, f"{since}{table.failure}")
    if table.late_deletes:
        yield Reason("bad", "Rows that another application deleted came back", table.late_deletes)


def _room(table: pb.Table, group: pb.Group | None) -> Iterator[Reason]:
    if table.no_optimizer:
        yield Reason("bad", "Its tasks wait for an optimizer", table.no_optimizer, "group")
        return
    if group is None:
        return
    if group.threads and group.running_tasks >= group.threads:
        text = f"{group.name} has {many(group.threads, 'thread')}, and each has a task."
        yield Reason("wait", "Its group has no free thread", text, "group")
    for use in group.uses:
        if use.table == table.table and 0 < use.limit <= use.running_tasks:
            allowed = f"its quota of {use.quota:g} allows {many(use.limit, 'thread')} now"
            text = f"It runs {many(use.running_tasks, 'task')}; {allowed}."
            yield Reason("wait", "Its quota is used up", text, "group")


def _rest(table: pb.Table, now_ms: int) -> Iterator[Reason]:
    is_idle = table.status == OptimizingStatus.IDLE
    if is_idle and table.state in (TableState.DUE, TableState.OBSERVED):
        yield Reason("wait", "It is due", table.status_reason)
    elif is_idle and table.state != TableState.FAILING:
        reason = table.status_reason or "Nothing was found to do when it was last looked at."
        yield Reason("good" if table.enabled else "", "There is nothing to do", reason)
    if table.next_due_ms > now_ms:
        text = "Then it is due by the clock, without a new commit."
        yield Reason("", f"Next due at {format_time(table.next_due_ms)}", text)


#: The pages of a table: path below it, and label.
TABS = (
    ("", "State"),
    ("files", "Files"),
    ("snapshots", "Snapshots"),
    ("schema", "Schema"),
    ("processes", "Processes"),
    ("maintenance", "Maintenance"),
    ("properties", "Properties"),
    ("plan", "Plan"),
)
_RECENT = 8
#: Tabs that refresh themselves; the others keep what was requested or typed.
_LIVE = frozenset({"", "processes"})
_TREND = "90d"
#: Series of a table, and the titles of their charts.
_TRENDS = {"small-files": "Small files", "delete-files": "Delete files", "health": "Amoro's health score, 0 to 100"}


async def table_of(visit: PageRequest) -> pb.Table:
    """The table of the page, as the coordinator knows it. Raises TableNotFound, CatalogNotFound, InvalidArgument."""
    return await visit.ask(pb.GetTableRequest(table=visit.named("table"), known_only=True), pb.Table)


def table_page(table: pb.Table, template: str, tab: str, **values: object) -> Page:
    """A page of the table: its values, with those of the frame around all of its pages."""
    at = {key: to_table(table.table, table.table_id, *filter(None, (key,))) for key, _ in TABS}
    shared = {"table": table, "tab": tab, "tabs": TABS, "at": at, **values}
    return Page(template, f"{table.table}: {dict(TABS)[tab]}", shared, is_live=tab in _LIVE)


async def show_table(visit: PageRequest) -> Page:
    """Health, reasons and last processes; for an unknown table its last events."""
    chosen = visit.query["range"] or _TREND
    try:
        table = await table_of(visit)
    except NotFound as error:
        return await _unknown_table(visit, error)
    if table.format not in ("", ICEBERG):
        with suppress(AmoroError):  # what is known is shown, then
            table = await visit.ask(pb.GetTableRequest(table=table.table), pb.Table)
    request = pb.ListProcessesRequest(table=str(table.table_id), limit=_RECENT)
    response = await visit.ask(request, pb.ListProcessesResponse)
    series = await read_series(visit, _TRENDS, RANGES[chosen], table=table.table)
    return table_page(
        table,
        "table.html",
        "",
        charts=[series.chart(title, name) for name, title in _TRENDS.items()],
        ranges=CHOICES,
        chosen=chosen,
        reasons=reasons(table, await _group(visit, table.group), round(time.time() * 1000)),
        processes=response.processes,
    )


async def _unknown_table(visit: PageRequest, error: NotFound) -> Page:
    """404 with the last events of a table of that name."""
    name = visit.named("table")
    request = journal.ListEventsRequest(table=name, limit=_RECENT)
    response, hint = journal.ListEventsResponse(), ""
    try:
        response = await visit.ask(request, journal.ListEventsResponse)
    except NotFound as unknown:
        hint = unknown.hint
    text = name.rpartition(".")[2].strip("`")
    values = {"error": error, "name": name, "events": response.events, "text": text, "hint": hint}
    return Page("table_gone.html", "Not found", values, 404)


async def _group(visit: PageRequest, name: str) -> pb.Group | None:
    try:
        return await visit.ask(pb.GetGroupRequest(name=name), pb.Group)
    except NotFound:
        return None


async def show_processes(visit: PageRequest) -> Page:
    """The processes of every action on the table, the newest first."""
    table = await table_of(visit)
    request = pb.ListProcessesRequest(table=str(table.table_id), limit=ROWS, **visit.query)
    response = await visit.ask(request, pb.ListProcessesResponse)
    path = to_table(table.table, table.table_id, "processes")
    listed = Listed(path, "processes", visit.query, response, response.processes)
    return table_page(table, "table_processes.html", "processes", list=listed, statuses=ProcessStatus)


async def show_properties(visit: PageRequest) -> Page:
    """The properties that control the table's work, each with its default and its origin."""
    origin = visit.query["origin"]
    table, refused, response = await table_of(visit), "", pb.GetTablePropertiesResponse()
    request = pb.GetTablePropertiesRequest(table=table.table, known_only=True)
    try:
        response = await visit.ask(request, pb.GetTablePropertiesResponse)
    except TableRefused as error:
        refused = error.message
    return table_page(
        table,
        "table_properties.html",
        "properties",
        properties=response.properties,
        shown=[setting for setting in response.properties if origin in ("", setting.origin.partition(" ")[0])],
        origin=origin,
        origins=Origin,
        refused=refused,
    )
