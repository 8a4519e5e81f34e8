"""Commit attempts, in `commit_attempt`: written before they are sent; only their outcome changes."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from amoro_core.errors import IllegalState, ProcessNotFound
from amoro_core.model.commits import (
    Evidence,
    RefAt,
    SnapshotAdded,
    SnapshotsGone,
    SortOrderAdded,
    StatisticsGone,
    StatisticsNamed,
)
from amoro_core.model.processes import CommitAttempt, CommitOutcome
from amoro_core.store.column_codecs import from_ms, insert_into, to_json, to_ms, tuple_from_json
from amoro_core.store.connection import Connection, Row
from amoro_core.store.plans import receipt_from_json, receipt_to_json

_INSERT = insert_into(
    "commit_attempt",
    (
        "process_id",
        "attempt_number",
        "evidence_json",
        "payload",
        "groups_json",
        "files_json",
        "metadata_files_json",
        "outcome",
        "created_at_ms",
        "receipt_json",
        "part",
    ),
)
_OF_ATTEMPT = "WHERE process_id = :process_id AND attempt_number = :attempt_number"
_KINDS: dict[str, Callable[..., Evidence]] = {
    "snapshot-added": SnapshotAdded,
    "snapshots-gone": SnapshotsGone,
    "ref-at": RefAt,
    "statistics-named": StatisticsNamed,
    "statistics-gone": StatisticsGone,
    "sort-order-added": SortOrderAdded,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_OPEN = (CommitOutcome.SENT, CommitOutcome.UNKNOWN)


def add(db: Connection, attempt: CommitAttempt) -> CommitAttempt:
    """Store an attempt that is about to be sent."""
    db.execute(_INSERT, _to_row(attempt))
    return attempt


def save_outcome(db: Connection, process_id: str, number: int, outcome: CommitOutcome) -> None:
    """Set the outcome of an attempt; setting the same one again changes nothing.

    Raises IllegalState when another outcome is known for certain already, ProcessNotFound for an unknown attempt.
    """
    key = {"process_id": process_id, "attempt_number": number}
    row = db.select_one(f"SELECT outcome FROM commit_attempt {_OF_ATTEMPT}", key)
    if row is None:
        raise ProcessNotFound(f"process {process_id} has no commit attempt {number}")
    known = CommitOutcome(row["outcome"])
    if known is not outcome and (known not in _OPEN or outcome is CommitOutcome.SENT):
        raise IllegalState(f"commit attempt {number} of process {process_id} is {known}, it cannot become {outcome}")
    db.execute(f"UPDATE commit_attempt SET outcome = :outcome {_OF_ATTEMPT}", {**key, "outcome": outcome.value})


def list_for_process(db: Connection, process_id: str) -> list[CommitAttempt]:
    """All attempts of the process, in the order in which they were sent."""
    rows = db.select(
        "SELECT * FROM commit_attempt WHERE process_id = :process_id ORDER BY attempt_number",
        {"process_id": process_id},
    )
    return [_from_row(row) for row in rows]


def _to_row(attempt: CommitAttempt) -> Row:
    return {
        "process_id": attempt.process_id,
        "attempt_number": attempt.number,
        "evidence_json": _evidence_to_json(attempt.evidence),
        "payload": attempt.payload,
        "groups_json": to_json(attempt.groups),
        "files_json": to_json(attempt.files),
        "metadata_files_json": to_json(attempt.metadata_files),
        "outcome": attempt.outcome.value,
        "created_at_ms": to_ms(attempt.created_at),
        "receipt_json": receipt_to_json(attempt.receipt),
        "part": attempt.part,
    }


def _from_row(row: Row) -> CommitAttempt:
    return CommitAttempt(
        process_id=row["process_id"],
        number=row["attempt_number"],
        evidence=_evidence_from_json(row["evidence_json"]),
        payload=row["payload"],
        groups=tuple_from_json(row["groups_json"]),
        files=tuple_from_json(row["files_json"]),
        metadata_files=tuple_from_json(row["metadata_files_json"]),
        outcome=CommitOutcome(row["outcome"]),
        created_at=from_ms(row["created_at_ms"]),
        receipt=receipt_from_json(row["receipt_json"]),
        part=row["part"],
    )


def _evidence_to_json(evidence: Evidence) -> str:
    return to_json({"kind": _NAMES[type(evidence)], **asdict(evidence)})


def _evidence_from_json(text: str) -> Evidence:
    said = json.loads(text)
    kind = _KINDS[said.pop("kind")]
    return kind(**{key: _tupled(value) for key, value in said.items()})


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value
