"""The catalogs: what can be done with each, and whether it answers."""

from collections.abc import Sequence

from amoro_core.dashboard.pages.lists import ROWS, Listed
from amoro_core.dashboard.pages.urls import command, to
from amoro_core.dashboard.pages.visits import Gone, Shown, Visit
from amoro_core.documents.quantities import format_duration, many
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.records import record


@record
class ShownCatalog:
    """A catalog with what is known of it without asking it, and what is wrong."""

    catalog: pb.Catalog
    look: pb.CatalogLook
    troubles: Sequence[monitoring.Condition]

    @property
    def tables(self) -> str:
        """The number of its known tables; "10,000+" where they were not counted to the end."""
        return f"{self.look.tables:,}" + ("" if self.look.tables_is_exact else "+")


async def show_catalogs(visit: Visit) -> Shown:
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
    return Shown("catalogs.html", "Catalogs", values)


async def check(visit: Visit) -> Gone:
    """List the catalog's tables now, and tell whether it answered."""
    await visit.form()
    name = visit.named("catalog")
    found = await visit.ask("CheckCatalog", pb.CheckCatalogRequest(name=name), pb.CatalogCheck)
    if not found.ok:
        return Gone(to("catalogs"), f"{name}: [{found.code}] {found.message} {found.hint}", "bad")
    took = format_duration(found.duration_ms)
    return Gone(to("catalogs"), f"{name} answers: {many(found.tables, 'table')}, listed in {took}.")
