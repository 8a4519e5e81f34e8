"""Operations on tables and their blockers."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial

from amoro_core.admin.context import Call, Services, as_message, duration, milliseconds, require, table_id, word
from amoro_core.errors import AmoroError, InvalidArgument, NotAllowed, TableNotFound, TooManyEvents
from amoro_core.model import metrics
from amoro_core.model.files import DeleteFile
from amoro_core.model.paging import Window, page_limit
from amoro_core.model.principals import Role
from amoro_core.model.processes import OPTIMIZING_ACTION, OptimizingProcess
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.model.table_services import TableContents
from amoro_core.model.tables import (
    FAULTLESS,
    ICEBERG,
    ActionRecord,
    BlockedOperation,
    OptimizingStatus,
    Order,
    TableFilter,
    TableIdentifier,
    TableKey,
    TableOrder,
    TableRuntime,
    TableState,
    parse_namespace,
)
from amoro_core.model.task_payload import procedures_of
from amoro_core.model.text_sanitizing import masked
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2
from amoro_core.services.blockers import TableBlocker


def table_message(
    runtime: TableRuntime, active: OptimizingProcess | None, blockers: Sequence[pb.Blocker], no_optimizer: str
) -> pb.Table:
    """The table's state; `no_optimizer`: why no optimizer takes its tasks."""
    other = _failing_action(runtime)
    return as_message(
        pb.Table,
        other or runtime,
        runtime,
        table=str(runtime.identifier),
        table_uuid=runtime.uuid,
        status_reason=_status_reason(runtime, active),
        files=as_message(pb.FileSummary, runtime.summary),
        process_id=active.process_id if active else "",
        health_score=runtime.summary.health_score,
        health_parts=as_message(pb.HealthParts, runtime.health) if runtime.health else None,
        blockers=blockers,
        no_optimizer=no_optimizer,
        services=None,
        failure="",
        late_deletes="",
        retry_at_ms=milliseconds(None if other and other.paused_at else (other or runtime).retry_at),
        saved_files=runtime.saving.files,
        saved_bytes=runtime.saving.bytes,
    )


def _failing_action(runtime: TableRuntime) -> ActionRecord | None:
    """The other action for which the table is failing; None if it is not, or for optimizing."""
    return runtime.failing if runtime.state is TableState.FAILING and not runtime.failures else None


def _status_reason(runtime: TableRuntime, active: OptimizingProcess | None) -> str:
    if active is not None and active.waiting:
        return active.waiting
    if (other := _failing_action(runtime)) is not None:
        return f"{other.action} fails: {other.paused_for or other.reason}"
    return f"{runtime.refusal}: {runtime.status_reason}" if runtime.refusal else runtime.status_reason


def _blocker(item: TableBlocker) -> pb.Blocker:
    operations = sorted(item.blocker.operations)
    return as_message(pb.Blocker, item.blocker, table=str(item.table), operations=operations)


def _table_itself(runtime: TableRuntime) -> pb.Table:
    """What the table is, without what goes on around it."""
    return table_message(runtime, None, (), "")


MAX_FILES = 10_000  # on a page: each reads the manifests of the table anew


def list_tables(services: Services, request: pb.ListTablesRequest, call: Call) -> pb.ListTablesResponse:
    """Tables in the requested order."""
    if request.catalog:
        services.catalogs.get(request.catalog)
    key, direction = word(TableKey, request.sort, "sort key"), word(Order, request.order, "direction")
    order = TableOrder(key or TableKey.NAME, direction or Order.ASC)
    page = services.overview.tables(_wanted(request), order, Window(request.limit, request.after))
    return as_message(pb.ListTablesResponse, page, tables=_tables(services, page.items))


