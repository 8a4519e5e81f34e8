"""Optimizing processes, in `table_process`, and their commit attempts."""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Any

from amoro_core.errors import AlreadyExists, IllegalState, ProcessNotFound, TableBusy
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsRemoved,
    SortOrderAdded,
    StatisticsNamed,
    StatisticsRemoved,
)
from amoro_core.model.history_events import ANY_PROCESS, ProcessFilter
from amoro_core.model.processes import (
    ACTIVE_PROCESS_STATUSES,
    FILES,
    IN_NO_LANE,
    CommitAttempt,
    CommitOutcome,
    Delay,
    OptimizingProcess,
    ProcessStatus,
    pick,
    uuid7_ms,
)
from amoro_core.store.connection import (
    Codec,
    Connection,
    Duplicate,
    Parameters,
    Row,
    RowMapping,
    conditions_of,
    from_ms,
    to_json,
    to_ms,
    to_ms_or_none,
)
from amoro_core.store.plans import receipt_from_json, receipt_to_json


def _delay_from_json(text: str) -> Delay:
    document = json.loads(text)
    return Delay(**{**document, "retry_at": from_ms(document["retry_at"])})


_RECEIPT = Codec(receipt_to_json, receipt_from_json)
_STATUSES = frozenset(ProcessStatus)
_PROCESSES = RowMapping(
    OptimizingProcess,
    type="process_type",
    action="action_name",
    trigger="trigger_word",
    where="condition",
    also=["is_active"],
    codecs={
        "type": Codec(str, str),
        "status": Codec(str, lambda word: ProcessStatus(word) if word in _STATUSES else word),
        "receipt": _RECEIPT,
        "delay": Codec(lambda delay: to_json({**asdict(delay), "retry_at": to_ms(delay.retry_at)}), _delay_from_json),
    },
)
_NEWEST_FIRST = "ORDER BY created_at_ms DESC, process_id DESC"
_ACTIVE = "finished_at_ms IS NULL"  # as the partial index has it, so that it is used
_IN_LANE = f"{_ACTIVE} AND status NOT IN ('held', 'requested')"  # as well


def add(db: Connection, process: OptimizingProcess) -> OptimizingProcess:
    """Raises TableBusy when another process is active in its lane of the table (under any name), AlreadyExists."""
    try:
        db.insert("table_process", _PROCESSES.to_row(process))
    except Duplicate as error:
        other = _find_in_lane(db, process)
        if _find(db, process.process_id) is not None:
            raise AlreadyExists(f"process {process.process_id} exists already") from error
        if other is None:
            raise
        raise TableBusy(f"process {other.process_id} on the table is {other.status}") from error
    return process


def get(db: Connection, process_id: str) -> OptimizingProcess:
    """Raises ProcessNotFound."""
    process = _find(db, process_id)
    if process is None:
        raise _missing(process_id)
    return process


def find_by_part(db: Connection, text: str) -> OptimizingProcess:
    """The one process whose id is the text, or begins or ends with it.

    Raises ProcessNotFound when there is none; InvalidArgument when there are several, or the text is too short.
    """
    rows = _PROCESSES.select(
        db,
        "SELECT * FROM table_process WHERE process_id = :text OR process_id IN (SELECT process_id FROM table_process "
        "WHERE :length < 36 AND :text IN (substr(process_id, 1, :length), substr(process_id, -:length)) LIMIT 10)",
        {"text": text, "length": len(text)},
    )
    process = pick(text, rows, "a process", lambda item: (item.process_id,))
    if process is None:
        raise _missing(text)
    return process


def find_active(db: Connection, table_id: int, lane: str = FILES) -> OptimizingProcess | None:
    """The process that holds the lane of the table, an unknown commit included."""
    return _PROCESSES.find(
        db,
        f"SELECT * FROM table_process WHERE table_id = :table_id AND lane = :lane AND {_IN_LANE}",
        {"table_id": table_id, "lane": lane},
    )


def list_active_of(db: Connection, table_id: int, table_uuid: str = "") -> list[OptimizingProcess]:
    """Every active process of the table, under this name or under another with the same uuid, oldest first."""
    sql = f"SELECT * FROM table_process WHERE {_ACTIVE} AND (table_id = :table_id OR table_uuid = :uuid)"
    # An empty uuid is that of no process.
    return _PROCESSES.select(
        db, f"{sql} ORDER BY created_at_ms, process_id", {"table_id": table_id, "uuid": table_uuid}
    )


