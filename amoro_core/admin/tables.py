"""Tables: their runtimes, their contents, and whether they are optimized."""

from collections.abc import Sequence

from amoro_core.admin.arguments import word
from amoro_core.admin.messages import tables as messages
from amoro_core.admin.messages.catalogs import selected
from amoro_core.admin.services import Call, Services
from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.table_lists import Order, TableKey, TableOrder, WantedTables
from amoro_core.model.tables import OptimizingStatus, TableRuntime, parse_namespace
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2

MAX_FILES = 10_000  # on a page: each reads the manifests of the table anew


def list_tables(services: Services, request: pb.ListTablesRequest, call: Call) -> pb.ListTablesResponse:
    """Tables in the order asked for."""
    if request.catalog:
        services.catalogs.get(request.catalog)
    key, direction = word(TableKey, request.sort, "sort key"), word(Order, request.order, "direction")
    order = TableOrder(key or TableKey.NAME, direction or Order.ASC)
    page = services.overview.tables(_wanted(request), order, Window(request.limit, request.after))
    return pb.ListTablesResponse(
        tables=_tables(services, page.items), next=page.next, total=page.total, total_is_exact=page.total_is_exact
    )


def select_tables(services: Services, request: pb.SelectTablesRequest, call: Call) -> pb.SelectTablesResponse:
    """The tables that match names and patterns."""
    return selected(services.catalogs.select(request.names))


def get_table(services: Services, request: pb.GetTableRequest, call: Call) -> pb.Table:
    """The runtime of the table, with the failure of its last process, and rows of it that came back."""
    identifier, find = services.catalogs.resolve(request.table), services.tables.find
    return _table(services, (services.tables.find_known if request.known_only else find)(identifier))


def get_table_properties(
    services: Services, request: pb.GetTablePropertiesRequest, call: Call
) -> pb.GetTablePropertiesResponse:
    """The effective properties of the table."""
    identifier = services.catalogs.resolve(request.table)
    found = services.inspection.properties(identifier, known_only=request.known_only)
    return messages.table_properties(identifier, *found)


def get_table_metadata(
    services: Services, request: snapshots_pb2.GetTableMetadataRequest, call: Call
) -> snapshots_pb2.TableMetadata:
    """Columns, partitioning and own properties of the table."""
    identifier = services.catalogs.resolve(request.table)
    facts, schema, committed_at = services.inspection.metadata(identifier)
    return messages.table_metadata(facts, schema, committed_at, services.catalogs.shown(facts.properties.items()))


def get_table_health(services: Services, request: pb.GetTableHealthRequest, call: Call) -> pb.TableHealth:
    """The health of the table's head."""
    identifier = services.catalogs.resolve(request.table)
    return messages.table_health(identifier, services.inspection.health(identifier))


def list_table_files(services: Services, request: pb.ListTableFilesRequest, call: Call) -> pb.ListTableFilesResponse:
    """The live files of a snapshot."""
    identifier = services.catalogs.resolve(request.table)
    window = Window(page_limit(request.limit, MAX_FILES), request.after)
    return messages.table_files(services.inspection.files(identifier, window, request.snapshot_id or None))


def list_snapshots(services: Services, request: pb.ListSnapshotsRequest, call: Call) -> pb.ListSnapshotsResponse:
    """The table's snapshots, the newest first."""
    window = Window(page_limit(request.limit), request.after)
    page = services.inspection.snapshots(services.catalogs.resolve(request.table), window)
    shown = [messages.snapshot(item) for item in page.items]
    return pb.ListSnapshotsResponse(snapshots=shown, next=page.next, total=page.total)


def set_table_enabled(services: Services, request: pb.SetTableEnabledRequest, call: Call) -> pb.Table:
    """Enable or disable the optimizing of the table; disabling cancels its running process."""
    condition = call.condition(messages.kept_table)
    runtime = services.tables.set_enabled(services.catalogs.resolve(request.table), request.enabled, condition)
    if services.optimizing.cancel_unwanted(runtime.table_id) is not None:
        runtime = services.tables.find(runtime.identifier)
    return _table(services, runtime)


def table_changed(services: Services, request: pb.TableChangedRequest, call: Call) -> pb.Table:
    """Look at the table soon, also at one that is new; the answer is what is known of it now."""
    identifier = services.catalogs.resolve(request.table)
    return _table(services, services.hearing.changed(identifier, request.hint, call.caller))


def _wanted(request: pb.ListTablesRequest) -> WantedTables:
    if request.health_below < 0:
        raise InvalidArgument(f"{request.health_below} is no health score", hint="Give 1 to 100.")
    return WantedTables(
        catalog=request.catalog,
        status=word(OptimizingStatus, request.status, "status"),
        group=request.group,
        text=request.text,
        namespace=parse_namespace(request.namespace) if request.namespace else (),
        enabled=request.enabled if request.HasField("enabled") else None,
        refusal=request.refusal,
        health_below=request.health_below or None,
    )


def _table(services: Services, runtime: TableRuntime) -> pb.Table:
    (message,) = _tables(services, [runtime])
    unseen = services.tables.refresh_failure(runtime.table_id)
    failed = f"the last look at the table: {unseen}" if unseen else ""
    message.failure = failed or services.overview.last_failure(runtime.table_id)
    message.late_deletes = services.overview.late_deletes(runtime.table_id)
    return message


def _tables(services: Services, runtimes: Sequence[TableRuntime]) -> list[pb.Table]:
    active = services.overview.active_on(runtime.table_id for runtime in runtimes)
    held = services.blockers.list_active()
    nobody = {group: services.nobody_works(group) for group in {runtime.group for runtime in runtimes}}
    by_table: dict[int, list[pb.Blocker]] = {}
    for item in held:
        by_table.setdefault(item.blocker.table_id, []).append(messages.blocker(item))
    return [
        messages.table(runtime, active.get(runtime.table_id), by_table.get(runtime.table_id, ()), nobody[runtime.group])
        for runtime in runtimes
    ]
