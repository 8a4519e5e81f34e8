"""Refreshes and evaluates tables, and shows their files, snapshots and health."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice, takewhile

from amoro_core.actions.action_api import Action
from amoro_core.actions.rewriting import copy_description
from amoro_core.errors import AmoroError, CommitConflict, InvalidArgument, TableNotFound, TableRefused
from amoro_core.formats.configuration import check_change, effective_config
from amoro_core.formats.ports import OpenTable, Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.logger import get_logger
from amoro_core.maintenance.schedule import closed_until
from amoro_core.maintenance.table_services import SERVICES_ENABLED
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.history_events import About, EventFilter, EventKind
from amoro_core.model.maintenance import NOTHING_TAKEN, ReservedFiles
from amoro_core.model.optimizing_config import (
    ENABLED_KEY,
    FILTER_KEY,
    EffectiveProperty,
    Enabled,
    decide_enabled,
    effective_properties,
    parse_config,
)
from amoro_core.model.paging import Page, Window, page_in_order
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionKey
from amoro_core.model.processes import OPTIMIZING_ACTION, OptimizingProcess, ProcessStatus
from amoro_core.model.table_services import TableContents
from amoro_core.model.tables import (
    OptimizingStatus,
    OptimizingType,
    Origin,
    Pending,
    SnapshotFacts,
    TableFacts,
    TableIdentifier,
    TableRuntime,
    TableSchema,
    ancestors,
)
from amoro_core.model.task_payload import PROCEDURES
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
from amoro_core.services.history import LateDeleteService, tell_rolled_back
from amoro_core.state.backoff import succeeded
from amoro_core.state.tables import window_reason
from amoro_core.state.transition_events import figures_of
from amoro_core.store import actions, events, groups, processes, table_listing, table_stats, tables, time_series
from amoro_core.store.connection import to_json
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.journal import append_event, keep_record, keep_table
from amoro_core.transactions.maintenance_schedule import Looks, MaintenanceSchedule, note
from amoro_core.transactions.process_context import config_of, reserved_files, with_blocked
from amoro_core.transactions.table_registry import (
    BUSY,
    Evaluated,
    LoadedTable,
    add_table,
    after_refresh,
    after_refusal,
    commits_since_plan,
    dispose,
    follow_properties,
    forgiven,
    load_failed,
    new_table,
    rename,
    reset_replaced,
    value_of,
)

log = get_logger("amoro.tables")
#: Attempts to change properties while others commit.
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Preview:
    """What optimizing would do with a table, and why."""

    runtime: TableRuntime
    evaluation: Evaluation
    plan: OptimizingPlan | None
    partition_paths: tuple[str, ...]  # of the evaluation's partitions
    disputed_deletes: int  # on files of the plan
    copying: str  # which row groups are copied, in words
    predicted_ms: int = 0  # thread time of the plan's tasks
    last: OptimizingProcess | None = None  # the last one of optimizing that succeeded


def _commits_since(before: TableRuntime, table: OpenTable) -> int:
    """How many commits of other writers the table has got since a refresh, at most 1 for a format without snapshots;
    where its head of then expired or was rolled back, by the time of that refresh."""
    head, since = table.facts.snapshot_id, before.refreshed_at
    if since is None or head == before.snapshot_id or Role.READ not in table.roles:
        return int(since is not None and head != before.snapshot_id)
    by_id = {item.snapshot_id: item for item in with_roles(table, (Role.READ,), "counting commits").snapshots()}
    history = list(ancestors(by_id, head))
    newer = list(takewhile(lambda item: item.snapshot_id != before.snapshot_id, history))
    if len(newer) == len(history) and before.snapshot_id is not None:
        newer = [snapshot for snapshot in newer if snapshot.committed_at > since]
    return sum(PROCESS_ID not in snapshot.summary for snapshot in newer)


@dataclass
class TableService:
    """Tables of all catalogs, by their runtimes."""

    store: Store
    tables: Tables
    clock: Callable[[], datetime]
    joining: Mapping[str, int]  # threads that an optimizer would bring to a group if a table were optimized now
    schedule: MaintenanceSchedule  # actions that are evaluated with each refresh
    find_action: Callable[[str], Action]
    keeps_series: bool  # whether tables' figures are kept over time
    late_deletes: LateDeleteService
    #: Whether a listener gets events of that kind about the table.
    asks_for: Callable[[EventKind, str], bool] = lambda kind, table: False
    #: Called when a refresh has found a table changed, with the number of commits of other writers.
    note_changes: Callable[[int, int], None] = lambda table_id, commits: None

    def locate(self, paths: Iterable[str]) -> Mapping[str, TableIdentifier]:
        """The table in whose location each path lies; a path in none is left out."""
        return self.store.read(lambda db: tables.list_by_paths(db, paths))

    def similar(self, identifier: TableIdentifier, *, known_only: bool = False) -> str:
        """The table of the catalog with the closest name; "" without one.

        The catalog is listed if no table is known, unless only what is known is asked for.
        """
        names = [name for _, name in self.store.read(lambda db: table_listing.list_names(db, identifier.catalog))]
        if not names and not known_only:
            try:
                names = self.tables.formats.list_tables(self.tables.catalog(identifier.catalog))
            except AmoroError:
                return ""
        return next(iter(difflib.get_close_matches(str(identifier), map(str, names), n=1)), "")

    def ensure(self, identifier: TableIdentifier) -> TableRuntime:
        """The runtime of a table, created when it is new. Raises TableNotFound, CatalogNotFound, CatalogUnavailable."""
        runtime = self.store.read(lambda db: tables.find(db, identifier))
        if runtime is not None:
            return runtime
        self.tables.open(identifier)
        return self.store.write(lambda db: tables.find(db, identifier) or add_table(db, identifier, self.clock()))

    def _find_or_new(self, identifier: TableIdentifier) -> TableRuntime:
        return self.store.read(lambda db: tables.find(db, identifier)) or new_table(identifier, self.clock())

    def list_due(self) -> list[tuple[int, str]]:
        """Id and catalog of each table that is due for a refresh, the longest due first."""
        return self.store.read(lambda db: tables.list_due(db, self.clock()))

    def refresh(self, table_id: int) -> TableRuntime | None:
        """Load the table, and evaluate it if it changed or an interval came due; None when it is gone.

        Raises what loading raises; the runtime is then unchanged except for its next refresh.
        """
        try:
            return self._refresh(table_id)[0]
        except Exception as error:
            failure = error
            self.store.write(lambda db: load_failed(db, table_id, failure, self.clock()))
            raise

    def _refresh(self, table_id: int) -> tuple[TableRuntime | None, TableRefused | None]:
        """The refreshed runtime, and the refusal with its hint."""
        runtime = self.store.read(lambda db: tables.get(db, table_id))
        try:
            loaded = self._load(runtime)
            self._refuse_twins(runtime, loaded)
            if runtime.uuid not in ("", uuid := loaded.table.facts.uuid):
                if self._is_renamed(runtime):
                    return self._refresh(self.ensure(runtime.identifier).table_id)
                runtime = self.store.write(lambda db: reset_replaced(db, table_id, uuid, self.clock()))
            looks = self._looks(runtime, loaded)
            evaluated = self._evaluated(runtime, loaded, looks) if self._is_stale(runtime, loaded, looks) else None
        except TableNotFound:
            if not self._is_renamed(runtime):
                self.store.write(lambda db: dispose(db, table_id, self.clock()))
            return None, None
        except TableRefused as refusal:
            return self.store.write(partial(self._save_refused, table_id=table_id, refusal=refusal)), refusal
        save = partial(self._save_refreshed, table_id=table_id, loaded=loaded, evaluated=evaluated, looks=looks)
        refreshed, commits = self.store.write(save)
        if commits is not None:
            self.note_changes(table_id, commits)
        return refreshed, loaded.refusal

    def _is_renamed(self, runtime: TableRuntime) -> bool:
        """Whether the table has another name in its catalog by now, which it is known by from now on."""
        catalog = runtime.identifier.catalog
        with suppress(AmoroError):
            listed = self.tables.list_all(self.tables.catalog(catalog))
            name = new_names(self.store, self.tables, catalog, listed).get(runtime.uuid)
            return name is not None and self.store.write(lambda db: rename(db, runtime.table_id, name, self.clock()))
        return False

    def preview(
        self, identifier: TableIdentifier, requested: OptimizingType | None, force: bool, where: str = ""
    ) -> Preview:
        """What optimizing would do now. Nothing is changed, not even the table's runtime.

        `where` selects partitions. Raises TableNotFound, TableRefused, InvalidArgument (a condition that does not
        select whole partitions) and what loading raises.
        """
        stored = self._find_or_new(identifier)
        loaded = self._load(stored)
        self._refuse_twins(stored, loaded)
        now = self.clock()
        runtime = after_refresh(stored, loaded, None, now)
        # A new table of the same name has not been optimized yet.
        anew = stored.uuid not in ("", runtime.uuid)
        last = {} if anew else self.store.read(lambda db: tables.partitions_last_optimized(db, stored.table_id))
        if loaded.is_serviced:
            evaluation = self._evaluated(stored, loaded, self._looks(stored, loaded)).evaluation
            by_engine = replace(evaluation, reason=f"nothing to do by optimizing; {evaluation.reason}")
            return Preview(runtime, by_engine, None, (), 0, "")
        table = loaded.optimizable
        scan = table.scan()
        path_of = table.partition_path
        chooses = table.chooses(where) if where else None
        reserved = self.store.read(lambda db: self._reserved(db, stored, loaded.table.facts.uuid))
        others = with_blocked(reserved, table).paths
        commits = self.store.read(lambda db: commits_since_plan(db, stored, table, loaded.config))
        selects = excluding_reserved(others, loaded.selects)
        evaluation = evaluate(
            scan, loaded.config, last, now, requested, force, path_of, selects, chooses, ordered_groups(scan), commits
        )
        evaluation = with_reserved(evaluation, scan, others)
        opens_at = closed_until(loaded.config, now)
        if requested is None and evaluation.type is not None and opens_at is not None:
            evaluation = replace(evaluation, reason=f"{evaluation.reason}; {window_reason(opens_at)}")
        new_plan = None
        if scan is not None:
            capacity = self.store.read(lambda db: groups.capacity(db, loaded.config.group))
            new_plan = plan(
                scan,
                evaluation,
                loaded.config,
                threads=max(capacity.threads, self.joining.get(loaded.config.group, 0)),
                max_input_per_thread=capacity.max_input_per_thread,
            )
        evaluation = new_plan.evaluation if new_plan else evaluation
        paths = tuple(path_of(verdict.key) for verdict in evaluation.partitions)
        inputs = [file for task in new_plan.tasks for file in (*task.rewritten, *task.converted)] if new_plan else []
        own = loaded.table.facts.properties
        copying = copy_description(new_plan.tasks, own, loaded.config, new_plan.type) if new_plan else ""
        predicted_ms = round(new_plan.work_s * stored.rate * 1000) if new_plan else 0
        ended = (ProcessStatus.SUCCESS,)
        done = self.store.read(lambda db: processes.list_processes(db, stored.table_id, ended, 1, OPTIMIZING_ACTION))
        disputed, last_one = len(table.disputed_deletes(inputs)), next(iter(done), None)
        return Preview(runtime, evaluation, new_plan, paths, disputed, copying, predicted_ms, last_one)

    def _load(self, runtime: TableRuntime) -> LoadedTable:
        catalog = self.tables.catalog(runtime.identifier.catalog)
        refusal = self.tables.formats.commits_refused(catalog)
        if refusal is not None:
            raise TableRefused(refusal, reason="catalog")
        table = self.tables.load(catalog, runtime.identifier, runtime)
        defaults = catalog.defaults_for(runtime.identifier)
        own = table.facts.properties
        config = parse_config(effective_properties(defaults, own))
        decide_enabled(runtime.enabled_override, own, defaults)  # a malformed value refuses the table
        table.refuse_unsupported()
        return LoadedTable(table, config, defaults, table.skip_reason())

    def _refuse_twins(self, runtime: TableRuntime, loaded: LoadedTable) -> None:
        """Refuse a table that is known under another name already: it would be optimized twice."""
        uuid = loaded.table.facts.uuid
        first = self.store.read(lambda db: tables.first_of_uuid(db, uuid))
        if first is not None and (not runtime.table_id or first[0] < runtime.table_id):
            raise TableRefused(
                f"{runtime.identifier} is the same table as {first[1]} (uuid {uuid})",
                reason="duplicate",
                hint=f"Use {first[1]}.",
            )

    def _looks(self, runtime: TableRuntime, loaded: LoadedTable) -> Looks:
        """The result of each action that the refresh evaluates."""
        override = runtime.enabled_override
        looks = self.schedule.look(loaded.table, loaded.defaults, loaded.enabled(override), override)
        return self.schedule.ask(loaded.table, loaded.defaults, looks, self.clock())

    def _is_stale(self, runtime: TableRuntime, loaded: LoadedTable, looks: Looks) -> bool:
        if runtime.status in BUSY or loaded.refusal is not None:
            return False
        facts, now = loaded.table.facts, self.clock()
        return (
            runtime.evaluated_at is None
            or (loaded.is_serviced and not runtime.status_reason.startswith(_services_due(looks)[1]))
            or runtime.status is OptimizingStatus.REFUSED
            or runtime.evaluated_snapshot_id != facts.snapshot_id
            or runtime.properties != facts.properties
            or runtime.evaluated_config != str(loaded.config)
            or runtime.enabled != loaded.enabled(runtime.enabled_override).value
            or (runtime.next_due_at is not None and runtime.next_due_at <= now)
            or (runtime.retry_at is not None and runtime.retry_at <= now)
        )

    def _evaluated(self, runtime: TableRuntime, loaded: LoadedTable, looks: Looks) -> Evaluated:
        """The verdict by the snapshot's totals if these suffice, else by its files; of services by `looks`."""
        now, facts = self.clock(), loaded.table.facts
        if loaded.is_serviced:
            summary = with_roles(loaded.table, (Role.SERVICE,), "services").contents.summary
            return Evaluated(Evaluation(facts.snapshot_id, *_services_due(looks), (), summary), now)
        table = loaded.optimizable
        # The reason of a refusal may be in the files.
        if facts.snapshot_id is not None and runtime.status is not OptimizingStatus.REFUSED:
            totals = totals_of(facts.snapshot_summary)
            spared = evaluate_totals(facts.snapshot_id, totals, loaded.config, runtime.scanned_at, now, runtime.summary)
            if spared is not None:
                return Evaluated(spared, runtime.scanned_at)
        scan = table.scan()
        last, reserved = self.store.read(
            lambda db: (tables.partitions_last_optimized(db, runtime.table_id), self._reserved(db, runtime, facts.uuid))
        )
        others = with_blocked(reserved, table).paths
        commits = self.store.read(lambda db: commits_since_plan(db, runtime, table, loaded.config))
        self.late_deletes.search(runtime, table, scan)
        selects = excluding_reserved(others, loaded.selects)
        evaluation = evaluate(
            scan,
            loaded.config,
            last,
            now,
            path_of=table.partition_path,
            selects=selects,
            clustered=ordered_groups(scan),
            commits=commits,
        )
        document = None if evaluation.digest is None else table_stats.pack_digest(evaluation.digest)
        return Evaluated(with_reserved(evaluation, scan, others), now, document)

    def _reserved(self, db: Connection, runtime: TableRuntime, uuid: str) -> ReservedFiles:
        """What is left to plans which have not ended, and to writers."""
        if not runtime.table_id:
            return NOTHING_TAKEN
        return reserved_files(db, runtime.table_id, uuid, self.find_action, self.clock())

    def _save_refreshed(
        self, db: Connection, table_id: int, loaded: LoadedTable, evaluated: Evaluated | None, looks: Looks
    ) -> tuple[TableRuntime, int | None]:
        """The stored runtime, and the commits of others since the last refresh; None where nothing was committed."""
        tables.get(db, table_id)  # raises if it is gone
        note(db, table_id, looks, self.clock())
        follow_properties(db, table_id, loaded.config)
        # Read again: the table may have been enabled or disabled while it was loaded.
        before = tables.get(db, table_id)
        runtime = after_refresh(before, loaded, evaluated, self.clock())
        if before.snapshot_id != runtime.snapshot_id:
            commit = tables.find_data_commit(db, table_id, runtime.uuid)
            tables.save_data_commit(db, table_id, runtime.uuid, loaded.data_commit(commit))
            if text := tell_rolled_back(db, runtime, loaded.table, self.clock()):
                runtime = replace(runtime, status_reason=f"{text}; {runtime.status_reason}")
        if evaluated is not None:
            runtime = replace(runtime, value=value_of(db, runtime, runtime.saving, self.clock()))
            evaluated.keep_digest(db, table_id)
            if self.keeps_series and (figures := figures_of(before, runtime)) is not None:
                time_series.add_figures(db, table_id, figures, self.clock())
        _log_refused(before, runtime)
        self._add_changes(db, before, runtime, loaded.table)
        is_same = before.metadata_location == runtime.metadata_location
        commits = None if is_same else _commits_since(before, loaded.table)
        return keep_table(db, before, runtime, self.clock()), commits

    def _add_changes(self, db: Connection, before: TableRuntime, after: TableRuntime, table: OpenTable) -> None:
        """Keep events of a changed table and of its schema, where listeners ask for them. A table whose schema no
        event tells has one, too: it is new, or the listener is."""
        about, facts, now = About(after.table_id, str(after.identifier)), table.facts, self.clock()
        data: dict[str, str | int] = {"metadata_location": facts.metadata_location}
        has_moved = before.metadata_location != facts.metadata_location
        if has_moved and self.asks_for(EventKind.TABLE_CHANGED, about.table):
            data["snapshot_id"] = str(facts.snapshot_id or "")
            append_event(db, EventKind.TABLE_CHANGED, f"main's head is {facts.snapshot_id}", about, now, data)
        if Role.READ in table.roles and self.asks_for(EventKind.SCHEMA_CHANGED, about.table):
            wanted = EventFilter(kinds=(EventKind.SCHEMA_CHANGED,), table_id=after.table_id)
            schema = with_roles(table, (Role.READ,), "listeners").schema()
            columns = to_json({column.name: column.type for column in schema.columns})
            if [event.data["columns"] for event in events.list_newest(db, wanted, None, 1)] != [columns]:
                data |= {"schema_id": schema.schema_id, "columns": columns}
                append_event(db, EventKind.SCHEMA_CHANGED, f"the schema is {columns}", about, now, data)

    def _save_refused(self, db: Connection, table_id: int, refusal: TableRefused) -> TableRuntime:
        before = tables.get(db, table_id)
        actions.set_aside(db, table_id)
        runtime = after_refusal(before, refusal, config_of(self.tables, before), self.clock())
        _log_refused(before, runtime)
        return keep_table(db, before, runtime, self.clock())

    def set_enabled(
        self, identifier: TableIdentifier, enabled: bool, condition: Callable[[TableRuntime], None] | None = None
    ) -> TableRuntime:
        """Enable or disable optimizing of a table; stored here, the table is not touched.

        Failures are forgotten, and pauses of actions end.

        Raises TableNotFound, CatalogUnavailable, TableRefused where the table's own property forbids to enable it, and
        what `condition` raises of the table as it is before.
        """
        table_id = (before := self.ensure(identifier)).table_id
        if enabled and before.veto:
            before = _require_on(replace(_require_existing(identifier, self.refresh(table_id)), enabled_override=None))
        if condition is not None:
            condition(self.find(identifier))

        def change(db: Connection) -> None:
            runtime = tables.get(db, table_id)
            if condition is not None and runtime != before:
                condition(runtime)
            for record in actions.list_of(db, table_id):
                if record.failures and record.action != OPTIMIZING_ACTION:
                    keep_record(db, record, succeeded(record), self.clock())
            tables.save(db, replace(forgiven(tables.get(db, table_id)), enabled_override=enabled))

        self.store.write(change)
        runtime = _require_existing(identifier, self.refresh(table_id))
        return _require_on(runtime) if enabled else runtime

    def set_properties(
        self, identifier: TableIdentifier, changes: Mapping[str, str | None], *, dry_run: bool
    ) -> Mapping[str, tuple[str | None, str | None]]:
        """Set properties of the table itself by one commit, and remove those that are None; with `dry_run` only check.

        Returns what changes: keys with the values before and after. Properties that others set meanwhile stay: each try
        is made on the table as just loaded. Raises InvalidArgument, TableRefused and errors of loading and committing;
        after CommitUnknown they may be set.
        """
        check_change(changes)
        for tries_left in reversed(range(_TRIES)):
            table = with_roles(self.tables.open(identifier), (Role.COMMIT, Role.MAINTAIN), "a change of properties")
            if refusal := self.tables.formats.commits_refused(self.tables.catalog(identifier.catalog)):
                raise TableRefused(refusal, reason="catalog")
            if condition := changes.get(FILTER_KEY):
                table.selects(condition)  # raises TableRefused for a malformed one
            own = table.facts.properties
            different = {key: (own.get(key), value) for key, value in changes.items() if own.get(key) != value}
            if not different or dry_run:
                return different
            try:
                table.send(table.stage_properties({key: value for key, (_, value) in different.items()}))
                break
            except CommitConflict:
                if not tries_left:
                    raise
        log.info("table.properties_set", table=str(identifier), keys=sorted(different))
        with suppress(AmoroError):  # it is refreshed later, then; the properties are set
            self.refresh(self.ensure(identifier).table_id)
        return different

    def find(self, identifier: TableIdentifier) -> TableRuntime:
        """The table as last refreshed, or loaded now (its id is 0 then); nothing is changed. Raises TableNotFound."""
        runtime = self._find_or_new(identifier)
        if runtime.refreshed_at is not None:
            return runtime
        try:
            loaded = self._load(runtime)
            self._refuse_twins(runtime, loaded)
            evaluated = None if loaded.refusal else self._evaluated(runtime, loaded, self._looks(runtime, loaded))
        except TableRefused as refusal:
            return after_refusal(runtime, refusal, config_of(self.tables, runtime), self.clock())
        return after_refresh(runtime, loaded, evaluated, self.clock())

    def find_present(self, identifier: TableIdentifier) -> TableRuntime:
        """As `find`, unless the catalog says that the table is gone. Raises TableNotFound, which says since when."""
        runtime = None
        try:
            runtime = self.find(identifier)
            if runtime.table_id:
                self.tables.open(identifier)
        except TableNotFound as error:
            end = self.store.read(lambda db: events.last_end(db, str(identifier)))
            if end is None:
                raise
            since = f"{end.text}, at {end.at:%Y-%m-%d %H:%M:%SZ}"
            raise TableNotFound(f"{error.message}: {since}", table=identifier) from error
        except AmoroError as error:
            if runtime is None:
                raise
            log.debug("table.not_opened", table=str(identifier), reason=error.message)  # its state tells why
        return runtime

    def find_stored(self, identifier: TableIdentifier) -> TableRuntime:
        """The table as the coordinator knows it; no catalog is asked. Raises TableNotFound."""
        return self.store.read(lambda db: tables.get_by_name(db, identifier))

    def id_of(self, identifier: TableIdentifier) -> int:
        """The table's id; 0 for one that is not known yet. Raises TableNotFound, CatalogUnavailable."""
        runtime = self._find_or_new(identifier)
        if not runtime.table_id:
            self.tables.open(identifier)
        return runtime.table_id

    def min_plan_interval(self, table_id: int) -> timedelta | None:
        """The minimum time between two plans of the table that were not requested. Raises TableNotFound."""
        return config_of(self.tables, self.store.read(lambda db: tables.get(db, table_id))).min_plan_interval

    def require_optimizable(self, identifier: TableIdentifier) -> TableRuntime:
        """The table, refreshed, for a requested process. Raises TableNotFound, TableRefused (switched off, too)."""
        refreshed, refusal = self._refresh(self.ensure(identifier).table_id)
        runtime = _require_existing(identifier, refreshed)
        if runtime.status is OptimizingStatus.REFUSED:
            raise refusal or TableRefused(runtime.status_reason, reason=runtime.refusal)
        return _require_on(runtime)

    def require_maintainable(self, identifier: TableIdentifier) -> TableRuntime:
        """The table, for a requested action other than optimizing. Raises as `require_optimizable`."""
        return _require_on(self.ensure(identifier))

    def list_pending(self) -> list[Pending]:
        """The tables that wait to be planned, sorted by name."""
        return self.store.read(tables.list_pending)

    def count(self) -> int:
        """How many tables are known."""
        return self.store.read(tables.count)

    def list_tables(self, catalog: str | None = None, status: OptimizingStatus | None = None) -> list[TableRuntime]:
        """All known tables, sorted by name."""
        return self.store.read(lambda db: tables.list_tables(db, catalog, status))


