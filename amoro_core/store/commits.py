"""Commit attempts, in `commit_attempt`: written before they are sent, and never changed but for their outcome."""

import json
from dataclasses import asdict

from sqlite_utils import Database

from amoro_core.errors import IllegalState, ProcessNotFound
from amoro_core.model.processes import CommitAttempt, CommitOutcome, Receipt
from amoro_core.store.rows import (
    Row,
    execute,
    from_ms,
    insert_into,
    select,
    select_one,
    to_json,
    to_ms,
    tuple_from_json,
)

_INSERT = insert_into(
    "commit_attempt",
    (
        "process_id",
        "attempt_number",
        "snapshot_id",
        "parent_snapshot_id",
        "sequence_number",
        "manifest_list",
        "payload",
        "groups_json",
        "files_json",
        "metadata_files_json",
        "outcome",
        "created_at_ms",
        "receipt_json",
    ),
)
_OPEN = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


def add(db: Database, attempt: CommitAttempt) -> CommitAttempt:
    """Write down an attempt that is about to be sent."""
    execute(db, _INSERT, _to_row(attempt))
    return attempt


def save_outcome(db: Database, process_id: str, number: int, outcome: CommitOutcome) -> None:
    """Note what became of an attempt; saying the same again changes nothing.

    Raises IllegalState when another outcome is known for certain already, ProcessNotFound for an unknown attempt.
    """
    row = select_one(
        db, "SELECT outcome FROM commit_attempt WHERE process_id = ? AND attempt_number = ?", (process_id, number)
    )
    if row is None:
        raise ProcessNotFound(f"process {process_id} has no commit attempt {number}")
    known = CommitOutcome(row["outcome"])
    if known is not outcome and (known not in _OPEN or outcome is CommitOutcome.SENT):
        raise IllegalState(f"commit attempt {number} of process {process_id} is {known}, it cannot become {outcome}")
    execute(
        db,
        "UPDATE commit_attempt SET outcome = ? WHERE process_id = ? AND attempt_number = ?",
        (outcome.value, process_id, number),
    )


def list_for_process(db: Database, process_id: str) -> list[CommitAttempt]:
    """All attempts of the process, in the order in which they were sent."""
    rows = select(db, "SELECT * FROM commit_attempt WHERE process_id = ? ORDER BY attempt_number", (process_id,))
    return [_from_row(row) for row in rows]


def _to_row(attempt: CommitAttempt) -> Row:
    return {
        "process_id": attempt.process_id,
        "attempt_number": attempt.number,
        "snapshot_id": attempt.snapshot_id,
        "parent_snapshot_id": attempt.parent_snapshot_id,
        "sequence_number": attempt.sequence_number,
        "manifest_list": attempt.manifest_list,
        "payload": attempt.payload,
        "groups_json": to_json(attempt.groups),
        "files_json": to_json(attempt.files),
        "metadata_files_json": to_json(attempt.metadata_files),
        "outcome": attempt.outcome.value,
        "created_at_ms": to_ms(attempt.created_at),
        "receipt_json": to_json(asdict(attempt.receipt)),
    }


def _from_row(row: Row) -> CommitAttempt:
    return CommitAttempt(
        process_id=row["process_id"],
        number=row["attempt_number"],
        snapshot_id=row["snapshot_id"],
        parent_snapshot_id=row["parent_snapshot_id"],
        sequence_number=row["sequence_number"],
        manifest_list=row["manifest_list"],
        payload=row["payload"],
        groups=tuple_from_json(row["groups_json"]),
        files=tuple_from_json(row["files_json"]),
        metadata_files=tuple_from_json(row["metadata_files_json"]),
        outcome=CommitOutcome(row["outcome"]),
        created_at=from_ms(row["created_at_ms"]),
        receipt=Receipt(**json.loads(row["receipt_json"])),
    )
