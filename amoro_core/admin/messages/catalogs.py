"""Catalogs and selected tables as messages."""

from collections.abc import Callable, Iterable

from amoro_core.admin.messages.values import milliseconds
from amoro_core.model.processes import CatalogConfig
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.services.catalog_looks import CatalogLook
from amoro_core.services.catalogs import Selected


def catalog(
    config: CatalogConfig, refusal: str | None, shown: Callable[[Iterable[tuple[str, str]]], dict[str, str]]
) -> pb.Catalog:
    """The catalog; `shown` masks secrets among properties."""
    return pb.Catalog(
        name=config.name,
        origin=config.origin,
        properties=shown(config.properties),
        site_files=[
            pb.SiteFile(name=file.name, bytes=len(file.content.encode()), properties=shown(file.properties))
            for file in config.site_files
        ],
        allowed_locations=config.allowed_locations,
        commits=refusal is None,
        refusal=refusal or "",
    )


def look(found: CatalogLook) -> pb.CatalogLook:
    """What is known of a catalog without asking it."""
    return pb.CatalogLook(
        catalog=found.catalog,
        tables=found.tables,
        tables_is_exact=found.tables_is_exact,
        heard_ms=milliseconds(found.heard_at),
        failure=found.failure,
    )


def selected(found: Selected) -> pb.SelectTablesResponse:
    """The selected tables, and the catalogs that could not be listed."""
    return pb.SelectTablesResponse(
        tables=[str(table) for table in found.tables],
        unlisted=[
            pb.UnlistedCatalog(
                catalog=name,
                code=error.code,
                exit_status=error.exit_status,
                message=error.message,
                hint=error.hint or error.remedy,
            )
            for name, error in found.unlisted
        ],
    )