def _services_due(looks: Looks) -> tuple[OptimizingType | None, str]:
    """Whether any service of the table's own engine is due, as work that is not optimizing of ours, and which."""
    verdicts = [(name, state.verdict) for name, state in looks.items() if state.verdict]
    due = [f"{name} is due: {verdict.reason}" for name, verdict in verdicts if verdict.is_due]
    first = (f"{name} is not due: {verdict.reason}" for name, verdict in verdicts)
    return OptimizingType.MINOR if due else None, "; ".join(due) or next(first, "it has no service")


#: Tables that are loaded at most to find one by its UUID.
_MOST_LOADED = 200


def new_names(
    store: Store, tables_of: Tables, catalog: str, listed: Iterable[TableIdentifier]
) -> dict[str, TableIdentifier]:
    """The listed tables of the catalog that were never loaded before, by their UUIDs: one of them may be a known table
    under a new name."""
    stored = store.read(lambda db: tables.list_metadata_locations(db, catalog))
    loaded = {table.name for table in stored if table.metadata_location or table.refusal not in ("", "duplicate")}
    result = {}
    new = (name for name in sorted(listed) if (*name.namespace, name.name) not in loaded)
    for identifier in islice(new, _MOST_LOADED):
        with suppress(AmoroError):
            result[tables_of.open(identifier).facts.uuid] = identifier
    return result


