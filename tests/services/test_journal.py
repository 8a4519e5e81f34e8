"""What is written down as it happens: each attempt of a task, and events, in the write that they tell of."""

import re
from pathlib import Path

import pytest

from amoro_core.errors import InvalidArgument, ProcessNotFound, TableNotFound
from amoro_core.model.journal import AttemptOutcome, EventFilter, EventKind
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, parse_table
from amoro_core.services.journal import JournalService
from amoro_core.services.optimizing import Failure
from amoro_core.store import events, tasks
from amoro_core.store.database import Connection
from amoro_core.transactions import telling
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import START, World

CORE = Path(telling.__file__).parents[1]


@pytest.fixture
def planned(world: World) -> str:
    """A process with one task."""
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])
    return world.begin(OptimizingType.MINOR)


def outcomes(world: World, process: str, task: int = 0) -> list[tuple[int, int, AttemptOutcome]]:
    _, page = JournalService(world.store).attempts(process, Window(100), task)
    return [(one.attempt.task_id.number, one.attempt.number, one.outcome) for one in page.items]


def told(world: World, *kinds: EventKind) -> list[tuple[str, str]]:
    """Kind and text of the events that are kept, in the order of storing."""
    found = world.store.read(lambda db: events.list_stored_after(db, EventFilter(kinds), 0, 1000))
    return [(one.kind.value, one.text) for one in found]


def test_each_attempt_of_a_task_is_kept_and_the_one_that_runs_is_listed(world: World, planned: str) -> None:
    optimizer = world.optimizer()
    assert outcomes(world, planned) == []
    world.run_one(optimizer, Failure("AMORO-1", "no disk"))
    (handed,) = world.poll(optimizer)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.FAILED), (1, 2, AttemptOutcome.RUNNING)]
    world.later(60)
    world.optimizing.dismiss(optimizer, "silent", lost=True)
    world.optimizers.forget(optimizer)
    other = world.optimizer()
    world.run_one(other)
    assert outcomes(world, planned) == [
        (1, 1, AttemptOutcome.FAILED),
        (1, 2, AttemptOutcome.LOST),
        (1, 3, AttemptOutcome.SUCCESS),
    ]
    _, page = JournalService(world.store).attempts(planned, Window(100))
    lost = page.items[1]
    assert (lost.thread.optimizer_id, lost.scheduled_at, lost.acked_at) == (optimizer, START, None)
    assert (lost.finished_at, lost.failure, lost.input_rows) == (world.now, "silent", 3)
    assert handed.attempt == lost.attempt


def test_attempts_of_a_process_that_is_cancelled_end_with_it(world: World, planned: str) -> None:
    world.poll(world.optimizer())
    world.optimizing.cancel(planned, "changed my mind")
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.CANCELED)]


def test_an_attempt_that_goes_to_another_registration_stays_one(world: World, planned: str) -> None:
    before = world.optimizer()
    (handed,) = world.poll(before)
    world.optimizing.ack(before, [handed.attempt])
    after = world.optimizer(previous_id=before, running=[handed.attempt])
    assert world.complete(after, handed.attempt, world.execute(handed))
    _, page = JournalService(world.store).attempts(planned, Window(100))
    assert [(one.attempt.number, one.outcome, one.thread.optimizer_id) for one in page.items] == [
        (1, AttemptOutcome.SUCCESS, after)
    ]


def test_a_write_that_is_taken_back_tells_nothing(world: World, planned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = world.optimizer()
    (handed,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [handed.attempt])
    before = told(world)

    def fails(db: Connection, *more: object) -> None:
        raise RuntimeError("the disk is gone")

    made = world.execute(handed)
    with monkeypatch.context() as patched:
        patched.setattr(tasks, "save_outputs", fails)
        with pytest.raises(RuntimeError):
            world.complete(optimizer, handed.attempt, made)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.RUNNING)]
    assert told(world) == before
    assert world.complete(optimizer, handed.attempt, made)
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.SUCCESS)]


def test_after_a_restart_an_attempt_that_runs_runs_on(world: World, planned: str) -> None:
    world.poll(world.optimizer())
    world.restart()
    assert outcomes(world, planned) == [(1, 1, AttemptOutcome.RUNNING)]


