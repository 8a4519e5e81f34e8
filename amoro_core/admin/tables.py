"""Operations on tables and their blockers."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from amoro_core.admin.catalogs import selection_message
from amoro_core.admin.context import Call, Services, duration, files, milliseconds, word
from amoro_core.errors import InvalidArgument
from amoro_core.model.files import DeleteFile
from amoro_core.model.optimizing_config import EffectiveProperty, Enabled
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.plans import Evaluation
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import (
    FAULTLESS,
    BlockedOperation,
    HealthParts,
    OptimizingStatus,
    Order,
    SnapshotFacts,
    TableFacts,
    TableFilter,
    TableIdentifier,
    TableKey,
    TableOrder,
    TableRuntime,
    TableSchema,
    parse_namespace,
)
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2
from amoro_core.services.blockers import HeldBlocker
from amoro_core.services.tables import ShownFiles


def table_message(
    runtime: TableRuntime, active: OptimizingProcess | None, blockers: Sequence[pb.Blocker], no_optimizer: str
) -> pb.Table:
    """The table's state; `no_optimizer`: why no optimizer takes its tasks."""
    return pb.Table(
        table=str(runtime.identifier),
        table_uuid=runtime.uuid,
        format=runtime.format,
        format_version=runtime.format_version,
        location=runtime.location,
        group=runtime.group,
        status=runtime.status.value,
        status_reason=_status_reason(runtime, active),
        status_since_ms=milliseconds(runtime.status_since),
        enabled=runtime.enabled,
        enabled_origin=runtime.enabled_origin,
        snapshot_id=runtime.snapshot_id or 0,
        files=files(runtime.summary),
        last_optimized_ms=milliseconds(runtime.last_optimized_at),
        next_due_ms=milliseconds(runtime.next_due_at),
        retry_at_ms=milliseconds(runtime.retry_at),
        process_id=active.process_id if active else "",
        evaluated_ms=milliseconds(runtime.evaluated_at),
        health_score=runtime.summary.health_score,
        health_parts=health_parts_message(runtime.health) if runtime.health else None,
        blockers=blockers,
        no_optimizer=no_optimizer,
        table_id=runtime.table_id,
    )


def _status_reason(runtime: TableRuntime, active: OptimizingProcess | None) -> str:
    if active is not None and active.waiting:
        return active.waiting
    return f"{runtime.refusal}: {runtime.status_reason}" if runtime.refusal else runtime.status_reason


def blocker_message(held: HeldBlocker) -> pb.Blocker:
    """The blocker, with its table."""
    item = held.blocker
    return pb.Blocker(
        blocker_id=item.blocker_id,
        table=str(held.table),
        operations=sorted(item.operations),
        reason=item.reason,
        created_ms=milliseconds(item.created_at),
        expires_ms=milliseconds(item.expires_at),
    )


def health_parts_message(parts: HealthParts) -> pb.HealthParts:
    """The points left by each kind of fault."""
    return pb.HealthParts(
        small_files=parts.small_files,
        equality_deletes=parts.equality_deletes,
        position_deletes=parts.position_deletes,
    )


def table_properties_message(
    identifier: TableIdentifier, properties: Sequence[EffectiveProperty], enabled: Enabled
) -> pb.GetTablePropertiesResponse:
    """The effective properties, and whether the table is optimized."""
    return pb.GetTablePropertiesResponse(
        table=str(identifier),
        properties=[
            pb.Setting(key=item.key, value=item.value, origin=item.origin.value, default=item.default)
            for item in properties
        ],
        enabled=enabled.value,
        enabled_origin=enabled.origin,
    )


