"""Refreshes and evaluates tables, and shows their files, snapshots and health."""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from amoro_core.actions.action_api import Action
from amoro_core.actions.rewriting import copy_description
from amoro_core.errors import AmoroError, InvalidArgument, TableNotFound, TableRefused
from amoro_core.formats.configuration import effective_config
from amoro_core.formats.ports import Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import (
    EffectiveProperty,
    Enabled,
    decide_enabled,
    effective_properties,
    is_switched_off,
    parse_config,
)
from amoro_core.model.paging import Page, Window, page_in_order
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionKey
from amoro_core.model.tables import (
    OptimizingStatus,
    OptimizingType,
    Pending,
    SnapshotFacts,
    TableFacts,
    TableIdentifier,
    TableRuntime,
    TableSchema,
)
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.messages import (
    evaluate_totals,
    excluding_reserved,
    ordered_groups,
    totals_of,
    with_reserved,
)
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan.live_files import LiveFiles
from amoro_core.scheduling.policy import REFRESH_INTERVAL
from amoro_core.state.transition_events import figures_of
from amoro_core.store import actions, groups, table_listing, table_stats, tables, time_series
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import keep_table
from amoro_core.transactions.maintenance_schedule import Looks, MaintenanceSchedule, note
from amoro_core.transactions.process_context import config_of, reserved_files
from amoro_core.transactions.table_registry import (
    BUSY,
    Evaluated,
    LoadedTable,
    add_table,
    after_refresh,
    after_refusal,
    dispose,
    follow_properties,
    new_table,
    postpone_refresh,
    reset_replaced,
)

log = get_logger("amoro.tables")


@dataclass(frozen=True, slots=True)
class Preview:
    """What optimizing would do with a table, and why."""

    runtime: TableRuntime
    evaluation: Evaluation
    plan: OptimizingPlan | None
    partition_paths: tuple[str, ...]  # of the evaluation's partitions
    disputed_deletes: int  # on files of the plan
    copying: str  # which row groups are copied, in words