def _require_existing(identifier: TableIdentifier, refreshed: TableRuntime | None) -> TableRuntime:
    if refreshed is None:
        raise TableNotFound(f"table {identifier} does not exist", table=identifier)
    return refreshed


def _require_on(runtime: TableRuntime) -> TableRuntime:
    """Raise TableRefused, with what to change, where optimizing the table is switched off."""
    identifier = runtime.identifier
    if runtime.veto or runtime.enabled_override is False:
        way = f"amoro table set {identifier} {ENABLED_KEY}-" if runtime.veto else f"amoro table enable {identifier}"
        if runtime.veto and runtime.format in PROCEDURES:
            way = "its engine, which removes that property"
        if runtime.veto is Origin.POLICY:
            way = "amoro policy apply -f FILE, with that policy changed"
        raise TableRefused(
            f"optimizing {identifier} is switched off by {runtime.enabled_origin}",
            reason="disabled",
            hint=f"Switch it on with: {way}",
        )
    return runtime


def _log_refused(before: TableRuntime, runtime: TableRuntime) -> None:
    refused = OptimizingStatus.REFUSED, runtime.status_reason
    if runtime.status is OptimizingStatus.REFUSED and (before.status, before.status_reason) != refused:
        log.warning("table.refused", table=str(runtime.identifier), reason=runtime.refusal, why=runtime.status_reason)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A live file of a table's head."""

    file: DataFile | DeleteFile
    partition: str  # its path
    deletes: int = 0  # delete files that apply to a data file
    is_dangling: bool = False


