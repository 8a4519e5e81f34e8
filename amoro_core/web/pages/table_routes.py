"""The routes of a table's pages, and of the forms on them."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from amoro_core.web.pages import table, table_actions
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.table_actions import Plans
from amoro_core.web.pages.table_files import Files, ReadLimiter, Snapshots
from amoro_core.web.pages.table_verifying import Verifications


def routes(site: Site) -> Sequence[BaseRoute]:
    """The routes below /tables/T."""
    at, requests = "/tables/{table}", table_actions.Requests()
    verifications = Verifications()
    plans, files, snapshots = Plans(requests), Files(ReadLimiter()), Snapshots(ReadLimiter())
    return (
        site.page(at, table.show_table),
        site.page(f"{at}/files", files.show),
        site.page(f"{at}/files/list", files.list_now),
        site.page(f"{at}/snapshots", snapshots.show),
        site.action(f"{at}/snapshots", snapshots.read),
        site.page(f"{at}/processes", table.show_processes),
        site.page(f"{at}/properties", table.show_properties),
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
