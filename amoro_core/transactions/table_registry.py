"""Adding and disposing of tables, and what a refresh changes beside the table's own row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from amoro_core.actions.action_api import OPTIMIZING_ROLES
from amoro_core.errors import AccessDenied, AmoroError, CatalogUnavailable, DataFileMissing, TableRefused
from amoro_core.formats.ports import AnyTable, OpenTable, Role, lacking, with_roles
from amoro_core.logger import get_logger
from amoro_core.maintenance.data_expiry import last_data_commit
from amoro_core.maintenance.schedule import closed_until
from amoro_core.maintenance.table_services import SERVICES_ENABLED
from amoro_core.model.files import DataFile
from amoro_core.model.history_events import About, EventKind
from amoro_core.model.maintenance import DataCommit
from amoro_core.model.optimizing_config import ENABLED_KEY, Enabled, OptimizingConfig, decide_enabled
from amoro_core.model.plans import Evaluation, StoredDigest
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OPTIMIZING, FileSummary, OptimizingStatus, Saving, TableIdentifier, TableRuntime
from amoro_core.model.text_sanitizing import LONGEST_REASON, briefly, without_secrets
from amoro_core.planning.clustering.auto_columns import SCAN_DAYS
from amoro_core.planning.optimizing import forecast
from amoro_core.planning.optimizing.evaluator import foreign_commits
from amoro_core.scheduling.policy import REFRESH_INTERVAL, next_refresh
from amoro_core.state import tables as machine
from amoro_core.state.backoff import backed_off, recovered
from amoro_core.state.tables import with_evaluation
from amoro_core.store import actions, groups, processes, table_stats, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.journal import append_event, keep_table

log = get_logger("amoro.tables")


def follow_properties(db: Connection, table_id: int, config: OptimizingConfig) -> None:
    """Let a running process follow its table's properties where possible: retries, partial commit, group."""
    active = processes.find_active(db, table_id)
    if active is None or active.status is not ProcessStatus.RUNNING:
        return
    if (active.max_retries, active.allow_partial_commit) != (config.max_retries, config.allow_partial_commit):
        changed = replace(active, max_retries=config.max_retries, allow_partial_commit=config.allow_partial_commit)
        processes.save(db, changed)
    if groups.find(db, config.group) is not None:
        tasks.move_open(db, active.process_id, config.group)


def reset_replaced(db: Connection, table_id: int, uuid: str, now: datetime) -> TableRuntime:
    """Reset the runtime of a table whose name belongs to a new table; `enable|disable` by name is kept."""
    runtime = tables.get(db, table_id)
    if runtime.uuid in ("", uuid):
        return runtime
    log.info("table.replaced", table=str(runtime.identifier), uuid=uuid, before=runtime.uuid)
    text = f"another table has the name now: UUID {uuid}, before {runtime.uuid}"
    append_event(db, EventKind.REPLACED, text, About(table_id, str(runtime.identifier)), now)
    tables.forget_partitions(db, table_id)
    table_stats.forget_digest(db, table_id)
    actions.forget(db, table_id)
    fresh = replace(
        recovered(runtime),
        uuid=uuid,
        format="",  # set when it is loaded
        summary=FileSummary(),
        health=None,
        evaluated_snapshot_id=None,
        evaluated_at=None,
        scanned_at=None,
        next_due_at=None,
        pending_type=None,
        saving=Saving(),
        value=0.0,
        rate=1.0,
        planned_snapshot_id=None,
        planned_sequence=0,
        last_optimized_at=None,
        failing=None,
    )
    return tables.save(db, fresh)


def rename(db: Connection, table_id: int, identifier: TableIdentifier, now: datetime) -> bool:
    """Give the table its new name, and all that is kept of it; False while a process needs the old one.

    What is kept under the new name already gives way, except for `enable|disable` of this same table.
    """
    runtime, other = tables.get(db, table_id), tables.find(db, identifier)
    if not _is_free(db, runtime) or (other is not None and not _is_free(db, other)):
        return False
    override = runtime.enabled_override
    if other is not None:
        if other.uuid in ("", runtime.uuid) and other.enabled_override is not None:
            override = other.enabled_override
        tables.remove(db, other.table_id)
    before = str(runtime.identifier)
    append_event(db, EventKind.GONE, f"{before} was renamed to {identifier}", About(table_id, before), now)
    tables.save(db, replace(tables.rename(db, table_id, identifier), enabled_override=override, refresh_at=now))
    log.info("table.renamed", table=str(identifier), before=before)
    return True