def find_undo(db: Connection, process: OptimizingProcess) -> str:
    """The process that took this one back; empty for none."""
    process_id = db.value(
        "SELECT process_id FROM table_process WHERE table_id = :table_id AND created_at_ms >= :created_at_ms "
        "AND action_name LIKE 'undo-%' AND status = 'success' "
        "AND :process_id IN (detail ->> 'process_id', detail ->> 'undone') ORDER BY created_at_ms DESC",
        {"table_id": process.table_id, "created_at_ms": to_ms(process.created_at), "process_id": process.process_id},
    )
    return str(process_id or "")


def save(db: Connection, process: OptimizingProcess) -> OptimizingProcess:
    """Raises ProcessNotFound; TableBusy when it would become active beside another."""
    try:
        changed = db.update("table_process", _PROCESSES.to_row(process), "process_id")
    except Duplicate as error:
        other = _find_in_lane(db, process)
        if other is None or not process.is_active:
            raise
        raise TableBusy(f"process {other.process_id} on the table is {other.status}") from error
    if not changed:
        raise _missing(process.process_id)
    return process


def list_processes(
    db: Connection,
    table_id: int | None = None,
    statuses: Iterable[ProcessStatus] | None = None,
    limit: int = 100,
    action: str = "",
) -> list[OptimizingProcess]:
    """Processes, newest first; of one table, in one of the statuses, or of an action, where these are given."""
    words = [status.value for status in (tuple(ProcessStatus) if statuses is None else statuses)]
    if not words:
        return []
    # Apart from the other: of one table few processes are found by its index, which an OR would not use.
    own = "" if table_id is None else "AND table_id = :table_id"
    return _PROCESSES.select(
        db,
        "SELECT * FROM table_process WHERE status IN (SELECT value FROM json_each(:statuses)) "
        f"{own} AND :action IN ('', action_name) {_NEWEST_FIRST} LIMIT :most",
        {"statuses": to_json(words), "table_id": table_id, "action": action, "most": limit},
    )


def note_start(db: Connection, process_ids: Iterable[str], now: datetime) -> None:
    """Note that work on these processes begins; one whose work began earlier stays as it is."""
    db.execute(
        "UPDATE table_process SET started_at_ms = :now_ms WHERE started_at_ms IS NULL "
        "AND process_id IN (SELECT value FROM json_each(:processes))",
        {"now_ms": to_ms(now), "processes": to_json(sorted(process_ids))},
    )


def note_measured(db: Connection, process_id: str) -> int:
    """Note the thread time of the process's tasks, and return it in ms; 0 if one of them has not succeeded."""
    measured = db.value(
        "UPDATE table_process SET measured_ms = (SELECT CASE WHEN sum(status <> 'success') THEN 0 "
        "ELSE coalesce(sum(finished_at_ms - acked_at_ms), 0) END FROM task_runtime WHERE process_id = :process_id) "
        "WHERE process_id = :process_id RETURNING measured_ms",
        {"process_id": process_id},
    )
    return int(measured or 0)


def prediction_errors(db: Connection, limit: int) -> list[float]:
    """By what share the measured thread times of the latest processes differ from the predicted ones."""
    rows = db.select(
        "SELECT abs(1.0 * measured_ms / predicted_ms - 1) AS error FROM table_process WHERE finished_at_ms IS NOT NULL "
        "AND predicted_ms > 0 AND measured_ms > 0 ORDER BY finished_at_ms DESC LIMIT :most",
        {"most": limit},
    )
    return [float(row["error"]) for row in rows]


def list_own_snapshots(db: Connection, table_id: int, table_uuid: str, above: int) -> set[int]:
    """The snapshots above a sequence number that processes have committed to the table."""
    rows = db.select(
        "SELECT evidence_json ->> 'snapshot_id' AS snapshot_id FROM commit_attempt JOIN table_process "
        "USING (process_id) WHERE table_id = :table_id AND table_uuid = :table_uuid AND outcome = 'done' "
        "AND evidence_json ->> 'sequence_number' > :above",
        {"table_id": table_id, "table_uuid": table_uuid, "above": above},
    )
    return {int(row["snapshot_id"]) for row in rows}


