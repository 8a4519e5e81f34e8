"""Attempts and events as they are kept: pages, filters, bounds."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.model.history_events import About, AttemptOutcome, Event, EventFilter, EventKind, TaskAttempt
from amoro_core.model.processes import Attempt, OptimizerThread, OptimizingProcess, ProcessStatus, TaskId, TaskStatus
from amoro_core.store import events, groups, processes, tasks
from amoro_core.store.database import Connection, Store
from tests.store.builders import NOW, minutes, optimizer, task

THREAD = OptimizerThread("optimizer-1", 3)


def ended(owner: OptimizingProcess, number: int, attempt: int) -> TaskAttempt:
    name = Attempt(TaskId(owner.process_id, number), attempt)
    return TaskAttempt(name, THREAD, AttemptOutcome.FAILED, NOW, minutes(1), minutes(2), "AMORO-1", "no disk", 50, 90)


def named(found: list[TaskAttempt]) -> list[tuple[int, int]]:
    return [(one.attempt.task_id.number, one.attempt.number) for one in found]


def test_an_attempt_is_read_as_it_was_written(store: Store, owner: OptimizingProcess) -> None:
    one = replace(ended(owner, 1, 1), acked_at=None, outcome=AttemptOutcome.LOST)
    store.write(lambda db: tasks.add_attempts(db, [one]))
    assert store.read(lambda db: tasks.list_attempts(db, owner.process_id, None, (0, 0), 9)) == [one]


def test_attempts_that_ended_and_those_that_run_are_one_list(store: Store, owner: OptimizingProcess) -> None:
    def fill(db: Connection) -> None:
        groups.add_optimizer(db, optimizer())
        held = task(owner, 2, status=TaskStatus.ACKED, attempt=2, thread=THREAD, scheduled_at=NOW, acked_at=minutes(1))
        tasks.add_many(db, [(task(owner, 1), b""), (held._replace(input_rows=7), b""), (task(owner, 3), b"")])
        for number, attempt in ((1, 1), (1, 2), (2, 1)):
            tasks.add_attempts(db, [ended(owner, number, attempt)])

    store.write(fill)
    everything = store.read(lambda db: tasks.list_attempts(db, owner.process_id, None, (0, 0), 9))
    assert named(everything) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert everything[-1] == TaskAttempt(
        Attempt(TaskId(owner.process_id, 2), 2), THREAD, AttemptOutcome.RUNNING, NOW, minutes(1), None, "", "", 7, 90
    )
    page = store.read(lambda db: tasks.list_attempts(db, owner.process_id, None, (1, 1), 2))
    assert named(page) == [(1, 2), (2, 1)]
    assert named(store.read(lambda db: tasks.list_attempts(db, owner.process_id, 2, (0, 0), 9))) == [(2, 1), (2, 2)]
    counted = store.read(
        lambda db: (tasks.count_attempts(db, owner.process_id), tasks.count_attempts(db, owner.process_id, 1))
    )
    assert counted == (4, 2)


def test_the_latest_hundred_attempts_of_a_task_stay(store: Store, owner: OptimizingProcess) -> None:
    def fill(db: Connection) -> None:
        tasks.add_attempts(db, [ended(owner, 2, 1)])
        for number in range(1, 131):
            tasks.add_attempts(db, [ended(owner, 1, number)])

    store.write(fill)
    kept = named(store.read(lambda db: tasks.list_attempts(db, owner.process_id, None, (0, 0), 999)))
    assert kept == [*((1, number) for number in range(31, 131)), (2, 1)]

    store.write(lambda db: processes.save(db, replace(owner, status=ProcessStatus.CLOSED, finished_at=minutes(3))))
    assert store.write(lambda db: processes.remove_ended(db, minutes(4), 9)) == 1
    assert store.read(lambda db: tasks.count_attempts(db, owner.process_id)) == 0


def event(number: int, **fields: object) -> Event:
    base = Event(EventKind.PLANNED, minutes(number), f"event {number}", About(1, "cat.db.t", "p-1"), {"tasks": number})
    return replace(base, **fields)


def texts(found: list[Event]) -> list[str]:
    return [one.text for one in found]


def test_an_event_is_read_as_it_was_written(store: Store) -> None:
    one = Event(EventKind.LOST, NOW, "“gone”", About(5, "c.n.t", "p", "o", "g"), {"tasks": 3, "why": "silent"})
    number = store.write(lambda db: events.add(db, one))
    assert store.read(lambda db: events.list_newest(db, EventFilter(), None, 9)) == [replace(one, event_id=number)]


def test_events_are_listed_by_time_and_followed_by_number(store: Store) -> None:
    # The third was stored while the clock was set back.
    store.write(lambda db: [events.add(db, event(number)) for number in (1, 2, 0)])
    newest = store.read(lambda db: events.list_newest(db, EventFilter(), None, 2))
    assert texts(newest) == ["event 2", "event 1"]
    last = (newest[-1].at, newest[-1].event_id)
    assert texts(store.read(lambda db: events.list_newest(db, EventFilter(), last, 9))) == ["event 0"]
    assert texts(store.read(lambda db: events.list_stored_after(db, EventFilter(), 1, 9))) == ["event 2", "event 0"]
    assert store.read(events.last_id) == 3


def test_pages_of_events_of_one_moment_neither_repeat_nor_skip(store: Store) -> None:
    store.write(lambda db: [events.add(db, event(5, text=f"{number}")) for number in range(5)])
    seen: list[str] = []
    before = None
    while page := store.read(lambda db, at=before: events.list_newest(db, EventFilter(), at, 2)):
        seen += texts(page)
        before = (page[-1].at, page[-1].event_id)
    assert seen == ["4", "3", "2", "1", "0"]


FILTERS = [
    (EventFilter(kinds=(EventKind.FAILED,)), ["event 2"]),
    (EventFilter(kinds=(EventKind.FAILED, EventKind.PLANNED)), ["event 4", "event 2", "event 1"]),
    (EventFilter(table_id=7), ["event 3"]),
    (EventFilter(process_id="p-9"), ["event 4"]),
    (EventFilter(since=minutes(3)), ["event 4", "event 3"]),
    (EventFilter(kinds=(EventKind.PLANNED,), table_id=1, process_id="p-1", since=minutes(1)), ["event 1"]),
]


@pytest.mark.parametrize(("wanted", "found"), FILTERS)
def test_filters_hold_together(store: Store, wanted: EventFilter, found: list[str]) -> None:
    kept = (
        event(1),
        event(2, kind=EventKind.FAILED),
        event(3, kind=EventKind.FOUND, about=About(7, "cat.db.u")),
        event(4, about=About(process_id="p-9")),
    )
    store.write(lambda db: [events.add(db, one) for one in kept])
    assert texts(store.read(lambda db: events.list_newest(db, wanted, None, 9))) == found
    assert sorted(texts(store.read(lambda db: events.list_stored_after(db, wanted, 0, 9)))) == sorted(found)
    assert store.read(lambda db: (events.count(db, wanted, 99), events.count(db, wanted, 1))) == (len(found), 1)


@pytest.mark.parametrize("wanted", [EventFilter(), *(wanted for wanted, _ in FILTERS)])
def test_no_list_of_events_is_sorted_or_read_whole(store: Store, wanted: EventFilter) -> None:
    """Each filter and the page's key go by an index, whose order is the list's."""
    where, values = events._where(wanted)
    plan = store.read(
        lambda db: db.select(
            f"EXPLAIN QUERY PLAN SELECT * FROM event WHERE {where} ORDER BY at_ms DESC, event_id DESC LIMIT 9", values
        )
    )
    steps = [row["detail"] for row in plan]
    if len(wanted.kinds) < 2:
        assert not [step for step in steps if "TEMP B-TREE" in step or step == "SCAN event"], steps


def test_the_table_that_had_a_name_last_is_found_by_its_end(store: Store) -> None:
    gone = [event(n, kind=EventKind.GONE, about=About(n, "cat.db.t")) for n in (1, 2)]
    store.write(lambda db: [events.add(db, one) for one in (*gone, event(3, about=About(9, "cat.db.t")))])
    ends = store.read(lambda db: [events.last_end(db, f"cat.db.{name}") for name in "tu"])
    assert [end and end.about.table_id for end in ends] == [2, None]


def test_old_events_go_in_chunks_the_oldest_first_and_beyond_their_number_the_first_ones_stored(store: Store) -> None:
    store.write(lambda db: [events.add(db, event(number)) for number in range(10)])
    removed = [store.write(lambda db: events.trim(db, minutes(7), 3)) for _ in range(4)]
    assert removed == [3, 3, 1, 0]
    assert texts(store.read(lambda db: events.list_newest(db, EventFilter(), None, 99))) == [
        "event 9",
        "event 8",
        "event 7",
    ]

    store.write(lambda db: [events.add(db, event(number)) for number in range(10)])
    old = NOW - timedelta(days=1)
    removed = [store.write(lambda db: events.trim(db, old, 3, most=5)) for _ in range(4)]
    assert removed == [3, 3, 2, 0]
    assert store.read(lambda db: events.count(db, EventFilter(), 99)) == 5


def test_the_number_of_an_event_is_never_given_again(path: Path) -> None:
    with Store.open(path) as store:
        store.write(lambda db: [events.add(db, event(number)) for number in range(3)])
        store.write(lambda db: events.trim(db, minutes(99), 99))
    with Store.open(path) as store:
        assert store.write(lambda db: events.add(db, event(5))) == 4