def select_tables(services: Services, request: pb.SelectTablesRequest, call: Call) -> pb.SelectTablesResponse:
    """The tables that match names and patterns, and the catalogs that could not be listed."""
    tables, errors = services.catalogs.select(request.names)
    unlisted = [
        as_message(pb.UnlistedCatalog, error, catalog=name, hint=error.hint or error.remedy)
        for name, error in errors.items()
    ]
    return pb.SelectTablesResponse(tables=map(str, tables), unlisted=unlisted)


def get_table(services: Services, request: pb.GetTableRequest, call: Call) -> pb.Table:
    """The runtime of the table, with the failure of its last process, and rows of it that came back."""
    find = services.tables.find_stored if request.known_only else services.tables.find_present
    message = _table(services, find(services.catalogs.resolve(request.table)))
    if message.format not in ("", ICEBERG) and not request.known_only:
        with suppress(AmoroError):  # the table says why it can't be read
            message.services.CopyFrom(_services(services.inspection.contents(services.catalogs.resolve(request.table))))
    return message


#: Entries of a timeline that are sent.
_NEWEST = 100


def _services(contents: TableContents) -> pb.TableServices:
    return as_message(
        pb.TableServices,
        contents,
        columns=[pb.NamedColumn(name=name, type=kind) for name, kind in contents.columns.items()],
        kinds=[pb.StoredKind(kind=kind, files=files, bytes=size) for kind, (files, size) in contents.kinds.items()],
        timeline=[as_message(pb.TimelineEntry, entry) for entry in reversed(contents.timeline[-_NEWEST:])],
        instants=len(contents.timeline),
    )


def get_table_properties(
    services: Services, request: pb.GetTablePropertiesRequest, call: Call
) -> pb.GetTablePropertiesResponse:
    """The effective properties of the table, and whether it is optimized."""
    identifier = services.catalogs.resolve(request.table)
    properties, enabled = services.inspection.properties(identifier, known_only=request.known_only)
    return pb.GetTablePropertiesResponse(
        table=str(identifier),
        properties=[as_message(pb.Setting, item) for item in properties],
        enabled=enabled.value,
        enabled_origin=enabled.origin,
    )


def get_table_metadata(
    services: Services, request: snapshots_pb2.GetTableMetadataRequest, call: Call
) -> snapshots_pb2.TableMetadata:
    """Columns, partitioning and own properties of the table, without secrets."""
    facts, schema, committed_at = services.inspection.metadata(services.catalogs.resolve(request.table))
    return as_message(
        snapshots_pb2.TableMetadata,
        schema,
        facts,
        table=str(facts.identifier),
        properties=masked(facts.properties),
        committed_ms=milliseconds(committed_at),
    )


def get_table_health(services: Services, request: pb.GetTableHealthRequest, call: Call) -> pb.TableHealth:
    """The health of the table's head, and what it is computed from."""
    identifier = services.catalogs.resolve(request.table)
    evaluation = services.inspection.health(identifier)
    parts, summary, basis = evaluation.health or FAULTLESS, evaluation.summary, evaluation.basis
    return as_message(
        pb.TableHealth,
        parts,
        table=str(identifier),
        health_score=parts.score,
        files=as_message(pb.FileSummary, summary),
        reason=evaluation.reason,
        fragmentation=summary.fragment_files / summary.data_files if summary.data_files else 0.0,
        weight=basis.weight if basis else 0.0,
        fragment_bytes=basis.fragment_size if basis else 0,
        target_bytes=basis.min_target_size if basis else 0,
        full_weight_files=basis.full_weight_files if basis else 0,
    )


def list_table_files(services: Services, request: pb.ListTableFilesRequest, call: Call) -> pb.ListTableFilesResponse:
    """The live files of a snapshot."""
    identifier = services.catalogs.resolve(request.table)
    window = Window(page_limit(request.limit, MAX_FILES), request.after)
    snapshot_id, page = services.inspection.files(identifier, window, request.snapshot_id or None)
    files = [
        as_message(
            pb.TableFile,
            item,
            item.file,
            content=f"{item.file.kind.value}-deletes" if isinstance(item.file, DeleteFile) else "data",
            records=item.file.record_count,
            bytes=item.file.size_bytes,
        )
        for item in page.items
    ]
    return pb.ListTableFilesResponse(snapshot_id=snapshot_id or 0, total=page.total, next=page.next, files=files)