def place_of(db: Connection, text: str) -> tuple[int, str]:
    """The place of a process in the list of all: its creation in ms, and its id; by its id, or a unique prefix.

    One that was removed has its place, too: the id tells when it was made. Raises ProcessNotFound, InvalidArgument.
    """
    try:
        optimizing_process = find_by_part(db, text)
    except ProcessNotFound:
        removed_ms = uuid7_ms(text)
        if removed_ms is None:
            raise
        return removed_ms, text
    return to_ms(optimizing_process.created_at), optimizing_process.process_id


def list_page(
    db: Connection, wanted: ProcessFilter, after: tuple[int, str] | None, limit: int
) -> list[OptimizingProcess]:
    """At most `limit` wanted processes, newest first, that follow a place."""
    where, parameters = _conditions(wanted)
    if after is not None:
        where += " AND (created_at_ms, process_id) < (:after_ms, :after_id)"
        parameters["after_ms"], parameters["after_id"] = after
    sql = f"SELECT * FROM table_process WHERE {where} {_NEWEST_FIRST} LIMIT :most"
    return _PROCESSES.select(db, sql, {**parameters, "most": limit})


def count(db: Connection, wanted: ProcessFilter = ANY_PROCESS) -> int:
    """How many wanted processes there are."""
    return db.count("table_process", *_conditions(wanted))


def list_active_on(db: Connection, table_ids: Iterable[int]) -> dict[int, OptimizingProcess]:
    """The processes that hold the lane of files of any of these tables, by the table's id."""
    wanted = "lane = :lane AND table_id IN (SELECT value FROM json_each(:ids))"
    rows = db.select(
        f"SELECT * FROM table_process WHERE {_IN_LANE} AND {wanted}", {"ids": to_json(sorted(table_ids)), "lane": FILES}
    )
    return {row["table_id"]: _PROCESSES.from_row(row) for row in rows}


def _conditions(wanted: ProcessFilter) -> tuple[str, Row]:
    where, parameters = conditions_of(
        (
            ("table_id", "table_id = :table_id", wanted.table_id),
            ("status", "status = :status", wanted.status and wanted.status.value),
            ("type", "process_type = :type", wanted.type or None),
            ("since_ms", f"(finished_at_ms >= :since_ms OR {_ACTIVE})", to_ms_or_none(wanted.since)),
            ("until_ms", "finished_at_ms < :until_ms", to_ms_or_none(wanted.until)),
        )
    )
    if wanted.status in ACTIVE_PROCESS_STATUSES:
        where += f" AND {_ACTIVE}"  # there may be many that have ended
    return where, parameters


def list_active(db: Connection) -> list[OptimizingProcess]:
    """Every process that holds a lane of a table, oldest first."""
    return _PROCESSES.select(db, f"SELECT * FROM table_process WHERE {_ACTIVE} ORDER BY created_at_ms, process_id")


def list_active_ids(db: Connection) -> list[str]:
    """The ids of these processes."""
    return [row["process_id"] for row in db.select(f"SELECT process_id FROM table_process WHERE {_ACTIVE}")]


def count_active(db: Connection) -> int:
    """How many processes have not ended."""
    return db.count("table_process", _ACTIVE)


def list_uncleaned(db: Connection) -> list[OptimizingProcess]:
    """Every process that has ended and whose files are still to be removed, oldest first."""
    return _PROCESSES.select(db, "SELECT * FROM table_process WHERE left_over = 1 ORDER BY process_id")


def list_ended_since(db: Connection, since: datetime) -> list[OptimizingProcess]:
    """Processes that ended at that moment or later, in the order of their ends."""
    return _PROCESSES.select(
        db,
        "SELECT * FROM table_process WHERE finished_at_ms >= :since_ms ORDER BY finished_at_ms, process_id",
        {"since_ms": to_ms(since)},
    )


_ENDED_IN = (
    "FROM table_process WHERE finished_at_ms >= :since_ms AND finished_at_ms < :until_ms "
    "AND (:table_ids IS NULL OR table_id IN (SELECT value FROM json_each(:table_ids)))"
)
_SUMMED = [f"{of}_{when}" for of in ("data_files", "delete_files", "bytes", "rows") for when in ("before", "after")]
_SUMS = ", ".join(f"coalesce(sum(receipt_json ->> '{name}'), 0) AS {name}" for name in _SUMMED)