def test_the_life_of_a_process_is_told_in_order(world: World, planned: str) -> None:
    optimizer = world.optimizer()
    world.run_one(optimizer, Failure("AMORO-1", "password=hunter2 is wrong"))
    world.run_all(planned, optimizer)
    assert world.committing.commit(planned) is ProcessStatus.SUCCESS
    snapshot = world.table_head()
    lately = [one for one in told(world) if one[0] != EventKind.LEADER_CHANGED]
    assert lately == [
        ("found", "cat.db.t was found"),
        ("planned", lately[1][1]),
        ("joined", f"optimizer {optimizer} joined group default with 2 threads"),
        ("failed", "attempt 1 of task 1 failed: [AMORO-1] password=*** is wrong"),
        ("committed", f"minor committed snapshot {snapshot}: 3 data files became 1, 3 rows"),
    ]
    assert lately[1][1].startswith("minor planned: ")
    page = JournalService(world.store).events(EventFilter(process_id=planned[:8]), None, Window(10)).page
    assert [one.kind for one in page.items] == [EventKind.COMMITTED, EventKind.FAILED, EventKind.PLANNED]
    assert {(one.about.table, one.about.process_id) for one in page.items} == {("cat.db.t", planned)}


def test_optimizers_that_are_lost_or_leave_are_told(world: World) -> None:
    for lost in (True, False):
        world.optimizing.dismiss(world.optimizer(), "it is over", lost=lost)
    world.optimizing.dismiss("nobody", "it is over", lost=True)
    words = [(kind, text.split(" ", 2)[2]) for kind, text in told(world, EventKind.LOST, EventKind.LEFT)]
    assert words == [("lost", "was lost: it is over"), ("left", "left: it is over")]


def test_what_becomes_of_a_table_is_told_even_when_it_is_gone(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    world.discovery.explore("cat")
    name = parse_table("cat.db.t")
    world.tables.set_enabled(name, True)
    world.tables.set_enabled(name, False)
    world.catalog.drop_table("db.t")
    world.discovery.explore("cat")
    service = JournalService(world.store)
    page = service.events(EventFilter(), name, Window(10)).page
    assert [one.kind for one in page.items] == [
        EventKind.GONE,
        EventKind.DISABLED,
        EventKind.ENABLED,
        EventKind.FOUND,
    ]
    with pytest.raises(TableNotFound, match=r"cat\.db\.u is not known"):
        service.events(EventFilter(), parse_table("cat.db.u"), Window(10))


def test_every_start_of_a_coordinator_is_told(world: World) -> None:
    world.restart()
    world.restart()
    epochs = [text for _, text in told(world, EventKind.LEADER_CHANGED)]
    assert epochs == ["a coordinator began, epoch 2", "a coordinator began, epoch 3"]


def test_events_are_read_in_pages_and_followed_from_the_last_one(world: World, planned: str) -> None:
    service = JournalService(world.store)
    first = service.events(EventFilter(), None, Window(1))
    assert (first.page.total, first.total_is_exact, first.last_id) == (2, True, 2)
    second = service.events(EventFilter(), None, Window(1, first.page.next))
    kinds = [first.page.items[0].kind, second.page.items[0].kind]
    assert kinds == [EventKind.PLANNED, EventKind.FOUND]
    assert second.page.next == ""
    optimizer = world.optimizer()
    after = service.events_after(first.last_id, EventFilter(), None, 10)
    assert [one.about.optimizer_id for one in after.page.items] == [optimizer]


@pytest.mark.parametrize("after", ["x", "1", "1-", "-1", "1-2-3", "1-x", "9" * 14 + "-1"])
def test_a_place_that_no_list_has_is_refused(world: World, planned: str, after: str) -> None:
    service = JournalService(world.store)
    with pytest.raises(InvalidArgument):
        service.attempts(planned, Window(5, after))
    with pytest.raises(InvalidArgument):
        service.events(EventFilter(), None, Window(5, after))


def test_attempts_of_nothing_are_refused_by_name(world: World) -> None:
    with pytest.raises(ProcessNotFound):
        JournalService(world.store).attempts("01997a4c", Window(5))


SAVES = re.compile(r"\b(tasks\.save\(|processes\.add\(|tables\.add\()")


def test_nobody_stores_a_change_of_a_task_past_what_is_told_of_it() -> None:
    """A change that is stored elsewhere would leave out its attempt or its event."""
    found = {
        str(path.relative_to(CORE))
        for path in CORE.rglob("*.py")
        if path.parent.name in ("services", "transactions", "actions", "admin", "loops")
        and SAVES.search(path.read_text())
    }
    assert found == {"transactions/telling.py", "transactions/listing.py"}