def list_snapshots(services: Services, request: pb.ListSnapshotsRequest, call: Call) -> pb.ListSnapshotsResponse:
    """The table's snapshots with their branches and tags, the newest first."""
    window = Window(page_limit(request.limit), request.after)
    page = services.inspection.snapshots(services.catalogs.resolve(request.table), window)
    snapshots = [as_message(pb.Snapshot, item, parent_snapshot_id=item.parent_id) for item in page.items]
    return pb.ListSnapshotsResponse(snapshots=snapshots, next=page.next, total=page.total)


def set_table_enabled(services: Services, request: pb.SetTableEnabledRequest, call: Call) -> pb.Table:
    """Enable or disable the optimizing of the table; disabling cancels its running process."""
    condition = call.condition(_table_itself)
    runtime = services.tables.set_enabled(services.catalogs.resolve(request.table), request.enabled, condition)
    if services.optimizing.cancel_unwanted(runtime.table_id) is not None:
        runtime = services.tables.find(runtime.identifier)
    return _table(services, runtime)


def set_table_properties(
    services: Services, request: snapshots_pb2.SetTablePropertiesRequest, call: Call
) -> snapshots_pb2.ChangedProperties:
    """Set and remove properties of the table itself, or with `dry_run` say what that would change."""
    identifier, wanted = services.catalogs.resolve(request.table), dict(request.properties)
    if not wanted and not request.removed_properties:
        raise InvalidArgument("nothing to change was given", hint="Give KEY=VALUE, or KEY- to remove a property.")
    if twice := sorted(wanted.keys() & set(request.removed_properties)):
        raise InvalidArgument(f"the property {twice[0]} is both set and removed", hint="Choose one of the two.")
    changes = {**wanted, **dict.fromkeys(request.removed_properties)}
    different = services.tables.set_properties(identifier, changes, dry_run=request.dry_run)
    return snapshots_pb2.ChangedProperties(
        table=str(identifier),
        changes=[
            snapshots_pb2.ChangedProperty(key=key, before=_masked(key, before), after=_masked(key, after))
            for key, (before, after) in sorted(different.items())
        ],
        is_done=bool(different) and not request.dry_run,
    )


def _masked(key: str, value: str | None) -> str | None:
    return None if value is None else masked({key: value})[key]


_MOST_PROBLEMS = 100
_NEW_TABLES = "A new table is found when its catalog is listed; an event that names it finds it at once."


def table_changed(services: Services, request: pb.TableChangedRequest, call: Call) -> pb.Table:
    """Look at the table soon, also at one that is new; the answer is what is known of it now."""
    identifier = services.catalogs.resolve(request.table)
    return _table(services, services.change_notifications.changed(identifier, request.hint, call.caller))


def receive_events(services: Services, request: pb.ReceiveEventsRequest, call: Call) -> pb.ReceivedEvents:
    """Look soon, once, at each table that events of engines and object stores are about; says which it can't be."""
    events = Counter((event.table, event.path) for event in request.events)
    located = services.tables.locate([path for table, path in events if not table])
    counts, problems, seen = Counter(ignored=request.ignored), list[pb.EventProblem](), set[TableIdentifier]()
    for (table, path), number in events.items():
        result = "accepted"
        try:
            if not table and path not in located:
                raise TableNotFound(f"{path} is in the location of no known table", hint=_NEW_TABLES)
            identifier = services.catalogs.resolve(table) if table else located[path]
            if identifier not in seen:
                require(call.principal, "ReceiveEvents", Role.OPERATOR, partial(lambda item: item, identifier))
                services.change_notifications.changed(identifier, "an event", call.caller)
                seen.add(identifier)
        except AmoroError as error:
            result = {NotAllowed: "refused", TooManyEvents: "limited"}.get(type(error), "unknown")
            hint = error.hint or error.remedy
            problems.append(as_message(pb.EventProblem, error, result=result, value=table or path, hint=hint))
        counts[result] += number
    answer = pb.ReceivedEvents(problems=problems[:_MOST_PROBLEMS])
    for result in metrics.EVENT_RESULTS:
        setattr(answer, result, counts[result])
        services.meters.count(metrics.EVENTS, result, by=counts[result])
    return answer


