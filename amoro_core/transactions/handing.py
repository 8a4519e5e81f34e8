"""Attempts that go from one optimizer to another, or back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from amoro_core.errors import StaleReport
from amoro_core.events import get_logger
from amoro_core.model.journal import About, EventKind
from amoro_core.model.processes import Attempt
from amoro_core.state import tasks as task_machine
from amoro_core.store import optimizers, tasks
from amoro_core.store.connection import Connection
from amoro_core.transactions.reports import Refusal
from amoro_core.transactions.settling import Effects, take_back
from amoro_core.transactions.telling import keep_task, tell

log = get_logger("amoro.optimizing")


def adopt(
    db: Connection, optimizer_id: str, previous_id: str, running: Sequence[Attempt], now: datetime
) -> list[Attempt]:
    """Move attempts that go on from an optimizer's earlier registration to its new one; returns them."""
    adopted: list[Attempt] = []
    if not previous_id:
        return adopted
    for task in tasks.list_held(db, previous_id):
        attempt = Attempt(task.task_id, task.attempt)
        if attempt not in running or task.thread is None:
            continue
        try:
            moved = task_machine.adopt(task, attempt.number, optimizer_id, task.thread.thread_id, now)
        except StaleReport:
            continue
        keep_task(db, task, moved, now)
        adopted.append(attempt)
    return adopted


def dismiss(db: Connection, optimizer_id: str, reason: str, effects: Effects, now: datetime, *, lost: bool) -> int:
    """Take back what the optimizer holds and end its registration, if it has one; how many tasks it held."""
    held = tasks.list_held(db, optimizer_id)
    for task in held:
        take_back(db, task, reason, effects, now, lost=lost)
    if (known := optimizers.find(db, optimizer_id)) is not None:
        kind = EventKind.LOST if lost else EventKind.LEFT
        words = f"optimizer {optimizer_id} {'was lost' if lost else 'left'}: {reason}"
        about = About(optimizer_id=optimizer_id, group=known.group)
        tell(db, kind, words, about, now, {"threads": known.threads, "tasks": len(held)})
    optimizers.remove(db, optimizer_id)
    effects.lost_optimizers += lost
    return len(held)


def give_back(
    db: Connection, optimizer_id: str, attempt: Attempt, refusal: Refusal, effects: Effects, now: datetime
) -> bool:
    """Plan the task again, for another optimizer; it has neither failed nor been lost."""
    held = [task for task in tasks.list_held(db, optimizer_id) if Attempt(task.task_id, task.attempt) == attempt]
    log.warning("work.refused", attempt=str(attempt), optimizer=optimizer_id, kind=refusal.kind)
    if not held:
        return False
    optimizer = optimizers.get(db, optimizer_id)
    known = tuple(kind for kind in optimizer.kinds if kind != held[0].kind)
    optimizers.save(db, replace(optimizer, kinds=known))
    take_back(db, held[0], refusal.message[:4000], effects, now, lost=False)
    return True
