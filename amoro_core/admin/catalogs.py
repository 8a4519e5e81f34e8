"""Operations on catalogs, and on policies for their tables."""

import time
from functools import partial

from amoro_core.admin.context import Call, Services, as_message, require
from amoro_core.errors import AmoroError, CatalogUnavailable, InvalidArgument
from amoro_core.model.paging import Window
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier, dotted, parse_namespace
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, masked, without_secrets
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots
from amoro_core.protocol.operations import CHECKING
from amoro_core.protocol.snapshots_pb2 import AppliedPolicies, ApplyPoliciesRequest, GetPoliciesRequest, Policies
from amoro_core.services.catalogs import CatalogChange, table_request


def add_catalog(services: Services, request: pb.AddCatalogRequest, call: Call) -> pb.Catalog:
    """Add the catalog, and start the discovery of its tables."""
    config = CatalogConfig(request.name, tuple(sorted(request.properties.items())), tuple(request.allowed_locations))
    added = services.catalogs.add(config, dict(request.site_files))
    services.program.explore()
    return _catalog(services, added)


def get_catalog(services: Services, request: pb.GetCatalogRequest, call: Call) -> pb.Catalog:
    """The catalog of that name."""
    return _catalog(services, services.catalogs.get(request.name))


def check_catalog(services: Services, request: pb.CheckCatalogRequest, call: Call) -> pb.CatalogCheck:
    """Whether the catalog lists its tables now."""
    services.catalogs.get(request.name)
    began = time.monotonic()
    try:
        tables = len(services.catalogs.listed(request.name))
    except AmoroError as error:
        services.catalogs.note_answer(request.name, error)
        return _no_answer(request.name, error, _since(began))
    services.catalogs.note_answer(request.name, None)
    return pb.CatalogCheck(name=request.name, ok=True, tables=tables, duration_ms=_since(began))


def late_check(request: pb.CheckCatalogRequest) -> pb.CatalogCheck:
    """The answer where the catalog has not answered in time."""
    seconds = CHECKING.total_seconds()
    error = CatalogUnavailable(f"catalog {request.name} has not answered within {seconds:g} s")
    return _no_answer(request.name, error, round(seconds * 1000))


def update_catalog(services: Services, request: pb.UpdateCatalogRequest, call: Call) -> pb.Catalog:
    """Change the configuration of the catalog, and start the discovery of its tables."""
    change = CatalogChange(
        dict(request.properties),
        frozenset(request.removed_properties),
        tuple(request.allowed_locations),
        frozenset(request.removed_locations),
        dict(request.site_files),
        frozenset(request.removed_site_files),
    )
    condition = call.condition(partial(_catalog, services))
    updated = services.catalogs.update(request.name, change, condition)
    services.program.explore()
    return _catalog(services, updated)


def remove_catalog(services: Services, request: pb.RemoveCatalogRequest, call: Call) -> pb.RemoveCatalogResponse:
    """Forget the catalog and its tables; the tables themselves stay."""
    return pb.RemoveCatalogResponse(name=request.name, tables=services.catalogs.remove(request.name))


def list_catalogs(services: Services, request: pb.ListCatalogsRequest, call: Call) -> pb.ListCatalogsResponse:
    """Catalogs by name, with what is known of each without asking it."""
    page = services.catalogs.page(Window(request.limit, request.after))
    messages = [_catalog(services, config) for config in page.items]
    looks = services.catalogs.looks([config.name for config in page.items])
    looks_messages = [as_message(pb.CatalogLook, catalog_look) for catalog_look in looks]
    return pb.ListCatalogsResponse(catalogs=messages, next=page.next, total=page.total, looks=looks_messages)


def create_namespace(services: Services, request: snapshots.CreateNamespaceRequest, call: Call) -> snapshots.Namespace:
    """Create a namespace of an internal catalog."""
    catalog, space = _namespace(request.namespace, "CreateNamespace", call)
    with services.own_catalogs.opened(catalog) as (own, _):
        own.add_namespace(space, dict(request.properties))
    return snapshots.Namespace(namespace=request.namespace, properties=request.properties, is_done=True)


def list_namespaces(
    services: Services, request: snapshots.ListNamespacesRequest, call: Call
) -> snapshots.ListNamespacesResponse:
    """The namespaces of an internal catalog, nested ones after those that they are in."""
    with services.own_catalogs.opened(request.catalog) as (own, _):
        namespaces = [
            snapshots.Namespace(namespace=dotted((request.catalog, *item)), properties=own.namespace_properties(item))
            for item in own.every_namespace()
        ]
    return snapshots.ListNamespacesResponse(namespaces=namespaces)