def _is_free(db: Connection, runtime: TableRuntime) -> bool:
    return runtime.status is not OptimizingStatus.COMMITTING and not processes.list_active_of(db, runtime.table_id)


def postpone_refresh(db: Connection, table_id: int, moment: datetime) -> None:
    """Postpone the next refresh of the table."""
    tables.save(db, replace(tables.get(db, table_id), refresh_at=moment))


def load_failed(db: Connection, table_id: int, error: Exception, now: datetime) -> None:
    """Note that a refresh failed, and postpone the next one; an outage of the catalog counts as no failure of it."""
    before, at = tables.get(db, table_id), now + REFRESH_INTERVAL
    code = error.code if isinstance(error, AmoroError) else AmoroError.code
    failure = f"[{code}] {without_secrets(briefly(str(error), LONGEST_REASON))}"
    runtime = replace(before, load_failure=failure, refresh_at=at)
    if not isinstance(error, CatalogUnavailable) or isinstance(error, AccessDenied):
        runtime = replace(backed_off(runtime, code, now), retry_at=at)
    keep_table(db, before if runtime.failures == 1 else runtime, runtime, now)  # the first one is an event


def forgiven(runtime: TableRuntime) -> TableRuntime:
    """The runtime without its failures; it is evaluated again, since what is due may have waited for the next try."""
    return replace(recovered(runtime), evaluated_snapshot_id=None)


def _loaded(before: TableRuntime) -> TableRuntime:
    """The runtime of a table that was loaded again."""
    if before.load_failure.startswith(f"[{before.failure_code}]"):
        before = forgiven(before)
    return replace(before, load_failure="")


def new_table(identifier: TableIdentifier, now: datetime) -> TableRuntime:
    """The runtime of a table that was never refreshed."""
    return TableRuntime(
        table_id=0,
        identifier=identifier,
        uuid="",
        format_version=0,
        location="",
        group="default",
        status=OptimizingStatus.IDLE,
        status_since=now,
        status_reason="not refreshed yet",
    )


def add_table(db: Connection, identifier: TableIdentifier, now: datetime) -> TableRuntime:
    """Add a table that is unknown."""
    added = tables.add(db, new_table(identifier, now))
    append_event(db, EventKind.FOUND, f"{identifier} was found", About(added.table_id, str(identifier)), now)
    return added


def add_all(db: Connection, identifiers: tuple[TableIdentifier, ...], now: datetime) -> None:
    """Add those of the tables that are unknown."""
    for identifier in identifiers:
        if tables.find(db, identifier) is None:
            add_table(db, identifier, now)


def dispose(db: Connection, table_id: int, now: datetime) -> bool:
    """Delete a table's state, unless a commit on it is in progress or unknown."""
    runtime = tables.get(db, table_id)
    if not _is_free(db, runtime):
        return False
    tables.remove(db, table_id)
    name = str(runtime.identifier)
    append_event(db, EventKind.GONE, f"{name} is not known any more", About(table_id, name), now)
    log.info("table.disposed", table=str(runtime.identifier))
    return True


#: While a table has one of these, its evaluation is left to its process.
BUSY = OPTIMIZING | {OptimizingStatus.PLANNING, OptimizingStatus.COMMITTING}


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation, and when the files that it is based on were read."""

    evaluation: Evaluation
    scanned_at: datetime | None
    digest: bytes | None = None  # of the files, as it is stored; None: they were not read

    def keep_digest(self, db: Connection, table_id: int) -> None:
        """Keep the digest, if the files were read."""
        file_digest = self.evaluation.digest
        if file_digest is not None and self.digest is not None and self.scanned_at is not None:
            table_stats.save_digest(db, table_id, self.digest, StoredDigest(file_digest, self.scanned_at))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A loaded table, with its effective configuration."""

    table: OpenTable
    config: OptimizingConfig
    defaults: Mapping[str, str]  # of its catalog
    skip_reason: str | None

    @property
    def refusal(self) -> TableRefused | None:
        """Why the table is refused for optimizing only: its format lacks a required role, and has no services."""
        return None if self.is_serviced else lacking(self.table, OPTIMIZING_ROLES, "optimizing")

    @property
    def is_serviced(self) -> bool:
        """Whether its format's own engine does its services."""
        return Role.SERVICE in self.table.roles

    @property
    def optimizable(self) -> AnyTable:
        """The table, for optimizing. Raises its refusal."""
        return with_roles(self.table, OPTIMIZING_ROLES, "optimizing")

    def data_commit(self, last: DataCommit | None) -> DataCommit | None:
        """The last commit that added data, from the table and the stored value."""
        if Role.READ not in self.table.roles:
            return None
        table = with_roles(self.table, (Role.READ,), "data expiry")
        return last_data_commit(table.snapshots(), table.facts.snapshot_id, last)

    @property
    def selects(self) -> Callable[[DataFile], bool] | None:
        """A predicate of the files that optimizing is limited to; None: no limit. Raises TableRefused if malformed."""
        return None if self.config.filter is None else self.optimizable.selects(self.config.filter)

    def enabled(self, override: bool | None) -> Enabled:
        """Whether the table is optimized, by `amoro table enable|disable` and by what was loaded."""
        return enabled_of(self.table, self.defaults, override)


