"""Turns that are kept from one call to the next: each change that moves a table is taken in."""

from dataclasses import replace
from typing import Any

import pytest

from amoro_core.errors import UnknownToken
from amoro_core.model.processes import OptimizingTask, ProcessStatus, ResourceGroup, TaskStatus
from amoro_core.store import groups, optimizers, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.reports import Asked
from amoro_core.transactions.scheduling import TaskScheduler
from amoro_core.transactions.settling import Effects
from amoro_core.transactions.turns import Turns
from tests.store.builders import NOW, minutes, optimizer, process, runtime, task


class Group:
    """A group of two optimizers with four threads each, and tables whose processes wait with four tasks each."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, **quotas: float) -> None:
        self.store, self.scheduler, self.made = store, TaskScheduler(), 0
        store.follow(self.scheduler.board)
        monkeypatch.setattr("amoro_core.transactions.scheduling.Turns", self._make)

        def fill(db: Connection) -> None:
            optimizers.add(db, optimizer("optimizer-1", threads=4))
            optimizers.add(db, optimizer("optimizer-2", threads=4, kinds=("cluster", "rewrite")))
            for number, (name, quota) in enumerate(quotas.items()):
                table = tables.add(db, runtime(name, quota=quota))
                owner = processes.add(db, process(table, name, created_at=minutes(number)))
                tasks.add_many(db, [(task(owner, one), b"x") for one in range(1, 5)])

        store.write(fill)

    def _make(self, *given: Any) -> Turns:
        self.made += 1
        return Turns(*given)

    def give(self, *threads: int, name: str = "optimizer-1") -> str:
        """The tables, by their names, of the tasks that these threads of that optimizer get."""

        def schedule(db: Connection) -> str:
            asked = Asked(name, "default", threads)
            (given,) = self.scheduler.schedule(db, [asked], Effects(), NOW)
            assert not isinstance(given, UnknownToken)
            return "".join(one.task_id.process_id for one in given)

        return self.store.write(schedule)

    def close(self, db: Connection, name: str) -> None:
        """Nobody waits for the process any more."""
        for one in tasks.list_for_process(db, name):
            if one.status is TaskStatus.PLANNED:
                tasks.change_many(db, [(one, one._replace(status=TaskStatus.CANCELED, finished_at=NOW))])
        processes.save(db, replace(processes.get(db, name), status=ProcessStatus.CLOSED, finished_at=NOW))


def test_turns_are_kept_while_nothing_but_tasks_changes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(store, monkeypatch, a=0.5, b=0.5)
    assert [group.give(1), group.give(2), group.give(3, 4), group.give(5)] == ["a", "b", "ab", "a"]
    assert group.made == 1


def test_a_quota_that_changes_counts_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(store, monkeypatch, a=0.5, b=0.5)
    assert group.give(1, 2) + group.give(3) + group.give(4) == "abab"
    store.write(lambda db: tables.save(db, replace(tables.get(db, 1), quota=0.1)))
    assert group.give(5) == "b"
    assert group.made == 1


def test_threads_that_join_count_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(store, monkeypatch, a=2.0, b=0.25)
    assert group.give(1, 2) == "ab"
    store.write(lambda db: optimizers.add(db, optimizer("optimizer-3", threads=8)))
    assert group.give(3) == "b", "two of sixteen threads are less than a quarter"
    assert group.made == 2


def test_a_process_that_ends_has_no_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(store, monkeypatch, a=0.5, b=0.5, c=0.5)
    assert group.give(1) == "a"
    store.write(lambda db: group.close(db, "b"))
    assert group.give(2, 3, 4) == "cac"
    assert group.give(1, 2, 3, name="optimizer-2") == "aca", "for somebody else neither"
    assert group.made == 1


def test_a_process_that_ended_before_everything_was_read_anew_has_no_turn(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(store, monkeypatch, a=0.5, b=0.5)
    assert group.give(1) == "a"
    group.scheduler.board.forget()
    store.write(lambda db: group.close(db, "b"))
    assert group.give(2, 3) == "aa"
    assert group.made == 2


def test_a_later_stage_has_its_turn_once_the_one_before_has_ended_in_another_group(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(store, monkeypatch)
    ended = {"attempt": 1, "failed_runs": 1, "scheduled_at": NOW, "acked_at": NOW, "finished_at": NOW}

    def plan(db: Connection) -> OptimizingTask:
        groups.add(db, ResourceGroup("spark"))
        owner = processes.add(db, process(tables.add(db, runtime()), "a"))
        first = task(owner, 1, group="spark", status=TaskStatus.FAILED, **ended)
        tasks.add_many(db, [(first, b"x"), (task(owner, 2, stage=1), b"x")])
        return first

    first = store.write(plan)
    assert group.give(1) == ""
    store.write(lambda db: tasks.change_many(db, [(first, first._replace(status=TaskStatus.SUCCESS))]))
    assert group.give(1) == "a"
    assert group.made == 1
