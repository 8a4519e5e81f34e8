"""Blobs of work, for the optimizers that do it."""

from amoro_core.errors import TaskNotFound
from amoro_core.model.processes import Attempt, TaskStatus
from amoro_core.store import blobs, tasks
from amoro_core.store.connection import Connection


def read_piece(db: Connection, optimizer_id: str, attempt: Attempt, sha256: str, piece: int) -> bytes | None:
    """That piece of a blob of the attempt's process, from 0; None after the last one.

    Raises TaskNotFound unless the optimizer has acknowledged the attempt and holds it, and where there is no such blob.
    """
    held = [one for one in tasks.list_held(db, optimizer_id) if Attempt(one.task_id, one.attempt) == attempt]
    is_run = any(one.status is TaskStatus.ACKED for one in held)
    found = blobs.find_piece(db, attempt.task_id.process_id, sha256, piece) if is_run else None
    if found is None and (piece == 0 or not is_run):
        raise TaskNotFound(f"attempt {attempt} of optimizer {optimizer_id} has no blob {sha256}")
    return found