def enabled_of(table: OpenTable, defaults: Mapping[str, str], override: bool | None) -> Enabled:
    """Whether the table is optimized, or its services are done; `defaults` are the properties of its catalog."""
    key = SERVICES_ENABLED if Role.SERVICE in table.roles else ENABLED_KEY
    return decide_enabled(override, table.facts.properties, defaults, key)


def after_refresh(
    before: TableRuntime, loaded: LoadedTable, evaluated: Evaluated | None, now: datetime
) -> TableRuntime:
    """The runtime after the table was loaded; without an evaluation its status stays, unless it is refused."""
    facts, enabled = loaded.table.facts, loaded.enabled(before.enabled_override)
    runtime = replace(
        _loaded(before),
        uuid=facts.uuid,
        format_version=facts.format_version,
        location=facts.location,
        group=loaded.config.group,
        quota=loaded.config.quota,
        priority=loaded.config.priority,
        enabled=enabled.value,
        enabled_origin=enabled.origin,
        veto=enabled.veto,
        snapshot_id=facts.snapshot_id,
        metadata_location=facts.metadata_location,
        properties=dict(facts.properties),
        format=facts.format,
        refreshed_at=now,
    )
    if evaluated is not None and runtime.status not in BUSY:
        opens_at = closed_until(loaded.config, now)
        runtime = with_evaluation(runtime, evaluated.evaluation, loaded.skip_reason, now, opens_at)
        runtime = replace(runtime, scanned_at=evaluated.scanned_at, evaluated_config=str(loaded.config))
        is_as_before = facts.snapshot_id == before.snapshot_id  # a file that it lacked may be needed still
        if evaluated.evaluation.type is None and not (is_as_before and runtime.failure_code == DataFileMissing.code):
            runtime = recovered(runtime)
    if loaded.refusal is not None:
        return after_refusal(runtime, loaded.refusal, loaded.config, now)
    return replace(runtime, refresh_at=next_refresh(runtime, now, loaded.config))


def value_of(db: Connection, runtime: TableRuntime, saving: Saving, now: datetime) -> float:
    """The value of work on the table, by the scans that were reported in the last days."""
    if not saving.files:
        return 0.0
    scans = table_stats.count_scans(db, runtime.table_id, (now - timedelta(days=SCAN_DAYS - 1)).date())
    scans_per_day = scans / SCAN_DAYS or forecast.SCANS_PER_DAY
    return forecast.value_of(saving.files, scans_per_day, saving.work_s * runtime.rate)


def commits_since_plan(db: Connection, runtime: TableRuntime, table: AnyTable, config: OptimizingConfig) -> int:
    """The commits of other writers since the table's last plan; 0 where no property asks for it."""
    if config.minor_trigger_commits is None:
        return 0
    planned_id, sequence, uuid = runtime.planned_snapshot_id, runtime.planned_sequence, table.facts.uuid
    if runtime.uuid != uuid:
        planned_id, sequence = None, 0
    own = processes.list_own_snapshots(db, runtime.table_id, uuid, sequence)
    return foreign_commits(table.snapshots(), table.facts.snapshot_id, planned_id, sequence, own)


def after_refusal(before: TableRuntime, refusal: TableRefused, config: OptimizingConfig, now: datetime) -> TableRuntime:
    """The runtime after the table was refused."""
    runtime = replace(_loaded(before), refreshed_at=now)
    if runtime.status not in BUSY:
        runtime = machine.advance(runtime, machine.Refuse(refusal.reason, refusal.full_text), now)
    return replace(runtime, refresh_at=next_refresh(runtime, now, config))