@dataclass
class InspectionService:
    """Loads a table and returns what it contains.

    Every method but `is_head` raises TableNotFound, CatalogUnavailable, TableRefused.
    """

    store: Store
    tables: Tables
    clock: Callable[[], datetime]

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
        defaults = self.tables.catalog(identifier.catalog).defaults_for(identifier)
        find = tables.get_by_name if known_only else tables.find
        runtime = self.store.read(lambda db: find(db, identifier))
        source = runtime if known_only and runtime else self.tables.open(identifier).facts
        own, serviced = source.properties, source.format in PROCEDURES
        override = runtime.enabled_override if runtime else None
        enabled = decide_enabled(override, own, defaults, SERVICES_ENABLED if serviced else ENABLED_KEY)
        return effective_config(defaults, own, serviced=serviced), enabled

    def contents(self, identifier: TableIdentifier) -> TableContents:
        """What a table consists of whose format's own engine does its services."""
        return with_roles(self.tables.open(identifier), (Role.SERVICE,), "this").contents

    def health(self, identifier: TableIdentifier) -> Evaluation:
        """The evaluation of the table's present head, even if nothing can be committed."""
        table = self._load(identifier)
        config = parse_config(self.tables.effective_properties(identifier.catalog, table))
        table.refuse_unsupported(for_commit=False)
        selects = table.selects(config.filter) if config.filter is not None else None
        runtime = self.store.read(lambda db: tables.find(db, identifier))
        last = self.store.read(lambda db: tables.partitions_last_optimized(db, runtime.table_id)) if runtime else {}
        return evaluate(_scanned(table), config, last, self.clock(), path_of=table.partition_path, selects=selects)

    def files(
        self, identifier: TableIdentifier, window: Window, snapshot_id: int | None = None
    ) -> tuple[int | None, Page[ListedFile]]:
        """A snapshot, by default the head, and its live files by partition and path; `after` is a path.

        Raises InvalidArgument for an unknown snapshot or path.
        """
        table = self._load(identifier)
        scan = _scanned(table) if snapshot_id is None else table.scan_of(snapshot_id)
        if scan is None and snapshot_id is not None:
            raise InvalidArgument(f"table {identifier} has no snapshot {snapshot_id}", hint="List its files anew.")
        if scan is None:
            return None, Page((), 0)

        def listed(file: DataFile | DeleteFile, deletes: int = 0, *, is_dangling: bool = False) -> ListedFile:
            path = table.partition_path(PartitionKey(file.spec_id, file.partition))
            return ListedFile(file, path, deletes, is_dangling)

        applied = {delete.identity: delete for delete in LiveFiles.of(scan.files).applied}
        files = [
            *(listed(file.data, len(file.deletes)) for file in scan.files),
            *(listed(delete) for delete in applied.values()),
            *(listed(delete, is_dangling=True) for delete in scan.dangling if delete.identity not in applied),
        ]
        files.sort(key=lambda item: (item.partition, item.file.spec_id, item.file.path))
        return scan.snapshot_id, page_in_order(files, window, "live file", lambda item: item.file.path)

    def snapshots(self, identifier: TableIdentifier, window: Window) -> Page[SnapshotFacts]:
        """Snapshots that the table still has, the newest first; `after` is the id of one.

        Raises InvalidArgument for an id that none has.
        """
        return page_in_order(self._load(identifier).snapshots(), window, "snapshot", lambda item: str(item.snapshot_id))

    def metadata(self, identifier: TableIdentifier) -> tuple[TableFacts, TableSchema, datetime | None]:
        """Facts and schema of the table's metadata, and the commit time of main's head; None without a head."""
        table = self._load(identifier)
        facts = table.facts
        head = next((snapshot for snapshot in table.snapshots() if snapshot.snapshot_id == facts.snapshot_id), None)
        return facts, table.schema(), head.committed_at if head else None

    def _load(self, identifier: TableIdentifier) -> Readable:
        return with_roles(self.tables.open(identifier), (Role.READ,), "reading it")


def _scanned(table: Readable) -> TableScan | None:
    """The files of the head, including those for which the table is refused."""
    snapshot_id = table.facts.snapshot_id
    return None if snapshot_id is None else table.scan_of(snapshot_id)
