"""Sums over tasks are what counting them gives, whatever is written."""

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amoro_core.model.processes import OptimizingProcess, OptimizingTask, ProcessStatus, TaskStatus
from amoro_core.store import processes, tables, task_sums, tasks
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from amoro_core.store.migrations import MIGRATIONS, migrate
from amoro_core.store.task_sums import TaskSum, keep_task_sums
from tests.store.builders import add_stages, minutes, process, runtime, stages, task

_COLUMNS = "process_id, status, group_name, work_kind"


def kept(db: Connection) -> list[dict[str, Any]]:
    return db.select(f"SELECT {_COLUMNS}, tasks, input_bytes FROM task_sum WHERE tasks <> 0 ORDER BY {_COLUMNS}")


def counted(db: Connection) -> list[dict[str, Any]]:
    return db.select(
        f"SELECT {_COLUMNS}, count(*) AS tasks, sum(input_bytes) AS input_bytes FROM task_runtime "
        f"GROUP BY {_COLUMNS} ORDER BY {_COLUMNS}"
    )


def owners(db: Connection) -> list[OptimizingProcess]:
    known = [tables.add(db, runtime(f"t{number}")) for number in range(3)]
    return [processes.add(db, process(table, f"p-{number}")) for number, table in enumerate(known)]


@pytest.mark.parametrize("seed", range(5))
def test_random_writes_are_summed_up(store: Store, seed: int) -> None:
    chosen, made = random.Random(seed), store.write(owners)
    store.write(add_stages)  # and with it the optimizer that holds tasks
    numbers = {owner.process_id: 0 for owner in made}

    def changed(db: Connection, owner: OptimizingProcess) -> list[tuple[OptimizingTask, OptimizingTask]]:
        every = tasks.list_for_process(db, owner.process_id)
        if not every:
            return []
        one = chosen.choice(every)
        other = chosen.choice(stages(owner))
        kind, group = chosen.choice(("rewrite", "cluster")), chosen.choice(("default", "spark"))
        return [(one, other._replace(task_id=one.task_id, kind=kind, group=group, input_bytes=chosen.randrange(9)))]

    def step(db: Connection) -> None:
        owner = chosen.choice(made)
        match chosen.randrange(20):
            case 0:
                tasks.remove_all(db, owner.process_id)
            case 1:
                tasks.move_open(db, owner.process_id, "spark")
            case 2 | 3 | 4 | 5 | 6 | 7:
                numbers[owner.process_id] += 1
                tasks.add_many(db, [(task(owner, numbers[owner.process_id]), b"")])
            case _:
                tasks.change_many(db, changed(db, owner))

    for _ in range(300):
        store.write(step)
        assert store.read(kept) == store.read(counted)
    store.write(lambda db: db.execute("DELETE FROM table_identifier WHERE table_id = :id", {"id": made[0].table_id}))
    assert store.read(kept) == store.read(counted)


def test_a_write_that_is_taken_back_sums_up_nothing(store: Store) -> None:
    owner = store.write(owners)[0]

    def fail(db: Connection) -> None:
        tasks.add_many(db, [(task(owner, 1), b"")])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.write(fail)
    assert store.read(kept) == []


def test_tasks_of_the_version_before_are_summed_up(path: Path) -> None:
    with closing(Connection(sqlite3.connect(path, isolation_level=None))) as db:
        migrate(db, MIGRATIONS[: MIGRATIONS.index(keep_task_sums)])
        add_stages(db)
    with Store.open(path) as store:
        assert store.read(kept) == store.read(counted)
        assert len(store.read(kept)) == len(TaskStatus)


def test_sums_and_kinds_of_processes_are_told_apart(store: Store) -> None:
    one, two, _ = store.write(owners)
    made = [
        *(task(one, number, input_bytes=5, kind="rewrite") for number in (1, 2)),
        task(one, 3, input_bytes=7, kind="cluster"),
        task(one, 4, input_bytes=1, group="spark", kind="sweep"),
        task(two, 1, input_bytes=2),
    ]
    store.write(lambda db: tasks.add_many(db, [(each, b"") for each in made]))
    planned = TaskStatus.PLANNED
    assert store.read(lambda db: task_sums.sum_up(db, (two.process_id, one.process_id))) == [
        TaskSum("p-0", "default", planned, 3, 17),
        TaskSum("p-0", "spark", planned, 1, 1),
        TaskSum("p-1", "default", planned, 1, 2),
    ]
    assert store.read(lambda db: task_sums.list_kinds(db, "p-0")) == ["cluster", "rewrite", "sweep"]
    canceled = made[2]._replace(status=TaskStatus.CANCELED, finished_at=minutes(1))
    store.write(lambda db: tasks.change_many(db, [(made[2], canceled)]))
    assert store.read(lambda db: task_sums.list_kinds(db, "p-0")) == ["rewrite", "sweep"]


def test_only_active_processes_have_open_tasks_and_wait(store: Store) -> None:
    one, two, three = store.write(owners)

    def write(db: Connection) -> None:
        for number, owner in enumerate((one, two, three)):
            tasks.add_many(db, [(task(owner, place), b"") for place in range(1, number + 2)])
        processes.save(db, replace(one, created_at=minutes(-5), status=ProcessStatus.REQUESTED))
        processes.save(db, replace(two, created_at=minutes(-3)))
        closed = replace(three, status=ProcessStatus.CLOSED, finished_at=minutes(1))
        processes.save(db, closed)

    store.write(write)
    assert store.read(task_sums.count_open) == {("default", TaskStatus.PLANNED): 2}
    assert store.read(task_sums.oldest_waiting) == {"default": minutes(-3)}
