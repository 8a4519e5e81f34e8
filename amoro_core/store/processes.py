"""Optimizing processes, in `table_process`."""

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime

from sqlite_utils import Database

from amoro_core.errors import AlreadyExists, InvalidArgument, ProcessNotFound, TableBusy
from amoro_core.model.processes import OptimizingProcess, ProcessStatus, Receipt
from amoro_core.model.tables import OptimizingType
from amoro_core.store.rows import (
    Row,
    execute,
    from_ms,
    from_ms_or_none,
    insert_into,
    select,
    select_one,
    to_json,
    to_ms,
    to_ms_or_none,
    update_of,
)

PREFIX_LENGTH = 6

_COLUMNS = (
    "process_id",
    "table_id",
    "process_type",
    "status",
    "trigger_word",
    "reason",
    "table_uuid",
    "format_version",
    "snapshot_id",
    "sequence_number",
    "schema_id",
    "last_column_id",
    "created_at_ms",
    "finished_at_ms",
    "failure_code",
    "failure",
    "max_retries",
    "allow_partial_commit",
    "commit_tries",
    "receipt_json",
)
_INSERT = insert_into("table_process", _COLUMNS)
_UPDATE = update_of("table_process", _COLUMNS, ("process_id",))
_NEWEST_FIRST = "ORDER BY created_at_ms DESC, process_id DESC"
_ACTIVE = "status IN ('running', 'committing', 'commit_unknown')"  # as the partial index has it, so that it is used


def add(db: Database, process: OptimizingProcess) -> OptimizingProcess:
    """Raises TableBusy when another process is active on the table (under any of its names), AlreadyExists."""
    try:
        execute(db, _INSERT, _to_row(process))
    except sqlite3.IntegrityError as error:
        other = _find_active_on(db, process)
        if _find(db, process.process_id) is not None:
            raise AlreadyExists(f"process {process.process_id} exists already") from error
        if other is None:
            raise
        raise TableBusy(f"process {other.process_id} on the table is {other.status}") from error
    return process


def get(db: Database, process_id: str) -> OptimizingProcess:
    """Raises ProcessNotFound."""
    process = _find(db, process_id)
    if process is None:
        raise _missing(process_id)
    return process


def find_by_prefix(db: Database, prefix: str) -> OptimizingProcess:
    """The one process whose id begins with the text.

    Raises ProcessNotFound when there is none; InvalidArgument when there are several, or the text is too short.
    """
    if len(prefix) < PREFIX_LENGTH:
        raise InvalidArgument(f"{prefix!r} is too short for a process: give {PREFIX_LENGTH} characters or more")
    rows = select(
        db,
        "SELECT * FROM table_process WHERE process_id >= ? AND process_id < ? ORDER BY process_id LIMIT 2",
        (prefix, prefix + chr(0x10FFFF)),
    )
    if not rows:
        raise _missing(prefix)
    if len(rows) > 1 and rows[0]["process_id"] != prefix:
        raise InvalidArgument(f"more than one process begins with {prefix!r}", hint="Give more characters.")
    return _from_row(rows[0])


def find_active(db: Database, table_id: int) -> OptimizingProcess | None:
    """The process that holds the table, an unknown commit included."""
    row = select_one(db, f"SELECT * FROM table_process WHERE table_id = ? AND {_ACTIVE}", (table_id,))  # noqa: S608
    return None if row is None else _from_row(row)


def save(db: Database, process: OptimizingProcess) -> OptimizingProcess:
    """Raises ProcessNotFound; TableBusy when it would become active beside another."""
    try:
        changed = execute(db, _UPDATE, _to_row(process))
    except sqlite3.IntegrityError as error:
        other = _find_active_on(db, process)
        if other is None or not process.status.is_active:
            raise
        raise TableBusy(f"process {other.process_id} on the table is {other.status}") from error
    if not changed:
        raise _missing(process.process_id)
    return process


def list_processes(
    db: Database,
    table_id: int | None = None,
    statuses: Iterable[ProcessStatus] | None = None,
    limit: int = 100,
) -> list[OptimizingProcess]:
    """Processes, newest first; of one table, or in one of the statuses, where these are given."""
    words = [status.value for status in (tuple(ProcessStatus) if statuses is None else statuses)]
    if not words:
        return []
    rows = select(
        db,
        f"SELECT * FROM table_process WHERE status IN ({', '.join('?' * len(words))}) "  # noqa: S608 - question marks
        f"AND (? IS NULL OR table_id = ?) {_NEWEST_FIRST} LIMIT ?",
        (*words, table_id, table_id, limit),
    )
    return [_from_row(row) for row in rows]