def table_health_message(identifier: TableIdentifier, evaluation: Evaluation) -> pb.TableHealth:
    """The health found by an evaluation, and its parameters."""
    parts, summary, basis = evaluation.health or FAULTLESS, evaluation.summary, evaluation.basis
    return pb.TableHealth(
        table=str(identifier),
        health_score=parts.score,
        small_files=parts.small_files,
        equality_deletes=parts.equality_deletes,
        position_deletes=parts.position_deletes,
        files=files(evaluation.summary),
        reason=evaluation.reason,
        fragmentation=summary.fragment_files / summary.data_files if summary.data_files else 0.0,
        weight=basis.weight if basis else 0.0,
        fragment_bytes=basis.fragment_size if basis else 0,
        target_bytes=basis.min_target_size if basis else 0,
        full_weight_files=basis.full_weight_files if basis else 0,
    )


def table_files_message(shown: ShownFiles) -> pb.ListTableFilesResponse:
    """A page of live files."""
    return pb.ListTableFilesResponse(
        snapshot_id=shown.snapshot_id or 0,
        total=shown.files.total,
        next=shown.files.next,
        files=[
            pb.TableFile(
                path=item.file.path,
                content=f"{item.file.kind.value}-deletes" if isinstance(item.file, DeleteFile) else "data",
                partition=item.partition,
                spec_id=item.file.spec_id,
                records=item.file.record_count,
                bytes=item.file.size_bytes,
                sequence_number=item.file.sequence_number,
                deletes=item.deletes,
                dangling=item.is_dangling,
            )
            for item in shown.files.items
        ],
    )


def snapshot_message(facts: SnapshotFacts) -> pb.Snapshot:
    """The snapshot, with the branches and tags at it."""
    return pb.Snapshot(
        snapshot_id=facts.snapshot_id,
        parent_snapshot_id=facts.parent_id or 0,
        sequence_number=facts.sequence_number,
        committed_ms=milliseconds(facts.committed_at),
        operation=facts.operation,
        summary=facts.summary,
        refs=facts.refs,
    )


def kept_table_message(runtime: TableRuntime) -> pb.Table:
    """What the table is, without what goes on around it."""
    return table_message(runtime, None, (), "")


def table_metadata_message(
    facts: TableFacts, schema: TableSchema, committed_at: datetime | None, properties: Mapping[str, str]
) -> snapshots_pb2.TableMetadata:
    """The metadata; `properties` are the table's own, without secrets."""
    columns = (
        snapshots_pb2.SchemaColumn(
            field_id=one.field_id,
            name=one.name,
            type=one.type,
            required=one.is_required,
            doc=one.doc,
            identifies=one.identifies,
        )
        for one in schema.columns
    )
    partition = (
        snapshots_pb2.PartitionColumn(
            field_id=one.field_id, name=one.name, transform=one.transform, source_id=one.source_id, source=one.source
        )
        for one in schema.partition
    )
    return snapshots_pb2.TableMetadata(
        table=str(facts.identifier),
        format=facts.format,
        format_version=facts.format_version,
        location=facts.location,
        schema_id=schema.schema_id,
        columns=columns,
        spec_id=schema.spec_id,
        partition=partition,
        properties=properties,
        snapshot_id=facts.snapshot_id or 0,
        committed_ms=milliseconds(committed_at),
    )


MAX_FILES = 10_000  # on a page: each reads the manifests of the table anew


def list_tables(services: Services, request: pb.ListTablesRequest, call: Call) -> pb.ListTablesResponse:
    """Tables in the requested order."""
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
    return selection_message(services.catalogs.select(request.names))


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
    return table_properties_message(identifier, *found)


def get_table_metadata(
    services: Services, request: snapshots_pb2.GetTableMetadataRequest, call: Call
) -> snapshots_pb2.TableMetadata:
    """Columns, partitioning and own properties of the table."""
    identifier = services.catalogs.resolve(request.table)
    facts, schema, committed_at = services.inspection.metadata(identifier)
    return table_metadata_message(facts, schema, committed_at, services.catalogs.shown(facts.properties.items()))


