"""The dashboard's pages: a view asks operations and gives the values of its page; a template shows them."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from amoro_core.web.pages import groups, journal, login, maintenance, overview, processes, table_actions, tables, users
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.processes import ProcessPage
from amoro_core.web.pages.table_files import Files, ReadLimiter, Snapshots


def routes() -> list[BaseRoute]:
    """The routes of every page and of every form on them."""
    site = Site()
    return [
        site.page("/", overview.show_overview),
        site.page("/catalogs", tables.show_catalogs),
        site.action("/catalogs/{catalog}/check", tables.check),
        site.page("/tables", tables.show_tables),
        *_table_routes(site),
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


def _table_routes(site: Site) -> Sequence[BaseRoute]:
    """The routes below /tables/T."""
    at, requests = "/tables/{table}", table_actions.Requests()
    verifications = table_actions.Verifications()
    plans, files, snapshots = table_actions.Plans(requests), Files(ReadLimiter()), Snapshots(ReadLimiter())
    return (
        site.page(at, tables.show_table),
        site.page(f"{at}/files", files.show),
        site.page(f"{at}/files/list", files.list_now),
        site.page(f"{at}/snapshots", snapshots.show),
        site.action(f"{at}/snapshots", snapshots.read),
        site.page(f"{at}/processes", tables.show_processes),
        site.page(f"{at}/properties", tables.show_properties),
        site.page(f"{at}/plan", plans.show),
        site.action(f"{at}/plan", plans.make),
        site.action(f"{at}/plan/run", plans.carry_out),
        site.page(f"{at}/verify", verifications.ask),
        site.action(f"{at}/verify", verifications.begin),
        site.page(f"{at}/enable", table_actions.ask_enable),
        site.action(f"{at}/enable", table_actions.enable),
        site.page(f"{at}/disable", table_actions.ask_disable),
        site.action(f"{at}/disable", table_actions.disable),
        site.page(f"{at}/block", table_actions.ask_block),
        site.action(f"{at}/block", table_actions.block),
        site.page(f"{at}/unblock/{{blocker}}", table_actions.ask_unblock),
        site.action(f"{at}/unblock/{{blocker}}", table_actions.unblock),
        site.page(f"{at}/optimize", table_actions.ask_optimize),
        site.action(f"{at}/optimize", requests.optimize),
    )