def total_ended(db: Connection, period: Parameters) -> list[Row]:
    """The processes that ended in a `report_period`, by type and status, with sums over their receipts."""
    return db.select(
        "SELECT process_type AS type, status, count(*) AS processes, count(DISTINCT table_id) AS tables, "
        f"{_SUMS} {_ENDED_IN} GROUP BY process_type, status ORDER BY process_type, status",
        period,
    )


def total_failures(db: Connection, period: Parameters) -> list[Row]:
    """The failures of processes that ended in a `report_period`, by code and table, most processes first.

    Each row has the sums of its code: `code_processes` and `tables_total`.
    """
    # Beside a single max(), SQLite takes the other columns from the row of the maximum.
    return db.select(
        "WITH failed AS (SELECT failure_code AS code, table_id, count(*) AS processes, failure AS reason, process_id, "
        f"max(finished_at_ms) AS finished_ms {_ENDED_IN} AND failure_code <> '' GROUP BY failure_code, table_id), "
        "ranked AS (SELECT *, sum(processes) OVER same AS code_processes, count(*) OVER same AS tables_total, "
        "row_number() OVER (same ORDER BY processes DESC, finished_ms DESC, table_id) AS place FROM failed "
        "WINDOW same AS (PARTITION BY code)) "
        "SELECT * FROM ranked WHERE place <= :most ORDER BY code_processes DESC, code, place",
        period,
    )


def report_period(since: datetime, until: datetime, table_ids: Collection[int] | None, most: int) -> Parameters:
    """The values by which a report of these tables, or of all, is read; its lists have at most so many of them."""
    ids = None if table_ids is None else to_json(sorted(table_ids))
    return {"since_ms": to_ms(since), "until_ms": to_ms(until), "table_ids": ids, "most": most}


def remove_ended(db: Connection, before: datetime, limit: int) -> int:
    """Forget processes that ended before that moment, with tasks, payloads and attempts; how many, at most `limit`.

    The longest ended go first; an active process never goes, nor one that has condemned files which still wait.
    """
    return db.execute(
        "DELETE FROM table_process WHERE process_id IN (SELECT process_id FROM table_process "
        "WHERE finished_at_ms < :before_ms AND NOT EXISTS (SELECT 1 FROM condemned_batch "
        "WHERE condemned_batch.process_id = table_process.process_id "
        "AND condemned_batch.status NOT IN ('written', 'deleted', 'restored')) "
        "ORDER BY finished_at_ms, process_id LIMIT :most)",
        {"before_ms": to_ms(before), "most": limit},
    )


def _find(db: Connection, process_id: str) -> OptimizingProcess | None:
    return _PROCESSES.find(db, "SELECT * FROM table_process WHERE process_id = :process_id", {"process_id": process_id})


def _find_in_lane(db: Connection, process: OptimizingProcess) -> OptimizingProcess | None:
    """Another active process in the same lane of the same table, by its id here or by its uuid."""
    active = list_active_of(db, process.table_id, process.table_uuid)
    others = (other for other in active if other.lane == process.lane and other.process_id != process.process_id)
    return next((other for other in others if other.status not in IN_NO_LANE), None)


def _missing(process_id: str) -> ProcessNotFound:
    return ProcessNotFound(f"process {process_id} is not known", hint="`amoro process list` shows the known ones.")


def add_clearing(db: Connection, process_id: str, paths: Iterable[str]) -> None:
    """Write down files that the process is to remove; what is written down already stays so."""
    db.execute_many(
        "INSERT INTO process_clearing (process_id, path, kept) VALUES (:process_id, :path, 0) ON CONFLICT DO NOTHING",
        ({"process_id": process_id, "path": path} for path in paths),
    )


def list_clearing(db: Connection, process_id: str, limit: int) -> list[str]:
    """At most `limit` files that the process is still to remove, in order of their paths."""
    rows = db.select(
        "SELECT path FROM process_clearing WHERE process_id = :process_id AND kept = 0 ORDER BY path LIMIT :most",
        {"process_id": process_id, "most": limit},
    )
    return [row["path"] for row in rows]