def _wanted(request: pb.ListTablesRequest) -> TableFilter:
    if request.health_below < 0:
        raise InvalidArgument(f"{request.health_below} is no health score", hint="Give 1 to 100.")
    if request.refusal and request.refusal not in REFUSALS:
        raise InvalidArgument(f"{request.refusal!r} is no reason of a refusal; reasons: {', '.join(REFUSALS)}")
    return TableFilter(
        catalog=request.catalog,
        status=word(OptimizingStatus, request.status, "status"),
        group=request.group,
        text=request.text,
        namespace=parse_namespace(request.namespace) if request.namespace else (),
        enabled=request.enabled if request.HasField("enabled") else None,
        refusal=request.refusal,
        health_below=request.health_below or None,
        state=word(TableState, request.state, "state"),
    )


def _table(services: Services, runtime: TableRuntime) -> pb.Table:
    (message,) = _tables(services, [runtime])
    last = f"the last look at the table: {runtime.load_failure}" if runtime.load_failure else ""
    other = _failing_action(runtime)
    of = (other.action,) if other else (OPTIMIZING_ACTION, "")
    message.failure = last or services.overview.last_failure(runtime.table_id, of)
    message.late_deletes = services.overview.late_deletes(runtime.table_id)
    return message


def _tables(services: Services, runtimes: Sequence[TableRuntime]) -> list[pb.Table]:
    active = services.overview.active_on(runtime.table_id for runtime in runtimes)
    reason_of = cache(services.no_optimizer_reason)
    blockers: dict[int, list[pb.Blocker]] = {}
    for item in services.blockers.list_active():
        blockers.setdefault(item.blocker.table_id, []).append(_blocker(item))
    return [
        table_message(
            runtime,
            active.get(runtime.table_id),
            blockers.get(runtime.table_id, ()),
            reason_of(runtime.group, procedures_of((runtime.format,))),
        )
        for runtime in runtimes
    ]


def block_table(services: Services, request: pb.BlockTableRequest, call: Call) -> pb.Blocker:
    """Block kinds of work on the table for a time."""
    named = [word(BlockedOperation, text, "kind of work") for text in request.operations]
    operations = frozenset(item for item in named if item is not None) or frozenset({BlockedOperation.OPTIMIZE})
    runtime = services.tables.ensure(services.catalogs.resolve(request.table))
    hold, condition = duration(request.hold_ms), request.condition.strip()
    blocker = services.blockers.block(
        runtime.table_id, operations, hold, request.reason, condition, yields=request.yields
    )
    return _blocker(blocker)


def renew_blocker(services: Services, request: pb.RenewBlockerRequest, call: Call) -> pb.Blocker:
    """Extend the blocker, counted from now."""
    return _blocker(services.blockers.renew(request.blocker_id, duration(request.hold_ms)))


def release_blocker(services: Services, request: pb.ReleaseBlockerRequest, call: Call) -> pb.Blocker:
    """End the blocker."""
    return _blocker(services.blockers.release(request.blocker_id))


def list_blockers(services: Services, request: pb.ListBlockersRequest, call: Call) -> pb.ListBlockersResponse:
    """Active blockers, the oldest first."""
    page = services.blockers.page(table_id(services, request.table), Window(request.limit, request.after))
    return pb.ListBlockersResponse(blockers=map(_blocker, page.items), next=page.next, total=page.total)
