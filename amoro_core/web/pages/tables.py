"""The list of tables and the list of catalogs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amoro_core.documents.formatting import format_duration, many
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.tables import OptimizingStatus, Order, TableKey
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.web.pages.page_request import ROWS, Listed, Page, PageRequest, Redirect, command, to, whole_number

_STATUSES = tuple(status.value for status in OptimizingStatus)
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
        status=_STATUSES,
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
        "statuses": _STATUSES,
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
