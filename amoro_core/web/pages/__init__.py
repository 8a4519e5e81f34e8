"""The dashboard's pages: a view asks operations and gives the values of its page; a template shows them."""

from collections.abc import Sequence
from functools import partial

from starlette.routing import BaseRoute

from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import Origin
from amoro_core.web.pages import groups, login, maintenance, overview, processes, sql, table_actions, tables, users
from amoro_core.web.pages.framework import Site
from amoro_core.web.pages.table_files import Files, ReadLimiter, Schemas, Snapshots


def routes(site: Site | None = None) -> list[BaseRoute]:
    """The routes of every page and of every form on them."""
    site = site or Site()
    return [
        site.page("/", overview.show_overview),
        site.page("/catalogs", tables.show_catalogs, after=()),
        *site.confirmed("/catalogs/add", tables.ask_for_catalog, tables.add_catalog, *tables.CATALOG_FIELDS),
        site.action("/catalogs/{catalog}/check", tables.check),
        site.page("/tables", tables.show_tables, **tables.FILTERS),
        site.page("/find", tables.find, text=()),
        *_table_routes(site),
        *sql.routes(site),
        site.page(
            "/processes",
            processes.show_processes,
            table=(),
            type=(),
            status=ProcessStatus,
            since=(),
            until=(),
            after=(),
        ),
        site.page("/processes/{process}", processes.show_process, status=TaskStatus, after=()),
        *maintenance.process_action_routes(site),
        *groups.routes(site),
        *maintenance.routes(site),
        *overview.routes(site),
        *overview.system_routes(site),
        *users.routes(site),
        *login.routes(site),
        *login.oidc_routes(site),
    ]


def _table_routes(site: Site) -> Sequence[BaseRoute]:
    """The routes below /tables/T."""
    at, requests = "/tables/{table}", table_actions.Requests()
    verifications = table_actions.Verifications()
    plans, files = table_actions.Plans(requests), Files(ReadLimiter())
    snapshots, schemas = Snapshots(ReadLimiter()), Schemas(ReadLimiter())
    return (
        site.page(at, tables.show_table, range=tables.RANGES),
        site.page(f"{at}/files", files.show),
        site.page(f"{at}/files/list", files.list_now, after=(), snapshot=()),
        site.page(f"{at}/snapshots", snapshots.show, before=(), after=()),
        site.action(f"{at}/snapshots", snapshots.read),
        site.page(f"{at}/schema", schemas.show),
        site.action(f"{at}/schema", schemas.read),
        site.page(f"{at}/processes", tables.show_processes, status=ProcessStatus, after=()),
        site.page(f"{at}/properties", tables.show_properties, origin=Origin),
        site.page(f"{at}/plan", plans.show, kept=()),
        site.action(f"{at}/plan", plans.make, "type", "where", "columns", "strategy"),
        site.action(f"{at}/plan/run", plans.carry_out, "kept"),
        *site.confirmed(
            f"{at}/verify", verifications.ask, verifications.begin, "before", "after", before=(), after=(), kept=()
        ),
        *site.confirmed(f"{at}/enable", table_actions.ask_enable, partial(table_actions.set_enabled, enabled=True)),
        *site.confirmed(f"{at}/disable", table_actions.ask_disable, partial(table_actions.set_enabled, enabled=False)),
        *site.confirmed(f"{at}/block", table_actions.ask_block, table_actions.block, "minutes", "reason"),
        *site.confirmed(f"{at}/unblock/{{blocker}}", table_actions.ask_unblock, table_actions.unblock),
        *site.confirmed(f"{at}/optimize", table_actions.ask_optimize, requests.optimize, "type", "where"),
    )
