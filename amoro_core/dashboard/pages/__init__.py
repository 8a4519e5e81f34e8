"""The dashboard's pages: a view asks operations and gives the values of its page; a template shows them."""

from starlette.routing import BaseRoute

from amoro_core.dashboard.pages import (
    catalogs,
    groups,
    journal,
    login,
    maintenance,
    optimizers,
    people,
    process_actions,
    processes,
    system,
    table_routes,
    tables,
    tokens,
    trash,
    users,
)
from amoro_core.dashboard.pages.overview import Overview
from amoro_core.dashboard.pages.processes import ProcessPage
from amoro_core.dashboard.pages.site import Site


def routes() -> list[BaseRoute]:
    """The routes of every page and of every form on them."""
    site = Site()
    return [
        site.page("/", Overview().show),
        site.page("/catalogs", catalogs.show_catalogs),
        site.action("/catalogs/{catalog}/check", catalogs.check),
        site.page("/tables", tables.show_tables),
        *table_routes.routes(site),
        site.page("/processes", processes.show_processes),
        site.page("/processes/{process}", ProcessPage().show),
        *process_actions.routes(site),
        *groups.routes(site),
        *optimizers.routes(site),
        *maintenance.routes(site),
        *trash.routes(site),
        *journal.routes(site),
        *system.routes(site),
        *users.routes(site),
        *tokens.routes(site),
        *login.routes(site),
        *people.routes(site),
    ]