def list_active(db: Database) -> list[OptimizingProcess]:
    """Every process that holds a table, oldest first."""
    rows = select(db, f"SELECT * FROM table_process WHERE {_ACTIVE} ORDER BY created_at_ms, process_id")  # noqa: S608
    return [_from_row(row) for row in rows]


def list_ended_since(db: Database, since: datetime) -> list[OptimizingProcess]:
    """Processes that ended at that moment or later, in the order of their ends."""
    rows = select(
        db,
        "SELECT * FROM table_process WHERE finished_at_ms >= ? ORDER BY finished_at_ms, process_id",
        (to_ms(since),),
    )
    return [_from_row(row) for row in rows]


def remove_ended(db: Database, before: datetime, limit: int) -> int:
    """Forget processes that ended before that moment, with tasks, payloads and attempts; how many, at most `limit`.

    The longest ended go first; an active process never goes.
    """
    return execute(
        db,
        "DELETE FROM table_process WHERE process_id IN (SELECT process_id FROM table_process "
        "WHERE finished_at_ms < ? ORDER BY finished_at_ms, process_id LIMIT ?)",
        (to_ms(before), limit),
    )


def _find(db: Database, process_id: str) -> OptimizingProcess | None:
    row = select_one(db, "SELECT * FROM table_process WHERE process_id = ?", (process_id,))
    return None if row is None else _from_row(row)


def _find_active_on(db: Database, process: OptimizingProcess) -> OptimizingProcess | None:
    """Another active process on the same table, by its id here or by its uuid."""
    row = select_one(
        db,
        f"SELECT * FROM table_process WHERE {_ACTIVE} AND process_id <> ? AND (table_id = ? OR table_uuid = ?)",  # noqa: S608
        (process.process_id, process.table_id, process.table_uuid),
    )
    return None if row is None else _from_row(row)


def _missing(process_id: str) -> ProcessNotFound:
    return ProcessNotFound(f"process {process_id} is not known", hint="`amoro process list` shows the known ones.")


def _to_row(process: OptimizingProcess) -> Row:
    return {
        "process_id": process.process_id,
        "table_id": process.table_id,
        "process_type": process.type.value,
        "status": process.status.value,
        "trigger_word": process.trigger,
        "reason": process.reason,
        "table_uuid": process.table_uuid,
        "format_version": process.format_version,
        "snapshot_id": process.snapshot_id,
        "sequence_number": process.sequence_number,
        "schema_id": process.schema_id,
        "last_column_id": process.last_column_id,
        "created_at_ms": to_ms(process.created_at),
        "finished_at_ms": to_ms_or_none(process.finished_at),
        "failure_code": process.failure_code,
        "failure": process.failure,
        "max_retries": process.max_retries,
        "allow_partial_commit": process.allow_partial_commit,
        "commit_tries": process.commit_tries,
        "receipt_json": None if process.receipt is None else to_json(asdict(process.receipt)),
    }


def _from_row(row: Row) -> OptimizingProcess:
    receipt = row["receipt_json"]
    return OptimizingProcess(
        process_id=row["process_id"],
        table_id=row["table_id"],
        type=OptimizingType(row["process_type"]),
        status=ProcessStatus(row["status"]),
        trigger=row["trigger_word"],
        reason=row["reason"],
        table_uuid=row["table_uuid"],
        format_version=row["format_version"],
        snapshot_id=row["snapshot_id"],
        sequence_number=row["sequence_number"],
        schema_id=row["schema_id"],
        last_column_id=row["last_column_id"],
        created_at=from_ms(row["created_at_ms"]),
        finished_at=from_ms_or_none(row["finished_at_ms"]),
        failure_code=row["failure_code"],
        failure=row["failure"],
        max_retries=row["max_retries"],
        allow_partial_commit=bool(row["allow_partial_commit"]),
        commit_tries=row["commit_tries"],
        receipt=None if receipt is None else Receipt(**json.loads(receipt)),
    )
