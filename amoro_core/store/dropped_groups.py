"""Groups that a process drops while it commits others, in `process_dropped_group`."""

from collections.abc import Mapping

from amoro_core.store.connection import Connection


def add(db: Connection, process_id: str, reasons: Mapping[int, str]) -> None:
    """Store dropped groups by task number with their reasons; the first reason is kept."""
    db.execute_many(
        "INSERT INTO process_dropped_group (process_id, task_number, reason) VALUES (:process_id, :number, :reason) "
        "ON CONFLICT DO NOTHING",
        ({"process_id": process_id, "number": number, "reason": reason} for number, reason in reasons.items()),
    )


def of(db: Connection, process_id: str) -> dict[int, str]:
    """The dropped groups of the process with their reasons, by number."""
    rows = db.select(
        "SELECT task_number, reason FROM process_dropped_group WHERE process_id = :process_id ORDER BY task_number",
        {"process_id": process_id},
    )
    return {row["task_number"]: row["reason"] for row in rows}