class TableService:
    """Tables of all catalogs, by their runtimes."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
        joining: Mapping[str, int] = MappingProxyType({}),
        clockwork: MaintenanceSchedule | None = None,
        find_action: Callable[[str], Action] | None = None,
        keeps_series: bool = True,
        look: Callable[[TableRuntime, Readable, TableScan | None], None] = lambda runtime, table, scan: None,
    ) -> None:
        """`joining` are the threads that an optimizer would bring to a group if a table were optimized now;
        `clockwork` has the actions that are evaluated with each refresh; `find_action` tells of what processes are for,
        whose files are left to them; `keeps_series`: whether tables' numbers are kept over time; `look` is called
        for each table whose files were read."""
        self._keeps_series, self._look = keeps_series, look
        self._find_action = find_action
        self._store = store
        self._clockwork = clockwork or MaintenanceSchedule((), {})
        self._joining = joining
        self._tables = tables_of
        self._clock = clock
        self._refresh_failures: dict[int, str] = {}  # by table id, where the last refresh failed

    # Finding

    def similar(self, identifier: TableIdentifier, *, known_only: bool = False) -> str:
        """The table of the catalog with the closest name; "" without one.

        The catalog is listed if no table is known, unless only what is known is asked for.
        """
        known = [name for _, name in self._store.read(lambda db: table_listing.list_names(db, identifier.catalog))]
        if not known and not known_only:
            try:
                known = self._tables.formats.list_tables(self._tables.catalog(identifier.catalog))
            except AmoroError:
                return ""
        return next(iter(difflib.get_close_matches(str(identifier), map(str, known), n=1)), "")

    def ensure(self, identifier: TableIdentifier) -> TableRuntime:
        """The runtime of a table, created when it is new.

        Raises TableNotFound, CatalogNotFound, CatalogUnavailable.
        """
        runtime = self._store.read(lambda db: tables.find(db, identifier))
        if runtime is not None:
            return runtime
        self._tables.open(identifier)
        return self._store.write(lambda db: tables.find(db, identifier) or add_table(db, identifier, self._clock()))

    def _known(self, identifier: TableIdentifier) -> TableRuntime:
        """The runtime of a table; a new one if it is unknown."""
        found = self._store.read(lambda db: tables.find(db, identifier))
        return found or new_table(identifier, self._clock())

    # Refreshing

    def list_due(self) -> list[tuple[int, str]]:
        """Id and catalog of each table that is due for a refresh, the longest due first."""
        return self._store.read(lambda db: tables.list_due(db, self._clock()))

    def refresh(self, table_id: int) -> TableRuntime | None:
        """Load the table, and evaluate it if it changed or an interval came due; None when it is gone.

        Raises CatalogUnavailable and other errors of loading; the runtime is then unchanged except for its next
        refresh.
        """
        try:
            refreshed = self._refresh(table_id)[0]
        except Exception as error:
            code = error.code if isinstance(error, AmoroError) else AmoroError.code
            self._refresh_failures[table_id] = f"[{code}] {without_secrets(briefly(str(error), LONGEST_REASON))}"
            self._store.write(lambda db: postpone_refresh(db, table_id, self._clock() + REFRESH_INTERVAL))
            raise
        self._refresh_failures.pop(table_id, None)
        return refreshed

    def refresh_failure(self, table_id: int) -> str:
        """Why the last refresh of a table failed, with the error's code; "" when it did not. Lost at a restart."""
        return self._refresh_failures.get(table_id, "")

    def _refresh(self, table_id: int) -> tuple[TableRuntime | None, TableRefused | None]:
        """The refreshed runtime, and the refusal with its hint."""
        runtime = self._store.read(lambda db: tables.get(db, table_id))
        try:
            loaded = self._load(runtime)
            self._refuse_twins(runtime, loaded)
            if runtime.uuid not in ("", uuid := loaded.table.facts.uuid):
                runtime = self._store.write(lambda db: reset_replaced(db, table_id, uuid, self._clock()))
            looks = self._looks(runtime, loaded)
            evaluated = self._evaluated(runtime, loaded) if self._is_stale(runtime, loaded) else None
        except TableNotFound:
            self._store.write(lambda db: dispose(db, table_id, self._clock()))
            return None, None
        except TableRefused as refusal:
            return self._store.write(partial(self._refused, table_id=table_id, refusal=refusal)), refusal
        return self._store.write(lambda db: self._refreshed(db, table_id, loaded, evaluated, looks)), loaded.refusal

    def _looks(self, runtime: TableRuntime, loaded: LoadedTable) -> Looks:
        override = runtime.enabled_override
        looks = self._clockwork.look(loaded.table, loaded.defaults, loaded.enabled(override), override)
        return self._clockwork.ask(loaded.table, loaded.defaults, looks, self._clock())

    def _require_refreshed(self, identifier: TableIdentifier) -> TableRuntime:
        """The table, refreshed. Raises TableNotFound, TableRefused and what loading raises."""
        runtime, refusal = self._refresh(self.ensure(identifier).table_id)
        if runtime is None:
            raise TableNotFound(f"table {identifier} does not exist", table=identifier)
        if runtime.status is OptimizingStatus.REFUSED:
            raise refusal or TableRefused(runtime.status_reason, reason=runtime.refusal)
        return runtime

    def preview(
        self, identifier: TableIdentifier, requested: OptimizingType | None, force: bool, where: str = ""
    ) -> Preview:
        """What optimizing would do now. Nothing is changed, not even the table's runtime.

        `where` selects partitions. Raises TableNotFound, TableRefused, InvalidArgument (a condition that does not
        select whole partitions) and what loading raises.
        """
        known = self._known(identifier)
        loaded = self._load(known)
        self._refuse_twins(known, loaded)
        now = self._clock()
        runtime = after_refresh(known, loaded, None, now)
        # A new table of the same name has not been optimized yet.
        anew = known.uuid not in ("", runtime.uuid)
        last = {} if anew else self._store.read(lambda db: tables.partitions_last_optimized(db, known.table_id))
        table = loaded.optimizable
        scan = table.scan()
        path_of = table.partition_path
        chooses = table.chooses(where) if where else None
        others = self._store.read(lambda db: self._taken(db, known, loaded.table.facts.uuid))
        selects = excluding_reserved(others, loaded.selects)
        evaluation = evaluate(
            scan, loaded.config, last, now, requested, force, path_of, selects, chooses, ordered_groups(scan)
        )
        evaluation = with_reserved(evaluation, scan, others)
        made = None
        if scan is not None:
            capacity = self._store.read(lambda db: groups.capacity(db, loaded.config.group))
            made = plan(
                scan,
                evaluation,
                loaded.config,
                threads=max(capacity.threads, self._joining.get(loaded.config.group, 0)),
                max_input_per_thread=capacity.max_input_per_thread,
            )
        paths = tuple(path_of(verdict.key) for verdict in evaluation.partitions)
        inputs = [file for task in made.tasks for file in (*task.rewritten, *task.converted)] if made else []
        own = loaded.table.facts.properties
        copying = copy_description(made.tasks, own, loaded.config, made.type) if made else ""
        return Preview(runtime, evaluation, made, paths, len(table.disputed_deletes(inputs)), copying)

    def _load(self, runtime: TableRuntime) -> LoadedTable:
        catalog = self._tables.catalog(runtime.identifier.catalog)
        refusal = self._tables.formats.commits_refused(catalog)
        if refusal is not None:
            raise TableRefused(refusal, reason="catalog")
        table = self._tables.load(catalog, runtime.identifier, runtime)
        defaults = dict(catalog.properties)
        own = table.facts.properties
        config = parse_config(effective_properties(defaults, own))
        decide_enabled(runtime.enabled_override, own, defaults)  # a malformed value refuses the table
        table.refuse_unsupported()
        return LoadedTable(table, config, defaults, table.skip_reason())

    def _refuse_twins(self, runtime: TableRuntime, loaded: LoadedTable) -> None:
        """Refuse a table that is known under another name already: it would be optimized twice."""
        uuid = loaded.table.facts.uuid
        first = self._store.read(lambda db: tables.first_of_uuid(db, uuid))
        if first is not None and (not runtime.table_id or first[0] < runtime.table_id):
            raise TableRefused(
                f"{runtime.identifier} is the same table as {first[1]} (uuid {uuid})",
                reason="duplicate",
                hint=f"Use {first[1]}.",
            )

    def _is_stale(self, runtime: TableRuntime, loaded: LoadedTable) -> bool:
        if runtime.status in BUSY or loaded.refusal is not None:
            return False
        facts, now = loaded.table.facts, self._clock()
        return (
            runtime.evaluated_at is None
            or runtime.status is OptimizingStatus.REFUSED
            or runtime.evaluated_snapshot_id != facts.snapshot_id
            or runtime.properties != facts.properties
            or runtime.evaluated_config != str(loaded.config)
            or runtime.enabled != loaded.enabled(runtime.enabled_override).value
            or (runtime.next_due_at is not None and runtime.next_due_at <= now)
            or (runtime.retry_at is not None and runtime.retry_at <= now)
        )

    def _evaluated(self, runtime: TableRuntime, loaded: LoadedTable) -> Evaluated:
        """The verdict by the snapshot's totals if these suffice, else by its files."""
        now, facts, table = self._clock(), loaded.table.facts, loaded.optimizable
        # The reason of a refusal may be in the files.
        if facts.snapshot_id is not None and runtime.status is not OptimizingStatus.REFUSED:
            totals = totals_of(facts.snapshot_summary)
            spared = evaluate_totals(facts.snapshot_id, totals, loaded.config, runtime.scanned_at, now, runtime.summary)
            if spared is not None:
                return Evaluated(spared, runtime.scanned_at)
        scan = table.scan()
        last, others = self._store.read(
            lambda db: (tables.partitions_last_optimized(db, runtime.table_id), self._taken(db, runtime, facts.uuid))
        )
        self._look(runtime, table, scan)
        selects = excluding_reserved(others, loaded.selects)
        found = evaluate(
            scan, loaded.config, last, now, path_of=table.partition_path, selects=selects, kept=ordered_groups(scan)
        )
        document = None if found.digest is None else table_stats.pack_digest(found.digest)
        return Evaluated(with_reserved(found, scan, others), now, document)

    def _taken(self, db: Connection, runtime: TableRuntime, uuid: str) -> Mapping[str, str]:
        """The files that are in plans which have not ended, each with its process in words."""
        if self._find_action is None or not runtime.table_id:
            return {}
        return reserved_files(db, runtime.table_id, uuid, self._find_action).paths

    # Keeping

    def _refreshed(
        self, db: Connection, table_id: int, loaded: LoadedTable, found: Evaluated | None, looks: Looks
    ) -> TableRuntime:
        # Read again: the table may have been enabled or disabled while it was loaded.
        before = tables.get(db, table_id)
        runtime = after_refresh(before, loaded, found, self._clock())
        follow_properties(db, table_id, loaded.config)
        note(db, table_id, looks, self._clock())
        if before.snapshot_id != runtime.snapshot_id:
            kept = tables.find_data_commit(db, table_id, runtime.uuid)
            tables.save_data_commit(db, table_id, runtime.uuid, loaded.data_commit(kept))
        if found is not None:
            found.keep_digest(db, table_id)
            if self._keeps_series and (figures := figures_of(before, runtime)) is not None:
                time_series.add_figures(db, table_id, figures, self._clock())
        _tell_refused(before, runtime)
        return keep_table(db, before, runtime, self._clock())

    def _refused(self, db: Connection, table_id: int, refusal: TableRefused) -> TableRuntime:
        before = tables.get(db, table_id)
        actions.set_aside(db, table_id)
        runtime = after_refusal(before, refusal, config_of(self._tables, before), self._clock())
        _tell_refused(before, runtime)
        return keep_table(db, before, runtime, self._clock())

    def set_enabled(
        self, identifier: TableIdentifier, enabled: bool, condition: Callable[[TableRuntime], None] | None = None
    ) -> TableRuntime:
        """Enable or disable optimizing of a table; stored here, the table is not touched.

        Raises TableNotFound, CatalogUnavailable, and what `condition` raises of the table as it is before.
        """
        table_id = (before := self.ensure(identifier)).table_id
        if condition is not None:
            condition(self.find(identifier))

        def change(db: Connection) -> None:
            kept = tables.get(db, table_id)
            if condition is not None and kept != before:
                condition(kept)
            tables.save(db, replace(kept, enabled_override=enabled))

        self._store.write(change)
        runtime = self.refresh(table_id)
        if runtime is None:
            raise TableNotFound(f"table {identifier} does not exist", table=identifier)
        return runtime

    def find(self, identifier: TableIdentifier) -> TableRuntime:
        """The table as last refreshed, or loaded now if it never was; nothing is changed.

        Its id is 0 if the coordinator does not know it yet. Raises TableNotFound.
        """
        runtime = self._known(identifier)
        if runtime.refreshed_at is not None:
            return runtime
        try:
            loaded = self._load(runtime)
            self._refuse_twins(runtime, loaded)
            evaluated = None if loaded.refusal else self._evaluated(runtime, loaded)
        except TableRefused as refusal:
            return after_refusal(runtime, refusal, config_of(self._tables, runtime), self._clock())
        return after_refresh(runtime, loaded, evaluated, self._clock())

    def find_known(self, identifier: TableIdentifier) -> TableRuntime:
        """The table as the coordinator knows it; no catalog is asked. Raises TableNotFound."""
        runtime = self._store.read(lambda db: tables.find(db, identifier))
        if runtime is None:
            raise TableNotFound(f"table {identifier} is not known")
        return runtime

    def id_of(self, identifier: TableIdentifier) -> int:
        """The table's id; 0 for one that is not known yet. Raises TableNotFound, CatalogUnavailable."""
        known = self._known(identifier)
        if not known.table_id:
            self._tables.open(identifier)
        return known.table_id

    def min_plan_interval(self, table_id: int) -> timedelta | None:
        """The minimum time between two plans of the table that were not requested. Raises TableNotFound."""
        return config_of(self._tables, self._store.read(lambda db: tables.get(db, table_id))).min_plan_interval

    def require_optimizable(self, identifier: TableIdentifier) -> TableRuntime:
        """The table, refreshed, for a requested process.

        Raises TableNotFound, and TableRefused when the table is refused or its optimizing is switched off.
        """
        return self._on(self._require_refreshed(identifier))

    def require_maintainable(self, identifier: TableIdentifier) -> TableRuntime:
        """The table, for a requested action other than optimizing.

        Raises TableNotFound, and TableRefused when its optimizing is switched off.
        """
        return self._on(self.ensure(identifier))

    def _on(self, runtime: TableRuntime) -> TableRuntime:
        identifier = runtime.identifier
        if is_switched_off(runtime.enabled_override, runtime.properties):
            raise TableRefused(
                f"optimizing {identifier} is switched off by {runtime.enabled_origin}",
                reason="disabled",
                hint=f"Switch it on with `amoro table enable {identifier}` or by the table's property.",
            )
        return runtime

    def list_pending(self) -> list[Pending]:
        """The tables that wait to be planned, sorted by name."""
        return self._store.read(tables.list_pending)

    def count(self) -> int:
        """How many tables are known."""
        return self._store.read(tables.count)

    def list_tables(self, catalog: str | None = None, status: OptimizingStatus | None = None) -> list[TableRuntime]:
        """All known tables, sorted by name."""
        return self._store.read(lambda db: tables.list_tables(db, catalog, status))