def get_table_health(services: Services, request: pb.GetTableHealthRequest, call: Call) -> pb.TableHealth:
    """The health of the table's head."""
    identifier = services.catalogs.resolve(request.table)
    return table_health_message(identifier, services.inspection.health(identifier))


def list_table_files(services: Services, request: pb.ListTableFilesRequest, call: Call) -> pb.ListTableFilesResponse:
    """The live files of a snapshot."""
    identifier = services.catalogs.resolve(request.table)
    window = Window(page_limit(request.limit, MAX_FILES), request.after)
    return table_files_message(services.inspection.files(identifier, window, request.snapshot_id or None))


def list_snapshots(services: Services, request: pb.ListSnapshotsRequest, call: Call) -> pb.ListSnapshotsResponse:
    """The table's snapshots, the newest first."""
    window = Window(page_limit(request.limit), request.after)
    page = services.inspection.snapshots(services.catalogs.resolve(request.table), window)
    shown = [snapshot_message(item) for item in page.items]
    return pb.ListSnapshotsResponse(snapshots=shown, next=page.next, total=page.total)


def set_table_enabled(services: Services, request: pb.SetTableEnabledRequest, call: Call) -> pb.Table:
    """Enable or disable the optimizing of the table; disabling cancels its running process."""
    condition = call.condition(kept_table_message)
    runtime = services.tables.set_enabled(services.catalogs.resolve(request.table), request.enabled, condition)
    if services.optimizing.cancel_unwanted(runtime.table_id) is not None:
        runtime = services.tables.find(runtime.identifier)
    return _table(services, runtime)


def table_changed(services: Services, request: pb.TableChangedRequest, call: Call) -> pb.Table:
    """Look at the table soon, also at one that is new; the answer is what is known of it now."""
    identifier = services.catalogs.resolve(request.table)
    return _table(services, services.hearing.changed(identifier, request.hint, call.caller))


def _wanted(request: pb.ListTablesRequest) -> TableFilter:
    if request.health_below < 0:
        raise InvalidArgument(f"{request.health_below} is no health score", hint="Give 1 to 100.")
    return TableFilter(
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
    no_optimizer = {group: services.no_optimizer_reason(group) for group in {runtime.group for runtime in runtimes}}
    by_table: dict[int, list[pb.Blocker]] = {}
    for item in held:
        by_table.setdefault(item.blocker.table_id, []).append(blocker_message(item))
    return [
        table_message(
            runtime, active.get(runtime.table_id), by_table.get(runtime.table_id, ()), no_optimizer[runtime.group]
        )
        for runtime in runtimes
    ]


def block_table(services: Services, request: pb.BlockTableRequest, call: Call) -> pb.Blocker:
    """Block kinds of work on the table for a time."""
    named = [word(BlockedOperation, text, "kind of work") for text in request.operations]
    operations = frozenset(item for item in named if item is not None) or {BlockedOperation.OPTIMIZE}
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    held_for = duration(request.hold_ms)
    return blocker_message(services.blockers.block(runtime.table_id, frozenset(operations), held_for, request.reason))


def renew_blocker(services: Services, request: pb.RenewBlockerRequest, call: Call) -> pb.Blocker:
    """Extend the blocker, counted from now."""
    return blocker_message(services.blockers.renew(request.blocker_id, duration(request.hold_ms)))


def release_blocker(services: Services, request: pb.ReleaseBlockerRequest, call: Call) -> pb.Blocker:
    """End the blocker."""
    return blocker_message(services.blockers.release(request.blocker_id))


def list_blockers(services: Services, request: pb.ListBlockersRequest, call: Call) -> pb.ListBlockersResponse:
    """Active blockers, the oldest first."""
    table_id = services.tables.id_of(services.catalogs.resolve(request.table)) if request.table else None
    page = services.blockers.page(table_id, Window(request.limit, request.after))
    return pb.ListBlockersResponse(blockers=map(blocker_message, page.items), next=page.next, total=page.total)