def settle_clearing(db: Connection, process_id: str, paths: Iterable[str], *, retained: bool) -> None:
    """These files of the process were removed, or are kept."""
    statement = "UPDATE process_clearing SET kept = 1" if retained else "DELETE FROM process_clearing"
    db.execute_many(
        f"{statement} WHERE process_id = :process_id AND path = :path",
        ({"process_id": process_id, "path": path} for path in paths),
    )


def count_retained(db: Connection, process_id: str) -> int:
    """How many files of those that the process was to remove are kept."""
    return db.count("process_clearing", "process_id = :process_id AND kept = 1", {"process_id": process_id})


_OF_ATTEMPT = "WHERE process_id = :process_id AND attempt_number = :attempt_number"
_EVIDENCE_KINDS: dict[str, Callable[..., Evidence]] = {
    "snapshot-added": SnapshotAdded,
    "snapshots-gone": SnapshotsRemoved,
    "ref-at": RefAt,
    "statistics-named": StatisticsNamed,
    "statistics-gone": StatisticsRemoved,
    "sort-order-added": SortOrderAdded,
}
_EVIDENCE_NAMES = {kind: name for name, kind in _EVIDENCE_KINDS.items()}
_OPEN_COMMIT = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


def _evidence_to_json(evidence: Evidence) -> str:
    return to_json({"kind": _EVIDENCE_NAMES[type(evidence)], **asdict(evidence)})


def _evidence_from_json(text: str) -> Evidence:
    document = json.loads(text)
    kind = _EVIDENCE_KINDS[document.pop("kind")]
    return kind(**{key: _tupled(value) for key, value in document.items()})


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


_COMMITS = RowMapping(
    CommitAttempt,
    number="attempt_number",
    evidence="evidence_json",
    codecs={"evidence": Codec(_evidence_to_json, _evidence_from_json), "receipt": _RECEIPT},
)


def add_commit(db: Connection, attempt: CommitAttempt) -> CommitAttempt:
    """Store an attempt that is about to be sent."""
    db.insert("commit_attempt", _COMMITS.to_row(attempt))
    return attempt


def save_commit_outcome(db: Connection, process_id: str, number: int, outcome: CommitOutcome) -> None:
    """Set the outcome of an attempt; setting the same one again changes nothing.

    Raises IllegalState when another outcome is known for certain already, ProcessNotFound for an unknown attempt.
    """
    key = {"process_id": process_id, "attempt_number": number}
    row = db.select_one(f"SELECT outcome FROM commit_attempt {_OF_ATTEMPT}", key)
    if row is None:
        raise ProcessNotFound(f"process {process_id} has no commit attempt {number}")
    stored = CommitOutcome(row["outcome"])
    if stored is not outcome and (stored not in _OPEN_COMMIT or outcome is CommitOutcome.SENT):
        raise IllegalState(f"commit attempt {number} of process {process_id} is {stored}, it cannot become {outcome}")
    db.execute(f"UPDATE commit_attempt SET outcome = :outcome {_OF_ATTEMPT}", {**key, "outcome": outcome.value})


def list_commits(db: Connection, process_id: str) -> list[CommitAttempt]:
    """All attempts of the process, in the order in which they were sent."""
    return _COMMITS.select(
        db,
        "SELECT * FROM commit_attempt WHERE process_id = :process_id ORDER BY attempt_number",
        {"process_id": process_id},
    )


def list_added(db: Connection, table_id: int, table_uuid: str, limit: int = 10) -> list[tuple[str, SnapshotAdded]]:
    """The latest snapshots that processes have committed to the table, the newest first, each with its process's id."""
    rows = db.select(
        "SELECT process_id, evidence_json FROM commit_attempt JOIN table_process USING (process_id) "
        "WHERE table_id = :table_id AND table_uuid = :table_uuid AND outcome = :done "
        "ORDER BY commit_attempt.created_at_ms DESC LIMIT :most",
        {"table_id": table_id, "table_uuid": table_uuid, "done": CommitOutcome.DONE.value, "most": limit},
    )
    pairs = ((row["process_id"], _evidence_from_json(row["evidence_json"])) for row in rows)
    return [(process_id, evidence) for process_id, evidence in pairs if isinstance(evidence, SnapshotAdded)]
