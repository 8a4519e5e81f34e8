"""The list of tables."""

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
    asked = visit.query(
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
    filters = {key: value for key, value in asked.items() if key not in ("sort", "order", "after")}
    found = await visit.ask("ListTables", _request(asked), pb.ListTablesResponse)
    listed = Listed(
        "/tables",
        "tables",
        filters,
        len(found.tables),
        found.total,
        found.next,
        asked["after"],
        sort=asked["sort"] or TableKey.NAME,
        order=asked["order"],
        total_is_exact=found.total_is_exact,
        default_sort=TableKey.NAME,
    )
    values = {
        "tables": found.tables,
        "list": listed,
        "catalogs": await catalog_names(visit),
        "groups": await group_names(visit),
        "statuses": _STATUSES,
        "refusals": _REFUSALS,
        "same": command("amoro", "table", "list", *_options(asked)),
    }
    return Page("tables.html", "Tables", values, is_live=True)


def _request(asked: Mapping[str, str]) -> pb.ListTablesRequest:
    below = whole_number(asked["health_below"], "score", 101)
    return pb.ListTablesRequest(
        catalog=asked["catalog"],
        status=asked["status"],
        group=asked["group"],
        limit=ROWS,
        after=asked["after"],
        sort=asked["sort"],
        order=asked["order"],
        text=asked["text"],
        namespace=asked["namespace"],
        enabled=None if not asked["enabled"] else asked["enabled"] == "yes",
        refusal=asked["refused"],
        health_below=below or 0,
    )


def _options(asked: Mapping[str, str]) -> list[str]:
    known = ("catalog", "status", "group")
    return [word for key in known if asked[key] for word in (f"--{key}", asked[key])]


async def catalog_names(visit: PageRequest) -> list[str]:
    """The names of the catalogs, to choose from."""
    found = await visit.ask("ListCatalogs", pb.ListCatalogsRequest(limit=_MOST_CHOICES), pb.ListCatalogsResponse)
    return [one.name for one in found.catalogs]


async def group_names(visit: PageRequest) -> list[str]:
    """The names of the optimizer groups, to choose from."""
    found = await visit.ask("ListGroups", pb.ListGroupsRequest(limit=_MOST_CHOICES), pb.ListGroupsResponse)
    return [one.name for one in found.groups]


@dataclass(frozen=True, slots=True)
class ShownCatalog:
    """A catalog with what is known of it without asking it, and what is wrong."""

    catalog: pb.Catalog
    look: pb.CatalogLook
    troubles: Sequence[monitoring.Condition]

    @property
    def tables(self) -> str:
        """The number of its known tables; "10,000+" where they were not counted to the end."""
        return f"{self.look.tables:,}" + ("" if self.look.tables_is_exact else "+")


async def show_catalogs(visit: PageRequest) -> Page:
    """Fifty catalogs by name."""
    asked = visit.query(after=())
    request = pb.ListCatalogsRequest(limit=ROWS, after=asked["after"])
    found = await visit.ask("ListCatalogs", request, pb.ListCatalogsResponse)
    held = await visit.ask("ListConditions", monitoring.ListConditionsRequest(), monitoring.ListConditionsResponse)
    shown = [
        ShownCatalog(one, look, [item for item in held.conditions if item.labels.get("catalog") == one.name])
        for one, look in zip(found.catalogs, found.looks, strict=True)
    ]
    listed = Listed("/catalogs", "catalogs", {}, len(shown), found.total, found.next, asked["after"])
    values = {"catalogs": shown, "list": listed, "same": command("amoro", "catalog", "list")}
    return Page("catalogs.html", "Catalogs", values)


async def check(visit: PageRequest) -> Redirect:
    """List the catalog's tables now, and tell whether it answered."""
    await visit.form()
    name = visit.named("catalog")
    found = await visit.ask("CheckCatalog", pb.CheckCatalogRequest(name=name), pb.CatalogCheck)
    if not found.ok:
        return Redirect(to("catalogs"), f"{name}: [{found.code}] {found.message} {found.hint}", "bad")
    took = format_duration(found.duration_ms)
    return Redirect(to("catalogs"), f"{name} answers: {many(found.tables, 'table')}, listed in {took}.")
