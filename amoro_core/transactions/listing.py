"""Adding and disposing of tables, and what a refresh changes beside the table's own row."""

from dataclasses import replace
from datetime import datetime

from amoro_core.events import get_logger
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.journal import About, EventKind
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import FileSummary, OptimizingStatus, TableIdentifier, TableRuntime
from amoro_core.store import actions, digests, groups, partitions, processes, tables, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions.telling import tell

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


def begin_anew(db: Connection, table_id: int, uuid: str, now: datetime) -> TableRuntime:
    """Reset the runtime of a table whose name belongs to a new table; `enable|disable` by name is kept."""
    runtime = tables.get(db, table_id)
    if runtime.uuid in ("", uuid):
        return runtime
    log.info("table.replaced", table=str(runtime.identifier), uuid=uuid, before=runtime.uuid)
    told = f"another table has the name now: UUID {uuid}, before {runtime.uuid}"
    tell(db, EventKind.REPLACED, told, About(table_id, str(runtime.identifier)), now)
    partitions.forget(db, table_id)
    digests.forget(db, table_id)
    actions.forget(db, table_id)
    fresh = replace(
        runtime,
        uuid=uuid,
        format="",  # set when it is loaded
        summary=FileSummary(),
        health=None,
        evaluated_snapshot_id=None,
        evaluated_at=None,
        scanned_at=None,
        next_due_at=None,
        failures=0,
        retry_at=None,
        last_optimized_at=None,
    )
    return tables.save(db, fresh)


def postpone_refresh(db: Connection, table_id: int, moment: datetime) -> None:
    """Postpone the next refresh of the table."""
    tables.save(db, replace(tables.get(db, table_id), refresh_at=moment))


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
    tell(db, EventKind.FOUND, f"{identifier} was found", About(added.table_id, str(identifier)), now)
    return added


def add_all(db: Connection, identifiers: tuple[TableIdentifier, ...], now: datetime) -> None:
    """Add those of the tables that are unknown."""
    for identifier in identifiers:
        if tables.find(db, identifier) is None:
            add_table(db, identifier, now)


def dispose(db: Connection, table_id: int, now: datetime) -> bool:
    """Delete a table's state, unless a commit on it is in progress or unknown."""
    runtime = tables.get(db, table_id)
    if runtime.status is OptimizingStatus.COMMITTING or processes.list_active_of(db, table_id):
        return False
    tables.remove(db, table_id)
    name = str(runtime.identifier)
    tell(db, EventKind.GONE, f"{name} is not known any more", About(table_id, name), now)
    log.info("table.disposed", table=str(runtime.identifier))
    return True
