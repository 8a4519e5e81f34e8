"""The queue of planned tasks, and sums over tasks."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from amoro_core.errors import UnknownToken
from amoro_core.model.processes import (
    Attempt,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    ResourceGroup,
    TaskId,
    TaskStatus,
)
from amoro_core.model.task_payload import WorkResult
from amoro_core.scheduling.policy import Use, choose_tasks, quota_limit, share_of
from amoro_core.state.tasks import Ack, Cancel, Reset
from amoro_core.store import groups, processes, queue_stats, tables, tasks
from amoro_core.store.connection import as_stored
from amoro_core.store.database import Connection, Store
from amoro_core.store.queue_stats import TaskSum
from amoro_core.transactions.advance_process import Effects
from amoro_core.transactions.journal import advance_task
from amoro_core.transactions.task_queue import PollRequest, TaskScheduler, may_schedule
from amoro_core.transactions.task_reports import Report, Reporting
from tests.services.rigs import Limits
from tests.store.builders import NOW, list_planned, minutes, optimizer, process, runtime, task
from tests.tiers import seeds

OPTIMIZERS = {
    "optimizer-1": ("default", ("rewrite",), 0),
    "optimizer-2": ("default", ("rewrite", "cluster"), 50),
    "optimizer-3": ("spark", ("cluster", "rewrite", "list"), 2**40),
}


class TakenBack(Exception):
    """A write that changed something and is undone."""


class Site:
    """A store with optimizers, tables and processes that change at random."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.store, self.chance, self.scheduler = store, chance, TaskScheduler()
        self.now, self.made = NOW, 0
        unasked = Mock(side_effect=AssertionError("the work deletes nothing, and its process ends with no action"))
        self.reporting = Reporting(unasked, unasked, lambda: self.now)
        store.write(self._begin)

    def _begin(self, db: Connection) -> None:
        groups.add(db, ResourceGroup("spark"))
        for name, (group, kinds, largest) in OPTIMIZERS.items():
            groups.add_optimizer(db, optimizer(name, group=group, kinds=kinds, max_cluster_bytes=largest))
        for number in range(8):
            tables.add(db, runtime(f"t{number}", quota=self.chance.choice((0.1, 0.5, 2.0))))

    def change(self, db: Connection) -> None:
        """One change of any kind."""
        rare = self.chance.choice((self._move, self._close, self._reset, self._weigh, self._resize))
        self.chance.choice((self._plan, self._plan, self._end, self._report, self._report, rare))(db)

    def _plan(self, db: Connection) -> None:
        free = [one for one in tables.list_tables(db) if processes.find_active(db, one.table_id) is None]
        if not free:
            return
        self.made += 1
        created = self.now + timedelta(seconds=self.chance.randint(0, 3))
        owner = processes.add(
            db, process(self.chance.choice(free), f"p-{self.made:04}", created_at=created, commits=False)
        )
        tasks.add_many(db, [(self._task(task(owner, number)), b"x" * 10) for number in range(1, 6)])

    def _task(self, made: OptimizingTask) -> OptimizingTask:
        return made._replace(
            group=self.chance.choice(("default", "default", "spark")),
            kind=self.chance.choice(("rewrite", "rewrite", "cluster", "list")),
            stage=self.chance.choice((0, 0, 1)),
            input_bytes=self.chance.choice((10, 90)),
        )

    def _one(self, db: Connection, *statuses: TaskStatus) -> OptimizingTask | None:
        active = processes.list_active(db)
        found = [
            each for one in active for each in tasks.list_for_process(db, one.process_id) if each.status in statuses
        ]
        return self.chance.choice(found) if found else None

    def _move(self, db: Connection) -> None:
        if (one := self._one(db, *TaskStatus)) is not None:
            tasks.move_open(db, one.task_id.process_id, self.chance.choice(("default", "spark")))

    def _close(self, db: Connection) -> None:
        if (one := self._one(db, TaskStatus.PLANNED)) is None or self.chance.random() < 0.5:
            return
        owner = processes.get(db, one.task_id.process_id)
        if not any(each.thread for each in tasks.list_for_process(db, owner.process_id)):
            processes.save(db, replace(owner, status=ProcessStatus.CLOSED, finished_at=self.now))

    def _end(self, db: Connection) -> None:
        if (one := self._one(db, TaskStatus.SCHEDULED)) is None:
            return
        failed = self.chance.random() < 0.3
        status = TaskStatus.FAILED if failed else TaskStatus.SUCCESS
        ended = {"acked_at": self.now, "finished_at": self.now, "failed_runs": one.failed_runs + failed}
        tasks.change_many(db, [(one, one._replace(status=status, thread=None, **ended))])

    def _report(self, db: Connection) -> None:
        """An ack, and mostly a result, as they come from optimizers."""
        if (one := self._one(db, TaskStatus.SCHEDULED, TaskStatus.ACKED)) is None or one.thread is None:
            return
        attempt, name = Attempt(one.task_id, one.attempt), one.thread.optimizer_id
        assert self.reporting.ack(db, name, [attempt])[attempt] is not None
        if self.chance.random() < 0.7:
            assert self.reporting.complete(db, Report(name, attempt, WorkResult(one.kind, b"made")), Effects())

    def _reset(self, db: Connection) -> None:
        if (one := self._one(db, TaskStatus.SCHEDULED, TaskStatus.ACKED, TaskStatus.FAILED)) is not None:
            free = {"thread": None, "scheduled_at": None, "acked_at": None, "finished_at": None}
            tasks.change_many(db, [(one, one._replace(status=TaskStatus.PLANNED, **free))])

    def _weigh(self, db: Connection) -> None:
        one = self.chance.choice(tables.list_tables(db))
        tables.save(db, replace(one, quota=self.chance.choice((0.1, 0.5, 2.0))))

    def _resize(self, db: Connection) -> None:
        one = self.chance.choice(groups.list_optimizers(db))
        groups.save_optimizer(db, replace(one, threads=self.chance.choice((1, 4, 30))))

    def expected(self, db: Connection, asked: PollRequest, threads: Sequence[int]) -> list[TaskId]:
        """What `choose_tasks` chooses of what the store has, by the present accounts."""
        able = groups.get_optimizer(db, asked.optimizer_id)
        planned = list_planned(db, asked.group, able.kinds, max_cluster_bytes=able.max_cluster_bytes)
        accounts, size = (
            self.scheduler.accounts[asked.group],
            sum(one.threads for one in groups.list_optimizers(db, asked.group)),
        )
        running = Counter(one.table_id for one in tasks.list_assigned(db) if one.group == asked.group)
        uses = {
            table_id: Use(
                running[table_id], quota_limit(quota, size), share_of(quota, size), accounts.ahead_s.get(table_id, 0.0)
            )
            for table_id, quota in tables.quotas(db, {one.table_id for one in planned}).items()
        }
        waiting: dict[int, list[TaskId]] = {}
        for one in planned:
            waiting.setdefault(one.table_id, []).append(one.task_id)
        return choose_tasks(waiting, waiting.__getitem__, uses, len(threads), accounts.typical_s)


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_tasks_are_scheduled_in_fair_turns_of_all_that_waits(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    site = Site(store, chance)
    handed = 0

    def change_in_vain(db: Connection) -> None:
        site.change(db)
        raise TakenBack

    def compare(db: Connection) -> int:
        name = chance.choice(list(OPTIMIZERS))
        held = {one.thread.thread_id for one in tasks.list_assigned(db, name) if one.thread}
        free = tuple(number for number in range(1, 9) if number not in held)[: chance.randint(1, 3)]
        asked = PollRequest(name, OPTIMIZERS[name][0], free)
        site.scheduler.schedule(db, PollRequest(name, asked.group, ()), Effects(), site.now)  # settles the accounts
        expected = site.expected(db, asked, free)
        assert not expected or may_schedule(db, asked)
        given = site.scheduler.schedule(db, asked, Effects(), site.now)
        assert [(one.task_id, one.thread) for one in given] == [
            (task_id, OptimizerThread(name, thread)) for task_id, thread in zip(expected, free, strict=False)
        ]
        assert kept(db) == counted(db)
        if chance.random() < 0.2:
            raise TakenBack
        return len(expected)

    for _ in range(150):
        site.now += timedelta(seconds=chance.choice((*[0.001] * 8, 1, 30)))  # mostly accounts stay as they are
        writes = [chance.choice((site.change, site.change, change_in_vain, compare)) for _ in range(3)]
        for future in store.submit_all(writes):
            error = future.exception()
            assert error is None or isinstance(error, TakenBack), error
            handed += (future.result() or 0) if error is None else 0
    assert handed > 20


def _filled(store: Store, count: int = 3) -> TaskScheduler:
    def fill(db: Connection) -> None:
        for name in ("optimizer-1", "optimizer-2"):
            groups.add_optimizer(db, optimizer(name))
        owner = processes.add(db, process(tables.add(db, runtime())))
        tasks.add_many(db, [(task(owner, number), b"x" * 100) for number in range(1, count + 1)])

    store.write(fill)
    return TaskScheduler()


def _schedule(store: Store, scheduler: TaskScheduler, name: str, *threads: int) -> list[str]:
    request = PollRequest(name, "default", threads)
    return [str(one.task_id) for one in store.write(lambda db: scheduler.schedule(db, request, Effects(), NOW))]


def test_who_is_not_registered_gets_an_error(store: Store) -> None:
    scheduler = _filled(store)
    with pytest.raises(UnknownToken):
        _schedule(store, scheduler, "nobody", 1, 2)
    assert _schedule(store, scheduler, "optimizer-1", 1, 2) == ["0199aaaa-0001-1", "0199aaaa-0001-2"]


def test_an_answer_has_no_more_than_a_message_holds(store: Store, limits: Limits) -> None:
    scheduler = _filled(store, 5)
    limits(scheduling_answer=250)
    assert _schedule(store, scheduler, "optimizer-1", 1, 2, 3) == ["0199aaaa-0001-1", "0199aaaa-0001-2"]
    assert _schedule(store, scheduler, "optimizer-2", 1, 2, 3) == ["0199aaaa-0001-3", "0199aaaa-0001-4"]
    limits(scheduling_answer=1)
    assert _schedule(store, scheduler, "optimizer-2", 4, 5) == ["0199aaaa-0001-5"], (
        "one task is given however large it is"
    )


def test_of_a_tables_processes_the_oldest_is_worked_on_first(store: Store) -> None:
    scheduler = _filled(store, 0)

    def plan(db: Connection) -> None:
        table = tables.list_tables(db)[0]
        for lane, seconds in (("layout", 2), ("storage", 1)):  # the younger one is planned first
            created = NOW + timedelta(seconds=seconds)
            owner = processes.add(db, process(table, f"p-{lane}", created_at=created, lane=lane, commits=False))
            tasks.add_many(db, [(task(owner, number), b"") for number in (1, 2)])

    store.write(plan)
    assert _schedule(store, scheduler, "optimizer-1", 1, 2, 3) == ["p-storage-1", "p-storage-2", "p-layout-1"]


@pytest.mark.parametrize(
    "end", [Reset("its optimizer was lost"), Reset("it was released", lost=False), Cancel("by hand")]
)
def test_a_procedure_waits_until_one_that_ended_without_a_report_is_certainly_over(
    store: Store, end: Reset | Cancel
) -> None:
    """Also where the clock is set forward meanwhile; a rewrite does not wait."""
    begun, clock = as_stored(NOW), [1000.0]
    scheduler = TaskScheduler(heartbeat_timeout=timedelta(seconds=60), monotonic=lambda: clock[0])

    def begin(db: Connection) -> None:
        groups.add_optimizer(db, optimizer("optimizer-1", kinds=("procedure:hudi", "rewrite")))
        table = tables.add(db, runtime())
        for name, lane, kind in (("p-1", "files", "procedure:hudi"), ("p-2", "layout", "procedure:hudi")):
            owner = processes.add(db, process(table, name, lane=lane, commits=False))
            tasks.add_many(db, [(task(owner, kind=kind), b"")])

    def schedule(seconds: float, set_forward: float = 0.0) -> list[str]:
        clock[0] = 1000.0 + seconds
        now = begun + timedelta(seconds=seconds + set_forward)
        request = PollRequest("optimizer-1", "default", (1,))
        return [str(one.task_id) for one in store.write(lambda db: scheduler.schedule(db, request, Effects(), now))]

    def ack_and_end(db: Connection) -> None:
        held = advance_task(db, tasks.get(db, TaskId("p-1", 1)), Ack(1, "optimizer-1"), begun)
        advance_task(db, held, end, begun + timedelta(seconds=10))

    store.write(begin)
    assert schedule(0) == ["p-1-1"]
    store.write(ack_and_end)
    assert (schedule(89.9), schedule(11, set_forward=3600)) == ([], [])
    assert len(schedule(90.1)) == 1


def test_nothing_is_written_while_nothing_waits_for_the_optimizer(store: Store) -> None:
    scheduler = _filled(store, 1)

    def may_give(*thread_ids: int) -> bool:
        return store.read(lambda db: may_schedule(db, PollRequest("optimizer-1", "default", thread_ids)))

    assert may_give(1)
    _schedule(store, scheduler, "optimizer-1", 1)
    assert not may_give(2)
    assert may_give(1), "thread 1 holds a task, and its answer was lost"
    owner = store.write(lambda db: processes.list_active(db)[0])
    store.write(lambda db: tasks.add_many(db, [(task(owner, 2, kind="strange"), b"")]))
    assert not may_give(2), "it does not know that kind of work"
    store.write(lambda db: tasks.add_many(db, [(task(owner, 3), b"")]))
    assert may_give(2)


def test_what_a_failed_transaction_changed_is_scheduled_again(store: Store) -> None:
    scheduler = _filled(store, 1)

    def end(db: Connection) -> None:
        scheduler.schedule(db, PollRequest("optimizer-1", "default", (1,)), Effects(), NOW)
        db.execute("ROLLBACK")  # as a full disk does

    with pytest.raises(Exception, match=r"."):
        store.write(end)
    assert _schedule(store, scheduler, "optimizer-1", 1) == ["0199aaaa-0001-1"]


# Sums over tasks are what counting them gives, whatever is written


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
    assert store.read(lambda db: queue_stats.sum_up(db, (two.process_id, one.process_id))) == [
        TaskSum("p-0", "default", planned, 3, 17),
        TaskSum("p-0", "spark", planned, 1, 1),
        TaskSum("p-1", "default", planned, 1, 2),
    ]
    assert store.read(lambda db: queue_stats.list_kinds(db, "p-0")) == ["cluster", "rewrite", "sweep"]
    canceled = made[2]._replace(status=TaskStatus.CANCELED, finished_at=minutes(1))
    store.write(lambda db: tasks.change_many(db, [(made[2], canceled)]))
    assert store.read(lambda db: queue_stats.list_kinds(db, "p-0")) == ["rewrite", "sweep"]
    store.write(lambda db: tasks.remove_all(db, two.process_id))
    assert store.read(kept) == store.read(counted) != []
    store.write(lambda db: db.execute("DELETE FROM table_identifier WHERE table_id = :id", {"id": one.table_id}))
    assert store.read(kept) == store.read(counted) == []


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
    assert store.read(queue_stats.count_open) == {("default", TaskStatus.PLANNED): 2}
    assert store.read(queue_stats.oldest_waiting) == {"default": minutes(-3)}
