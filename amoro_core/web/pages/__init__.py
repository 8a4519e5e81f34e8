"""The dashboard's pages: a view asks operations and gives the values of its page; a template shows them."""

from starlette.routing import BaseRoute

from amoro_core.web.pages import (
    groups,
    journal,
    login,
    maintenance,
    overview,
    processes,
    table_routes,
    tables,
    users,
)
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.overview import Overview
from amoro_core.web.pages.processes import ProcessPage


def routes() -> list[BaseRoute]:
    """The routes of every page and of every form on them."""
    site = Site()
    return [
        site.page("/", Overview().show),
        site.page("/catalogs", tables.show_catalogs),
        site.action("/catalogs/{catalog}/check", tables.check),
        site.page("/tables", tables.show_tables),
        *table_routes.routes(site),
        site.page("/processes", processes.show_processes),
        site.page("/processes/{process}", ProcessPage().show),
        *maintenance.process_action_routes(site),
        *groups.routes(site),
        *groups.optimizer_routes(site),
        *maintenance.routes(site),
        *maintenance.trash_routes(site),
        *journal.routes(site),
        *overview.system_routes(site),
        *users.routes(site),
        *users.token_routes(site),
        *login.routes(site),
        *login.oidc_routes(site),
    ]