def _tell_refused(before: TableRuntime, runtime: TableRuntime) -> None:
    told = OptimizingStatus.REFUSED, runtime.status_reason
    if runtime.status is OptimizingStatus.REFUSED and (before.status, before.status_reason) != told:
        log.warning("table.refused", table=str(runtime.identifier), reason=runtime.refusal, why=runtime.status_reason)


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A live file of a table's head."""

    file: DataFile | DeleteFile
    partition: str  # its path
    deletes: int = 0  # delete files that apply to a data file
    is_dangling: bool = False


@dataclass(frozen=True, slots=True)
class ShownFiles:
    """Some of the live files of a snapshot, and their total number."""

    snapshot_id: int | None
    files: Page[ShownFile]  # by partition and path; `next` is a path


class InspectionService:
    """Loads a table and returns what it contains.

    Every method but `is_head` raises TableNotFound, CatalogUnavailable, TableRefused.
    """

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._clock = clock

    def is_head(self, identifier: TableIdentifier, snapshot_id: int) -> bool:
        """Whether the snapshot is still the table's head; also False if that is unknown."""
        try:
            return self._load(identifier).facts.snapshot_id == snapshot_id
        except AmoroError:
            return False

    def properties(
        self, identifier: TableIdentifier, *, known_only: bool = False
    ) -> tuple[tuple[EffectiveProperty, ...], Enabled]:
        """The properties that control the table's optimizing, including malformed values, and whether it is optimized.

        `known_only`: the table's own are those of its last refresh; raises TableNotFound for one that is not known.
        Raises TableRefused("configuration") only for a malformed `self-optimizing.enabled`.
        """
        catalog = self._tables.catalog(identifier.catalog)
        known = self._store.read(lambda db: tables.find(db, identifier))
        if known_only and known is None:
            raise TableNotFound(f"table {identifier} is not known")
        own = known.properties if known_only and known else self._tables.open(identifier).facts.properties
        defaults = dict(catalog.properties)
        override = known.enabled_override if known else None
        return effective_config(defaults, own), decide_enabled(override, own, defaults)

    def health(self, identifier: TableIdentifier) -> Evaluation:
        """The evaluation of the table's present head, even if nothing can be committed."""
        catalog = self._tables.catalog(identifier.catalog)
        table = self._load(identifier)
        config = parse_config(effective_properties(dict(catalog.properties), table.facts.properties))
        table.refuse_unsupported(for_commit=False)
        selects = table.selects(config.filter) if config.filter is not None else None
        known = self._store.read(lambda db: tables.find(db, identifier))
        last = self._store.read(lambda db: tables.partitions_last_optimized(db, known.table_id)) if known else {}
        return evaluate(_scanned(table), config, last, self._clock(), path_of=table.partition_path, selects=selects)

    def files(self, identifier: TableIdentifier, window: Window, snapshot_id: int | None = None) -> ShownFiles:
        """Live data and delete files of a snapshot, by default the head; `after` is a path.

        Raises InvalidArgument for an unknown snapshot or path.
        """
        table = self._load(identifier)
        found = _scanned(table) if snapshot_id is None else table.scan_of(snapshot_id)
        if found is None and snapshot_id is not None:
            raise InvalidArgument(f"table {identifier} has no snapshot {snapshot_id}", hint="List its files anew.")
        if found is None:
            return ShownFiles(None, Page((), 0))
        shown = [_shown(table, file.data, len(file.deletes)) for file in found.files]
        applied = {delete.identity: delete for delete in LiveFiles.of(found.files).applied}
        shown += [_shown(table, delete) for delete in applied.values()]
        shown += [
            _shown(table, delete, is_dangling=True) for delete in found.dangling if delete.identity not in applied
        ]
        shown.sort(key=lambda item: (item.partition, item.file.spec_id, item.file.path))
        return ShownFiles(found.snapshot_id, _page(shown, window, "live file", lambda item: item.file.path))

    def snapshots(self, identifier: TableIdentifier, window: Window) -> Page[SnapshotFacts]:
        """Snapshots that the table still has, the newest first; `after` is the id of one.

        Raises InvalidArgument for an id that none has.
        """
        return _page(self._load(identifier).snapshots(), window, "snapshot", lambda item: str(item.snapshot_id))

    def metadata(self, identifier: TableIdentifier) -> tuple[TableFacts, TableSchema, datetime | None]:
        """Facts and schema of the table's metadata, and the commit time of main's head; None without a head."""
        table = self._load(identifier)
        facts = table.facts
        head = next((one for one in table.snapshots() if one.snapshot_id == facts.snapshot_id), None)
        return facts, table.schema(), head.committed_at if head else None

    def _load(self, identifier: TableIdentifier) -> Readable:
        return with_roles(self._tables.open(identifier), (Role.READ,), "reading it")


def _page(items: Sequence[Item], window: Window, what: str, name: Callable[[Item], str]) -> Page[Item]:
    try:
        return page_in_order(items, window.after, window.limit, name)
    except ValueError as error:
        raise InvalidArgument(f"the table has no {what} {window.after!r}", hint="List them anew.") from error


def _scanned(table: Readable) -> TableScan | None:
    """The files of the head, including those for which the table is refused."""
    snapshot_id = table.facts.snapshot_id
    return None if snapshot_id is None else table.scan_of(snapshot_id)


def _shown(table: Readable, file: DataFile | DeleteFile, deletes: int = 0, *, is_dangling: bool = False) -> ShownFile:
    path = table.partition_path(PartitionKey(file.spec_id, file.partition))
    return ShownFile(file, path, deletes, is_dangling)
