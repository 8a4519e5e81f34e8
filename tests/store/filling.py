"""A state database with many tables, and many processes with many tasks, written without any table beneath."""

from collections.abc import Iterator
from datetime import timedelta

from amoro_core.model.processes import OptimizingProcess, OptimizingTask, TaskStatus
from amoro_core.store import optimizers, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from tests.store import builders
from tests.store.builders import HELD, minutes

_AT_ONCE = 5000


def fill(store: Store, *, known: int, running: int = 0, each: int = 0) -> None:
    """So many known tables; on the first ones a running process each, with so many tasks.

    Of the tasks of a process the first is rewritten, the second runs, and the others wait.
    """
    store.write(lambda db: optimizers.add(db, builders.optimizer(HELD.optimizer_id)))
    for start in range(0, known, _AT_ONCE):
        store.write(lambda db, start=start: _add_tables(db, range(start, min(known, start + _AT_ONCE))))
    for number in range(running):
        store.write(lambda db, number=number: _add_process(db, number, each))


def _add_tables(db: Connection, numbers: range) -> None:
    for number in numbers:
        tables.add(db, builders.runtime(f"t{number:06}"))


def _add_process(db: Connection, number: int, each: int) -> None:
    table = tables.get(db, number + 1)
    owner = builders.process(table, f"0199{number:04}-0001", created_at=builders.NOW + timedelta(seconds=number))
    processes.add(db, owner)
    tasks.add_many(db, [(task, b"payload") for task in _tasks(owner, each)])


def _tasks(owner: OptimizingProcess, each: int) -> Iterator[OptimizingTask]:
    acked = {"attempt": 1, "scheduled_at": minutes(1), "acked_at": minutes(2)}
    for number in range(1, each + 1):
        task = builders.task(owner, number)
        if number == 1:
            yield task._replace(status=TaskStatus.SUCCESS, finished_at=minutes(3), **acked)
        elif number == 2:
            yield task._replace(status=TaskStatus.ACKED, thread=HELD, **acked)
        else:
            yield task