def drop_namespace(services: Services, request: snapshots.DropNamespaceRequest, call: Call) -> snapshots.Namespace:
    """Drop an empty namespace of an internal catalog."""
    catalog, space = _namespace(request.namespace, "DropNamespace", call)
    with services.own_catalogs.opened(catalog) as (own, _):
        own.remove_namespace(space, dry_run=request.dry_run)
    return snapshots.Namespace(namespace=request.namespace, is_done=not request.dry_run)


def _namespace(text: str, method: str, call: Call) -> tuple[str, tuple[str, ...]]:
    """The catalog and the namespace in a text, where the caller may change it. Raises InvalidArgument, NotAllowed."""
    catalog, *space = parse_namespace(text)
    if not space:
        raise InvalidArgument(f"{text!r} is no namespace of a catalog", hint="Write catalog.namespace.")
    # A pattern has to match any table of the namespace.
    require(call.principal, method, Role.OPERATOR, lambda: TableIdentifier(catalog, tuple(space), "*"))
    return catalog, tuple(space)


def create_table(services: Services, request: snapshots.CreateTableRequest, call: Call) -> snapshots.TableEntry:
    """Create a table in an internal catalog."""
    table, own = services.catalogs.resolve(request.table), services.own_catalogs
    wanted = table_request(request.columns, request.partition, request.location, request.properties)
    state = own.create(table.catalog, table.in_catalog, own.new_metadata(table.catalog, table.in_catalog, wanted))
    return snapshots.TableEntry(table=str(table), metadata_location=state.metadata_location, is_done=True)


def rename_table(services: Services, request: snapshots.RenameTableRequest, call: Call) -> snapshots.TableEntry:
    """Give a table of an internal catalog another name."""
    table, target = services.catalogs.resolve(request.table), services.catalogs.resolve(request.to)
    require(call.principal, "RenameTable", Role.OPERATOR, lambda: target)
    if target.catalog != table.catalog:
        raise InvalidArgument(f"{target} is in another catalog than {table}", hint="A table stays in its catalog.")
    with services.own_catalogs.opened(table.catalog) as (own, _):
        own.move_table(table.in_catalog, target.in_catalog)
        location = own.pointer(target.in_catalog)
    return snapshots.TableEntry(table=str(target), metadata_location=location, is_done=True)


def drop_table(services: Services, request: snapshots.DropTableRequest, call: Call) -> snapshots.TableEntry:
    """Drop a table's entry from an internal catalog; its files stay."""
    table = services.catalogs.resolve(request.table)
    with services.own_catalogs.opened(table.catalog) as (own, _):
        location = own.pointer(table.in_catalog)
        if not request.dry_run:
            own.remove_table(table.in_catalog)
    return snapshots.TableEntry(table=str(table), metadata_location=location, is_done=not request.dry_run)


def _no_answer(name: str, error: AmoroError, duration_ms: int) -> pb.CatalogCheck:
    message = briefly(without_secrets(error.message), LONGEST_REASON)
    hint = error.hint or error.remedy
    return pb.CatalogCheck(name=name, duration_ms=duration_ms, code=error.code, message=message, hint=hint)


def _since(began: float) -> int:
    """Milliseconds since a moment of the monotonic clock."""
    return round((time.monotonic() - began) * 1000)


def _catalog(services: Services, config: CatalogConfig) -> pb.Catalog:
    refusal = services.catalogs.commits_refused(config)
    return as_message(
        pb.Catalog,
        config,
        properties=masked(dict(config.properties)),
        site_files=[
            pb.SiteFile(name=file.name, bytes=len(file.content.encode()), properties=masked(dict(file.properties)))
            for file in config.site_files
        ],
        commits=refusal is None,
        refusal=refusal,
    )


def apply_policies(services: Services, request: ApplyPoliciesRequest, call: Call) -> AppliedPolicies:
    """Let the policies in the text hold, or with `dry_run` say what they would change."""
    return as_message(AppliedPolicies, services.policies.apply(request.text, call.caller, dry_run=request.dry_run))


def get_policies(services: Services, request: GetPoliciesRequest, call: Call) -> Policies:
    """A version of the policies, by default the last one."""
    return as_message(Policies, services.policies.show(request.version))
