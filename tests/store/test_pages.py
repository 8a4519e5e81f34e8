"""Pages of processes, the queue and lists, and series."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import pytest

from amoro_core.errors import InvalidArgument, ProcessNotFound
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.metrics import SYSTEM_STEPS, TABLE_STEPS, Point, Sample, Series, Step, TableFigures, fitting
from amoro_core.model.paging import Line, Page, Window, sealed
from amoro_core.model.processes import (
    CatalogConfig,
    OptimizerThread,
    ProcessStatus,
    ResourceGroup,
    TaskStatus,
    uuid7,
    uuid7_ms,
)
from amoro_core.model.tables import BlockedOperation, Blocker, OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.scheduling.policy import Accounts
from amoro_core.services.listings import Queue, QueueService
from amoro_core.store import actions, catalogs, groups, pending_deletions, processes, tables, tasks, time_series
from amoro_core.store.database import Connection, Store
from amoro_core.store.pending_deletions import Batch, BatchStatus
from tests.store.builders import NOW, minutes, optimizer, process, runtime, services, task

SEEDS = (1, 2, 3)
HOUR = timedelta(hours=1)


def seen(page: Callable[[Window], Page[str]], between: Callable[[], None], limit: int = 3) -> list[str]:
    """The items of every page, with a change before each page but the first."""
    found, after = list[str](), ""
    while True:
        got = page(Window(limit, after))
        assert len(got.items) <= limit
        found += got.items
        if not got.next:
            return found
        after = got.next
        between()


class Changing:
    """Names of items that come and go; those that were there all the time are in `staying`."""

    def __init__(self, seed: int, add: Callable[[str], object], remove: Callable[[str], object]) -> None:
        self._random = random.Random(seed)
        self._numbers = list(range(1000, 10_000))
        self._random.shuffle(self._numbers)
        self._add, self._remove = add, remove
        self._here: list[str] = []
        for _ in range(40):
            self._come()
        self.staying = set(self._here)

    def __call__(self) -> None:
        for _ in range(2):
            self._come()
            gone = self._here.pop(self._random.randrange(len(self._here)))
            self._remove(gone)
            self.staying.discard(gone)

    def _come(self) -> None:
        name = f"name-{self._numbers.pop()}"
        self._add(name)
        self._here.append(name)


def require_once(found: list[str], changing: Changing) -> None:
    assert len(found) == len(set(found)), "shown twice"
    assert changing.staying <= set(found), "not shown"
    assert found == sorted(found)
    assert len(changing.staying) > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_catalogs(store: Store, seed: int) -> None:
    foreign = [CatalogConfig(f"name-{number}", (), origin="pyiceberg") for number in (900, 4500, 9999)]
    service = services(store, catalogs=lambda: foreign).catalogs
    changing = Changing(
        seed,
        lambda name: store.write(lambda db: catalogs.add(db, CatalogConfig(name, ()))),
        lambda name: store.write(lambda db: catalogs.remove(db, name)),
    )
    before = service.page(Window(3)).total
    found = seen(lambda window: service.page(window).mapped(lambda one: one.name), changing)
    require_once(found, changing)
    assert {"name-4500", "name-900", "name-9999"} <= set(found)
    assert before == len(service.list_catalogs())


def test_a_catalog_that_was_added_hides_that_of_pyiceberg(store: Store) -> None:
    service = services(store, catalogs=lambda: [CatalogConfig("a", (), origin="pyiceberg")]).catalogs
    store.write(lambda db: catalogs.add(db, CatalogConfig("a", ())))
    page = service.page(Window(1))
    assert ([one.origin for one in page.items], page.total, page.next) == (["amoro"], 1, "")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("group", ["", "night"])
def test_pages_of_optimizers(store: Store, seed: int, group: str) -> None:
    for name in ("night", "day"):
        store.write(lambda db, name=name: groups.add(db, ResourceGroup(name)))
    service = services(store, lambda: NOW).optimizers

    def add(name: str) -> object:
        made = optimizer(name, token_hash=name, group="night")
        return store.write(lambda db: groups.add_optimizer(db, made))

    changing = Changing(seed, add, lambda name: store.write(lambda db: groups.remove_optimizer(db, name)))
    other = optimizer("name-5000x", token_hash="x", group="day")
    store.write(lambda db: groups.add_optimizer(db, other))
    found = seen(lambda window: service.page(group, window).mapped(lambda pair: pair[0].optimizer_id), changing)
    assert ("name-5000x" in found) == (group == "")
    require_once(found, changing)
    assert service.page(group, Window(1)).total == (41 if group == "" else 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_blockers(store: Store, seed: int) -> None:
    owners = [store.write(lambda db, name=name: tables.add(db, runtime(name))).table_id for name in ("t", "u")]
    clock = [NOW]
    service, turn = services(store, lambda: clock[0]).blockers, count()

    def add(name: str) -> object:
        owner = owners[next(turn) % 2]
        made = Blocker(name, owner, frozenset({BlockedOperation.OPTIMIZE}), NOW, NOW + HOUR, HOUR, "")
        return store.write(lambda db: actions.add_blocker(db, made))

    changing = Changing(seed, add, lambda name: store.write(lambda db: actions.remove_blocker(db, name)))

    def page(window: Window, table_id: int | None = None) -> Page[str]:
        return service.page(table_id, window).mapped(lambda one: one.blocker.blocker_id)

    assert len(seen(page, lambda: None)) == page(Window(1)).total == 40
    assert len(seen(lambda window: page(window, owners[0]), lambda: None)) == page(Window(1), owners[0]).total == 20
    require_once(seen(page, changing), changing)
    clock[0] = NOW + HOUR
    assert service.page(None, Window(3)) == Page((), 0), "expired ones are not shown"


def batch(db: Connection, process_id: str, table_id: int, names: list[str], kind: FileKind = FileKind.DATA) -> None:
    files = tuple(Condemned(name, kind, 1, None, "") for name in names)
    pending_deletions.add_many(db, [Batch(0, process_id, table_id, "uuid", kind, BatchStatus.WAITING, NOW, files)])


def test_pages_of_condemned_files_go_over_batches(store: Store) -> None:
    owner = store.write(lambda db: tables.add(db, runtime("t")))
    made = process(owner, "0199aaaa-0001-7000-8000-000000000001")
    store.write(lambda db: processes.add(db, made))
    service = services(store, lambda: NOW).trash
    names = [f"file-{number:02}" for number in range(10)]
    # Written in another order than they are due, and shown in that in which they were written.
    store.write(lambda db: batch(db, made.process_id, owner.table_id, names[:4]))
    store.write(lambda db: batch(db, made.process_id, owner.table_id, names[:3:-1], FileKind.MANIFEST))

    def page(window: Window) -> Page[str]:
        return service.show(made.process_id[:12], window)[1].mapped(lambda one: one[0].path)

    for limit in (1, 3, 4, 7, 10, 11):
        assert seen(page, lambda: None, limit) == names
    assert page(Window(3)).total == 10

    # What was restored between two pages is gone, what stays is shown once.
    first = page(Window(3))
    store.write(lambda db: pending_deletions.unmark_files(db, owner.table_id, ["file-01", "file-03", "file-05"]))
    assert seen(lambda window: page(Window(3, window.after or first.next)), lambda: None) == names[4:5] + names[6:]
    with pytest.raises(InvalidArgument, match="not a cursor"):
        page(Window(3, "nonsense"))
    with pytest.raises(InvalidArgument, match="other filters"):
        page(Window(3, sealed(("trash", None), (1, "x"))))


# Pages of processes go on after one that was removed meanwhile


def test_a_list_goes_on_after_a_process_whose_table_was_removed(store: Store) -> None:
    owners = [store.write(lambda db, number=number: tables.add(db, runtime(f"t{number}"))) for number in range(6)]
    ids = []
    for number, owner in enumerate(owners):
        created = NOW + timedelta(milliseconds=number // 2)  # two of each moment
        made = process(owner, uuid7(created), created_at=created)
        ids.append(store.write(lambda db, made=made: processes.add(db, made)).process_id)
    service = services(store).overview
    whole = [item.process.process_id for item in service.processes(Window(), {}).items]
    assert sorted(whole) == sorted(ids)
    first = service.processes(Window(3), {})
    gone = owners[ids.index(first.next)]
    store.write(lambda db: db.execute("DELETE FROM table_identifier WHERE table_id = :id", {"id": gone.table_id}))
    rest = service.processes(Window(3, first.next), {})
    assert [item.process.process_id for item in (*first.items, *rest.items)] == whole
    assert (rest.total, rest.next) == (5, "")


@pytest.mark.parametrize("unknown", ["01990000", "01990000-0000-4000-8000-000000000000", "ffffff"])
def test_what_names_no_process_and_tells_no_time_is_refused(store: Store, unknown: str) -> None:
    with pytest.raises(ProcessNotFound):
        services(store).overview.processes(Window(3, unknown), {})


def test_an_id_tells_when_it_was_made() -> None:
    assert uuid7_ms(uuid7(NOW)) == int(NOW.timestamp() * 1000)
    assert uuid7_ms(uuid7(NOW).upper()) is None
    assert uuid7_ms("01990000-0001") is None


# The first entries of the queue: of both lists or of one


class Site:
    """The queue of a store at a time that tests set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOW
        self.accounts: dict[str, Accounts] = {}
        self.service = QueueService(store, lambda: self.now, lambda: self.accounts)

    def pending(self, *names: str) -> list[TableRuntime]:
        """Tables that wait for a plan, each optimized a minute after the one before it."""
        waits = {"status": OptimizingStatus.PENDING, "pending_type": OptimizingType.MINOR}
        known = [runtime(name, last_optimized_at=minutes(number - 1000), **waits) for number, name in enumerate(names)]
        return self.store.write(lambda db: [tables.add(db, one) for one in known])

    def waiting(self, *names: str) -> None:
        """Processes with a task that waits, each created a minute after the one before it."""

        def add(db: Connection) -> None:
            for number, name in enumerate(names):
                on = tables.add(db, runtime(f"of_{name}"))
                made = process(on, name, created_at=minutes(number))
                processes.add(db, made)
                tasks.add_many(db, [(task(made), b"")])

        self.store.write(add)

    def ran(self, on: TableRuntime, since: datetime, until: datetime) -> None:
        """A task of the table that held a thread for that time."""

        def add(db: Connection) -> None:
            status = ProcessStatus.SUCCESS
            made = process(on, f"ran-{on.table_id}", status=status, created_at=since, finished_at=until)
            processes.add(db, made)
            times = {"scheduled_at": since, "acked_at": since, "finished_at": until}
            thread = OptimizerThread("optimizer-1", 0)
            done = task(made, status=TaskStatus.SUCCESS, attempt=1, ended_on=thread, **times)
            tasks.add_many(db, [(done, b"")])

        self.store.write(add)

    def page(self, limit: int, only: Line | None = None) -> Queue:
        return self.service.list_queue("", limit, only)


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)


def names(found: Queue) -> tuple[str, str]:
    """The tables and the processes of a page."""
    return (
        " ".join(one.table.identifier.name for one in found.pending),
        " ".join(one.process.process_id for one in found.waiting),
    )


def test_the_first_of_both_lists_or_of_one_are_shown_with_the_totals(site: Site) -> None:
    site.pending("a", "b", "c")
    site.waiting("p", "q", "r", "s", "t")
    both, pending, waiting = site.page(2), site.page(2, Line.PENDING), site.page(4, Line.WAITING)
    assert [names(one) for one in (both, pending, waiting)] == [("a b", "p q"), ("a b", ""), ("", "p q r s")]
    assert [(one.pending_total, one.waiting_total) for one in (both, pending, waiting)] == [(3, 5), (3, 0), (0, 5)]
    assert [place.place for place in waiting.waiting] == [1, 2, 3, 4]


def test_tables_are_ordered_by_what_they_used_within_the_last_hour(site: Site) -> None:
    """The last of three is behind for what it used within the hour, of which 14 minutes are left."""
    site.store.write(lambda db: groups.add_optimizer(db, optimizer()))
    known = site.pending("a", "b", "c")
    site.ran(known[0], minutes(-50), minutes(-46))
    site.ran(known[1], minutes(-20), minutes(-18))
    assert names(site.page(0))[0] == "c b a"
    site.now = minutes(20)
    assert names(site.page(0))[0] == "a c b"


def test_processes_are_ordered_by_the_accounts_of_their_group(site: Site) -> None:
    site.waiting(*"pqrst")
    known = {one.table.name.removeprefix("of_"): one.process.table_id for one in site.page(0).waiting}
    ahead = {known[name]: 100.0 * place for place, name in enumerate("tsrqp")}
    site.accounts["default"] = Accounts(NOW, ahead)
    assert names(site.page(3))[1] == "t s r"


def test_500_of_each_list_are_shown_unless_more_are_requested(site: Site) -> None:
    with pytest.raises(InvalidArgument, match="limit must be ≥ 0, got -1"):
        site.page(-1)
    site.pending(*(f"t{number:04}" for number in range(1100)))
    assert [len(one.pending) for one in (site.page(0), site.page(700), site.page(5000))] == [500, 700, 1000]


# Values over time: every step exact at any moment, gaps, and bounds


BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = BEGIN + timedelta(days=500)
MINUTE, TEN, TWO_HOURS = SYSTEM_STEPS


def read(store: Store, step: Step, name: str = "tables", label: str | None = None) -> list[Series]:
    return store.read(lambda db: time_series.list_series(db, [name], label, step, BEGIN - timedelta(days=9), END))


def expected(samples: list[tuple[datetime, int]], step: Step) -> tuple[Point, ...]:
    """The points of these samples, by a plain model."""
    parts: dict[int, list[int]] = defaultdict(list)
    for at, value in samples:
        parts[int(at.timestamp()) // step.seconds * step.seconds].append(value)
    return tuple(
        Point(datetime.fromtimestamp(at, UTC), len(values), sum(values), min(values), max(values))
        for at, values in sorted(parts.items())
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_step_is_exact_whatever_the_order_and_the_distance_of_samples(store: Store, seed: int) -> None:
    drawn = Random(seed)
    samples = [
        (
            BEGIN + timedelta(seconds=drawn.choice((drawn.randrange(600), drawn.randrange(100_000)))),
            drawn.randrange(-9, 99),
        )
        for _ in range(300)
    ]
    for at, value in samples:
        store.write(lambda db, at=at, value=value: time_series.add(db, [Sample("tables", value)], at))
    for step in SYSTEM_STEPS:
        assert read(store, step) == [Series("tables", "", expected(samples, step))]


def trimmed(store: Store, now: datetime, limit: int = 1000) -> list[int]:
    """How many rows each write has removed, until none is left."""
    removed = []
    for series_id in store.read(time_series.list_ids):
        while count := store.write(lambda db, one=series_id: time_series.trim(db, one, now, limit)):
            removed.append(count)
    return removed


def points(store: Store) -> dict[int, int]:
    rows = store.read(lambda db: db.select("SELECT step_s, count(*) AS points FROM series_point GROUP BY step_s"))
    return {row["step_s"]: row["points"] for row in rows}


def test_each_step_is_kept_for_its_time_and_not_a_moment_longer(store: Store) -> None:
    store.write(lambda db: time_series.add(db, [Sample("tables", 1)], BEGIN))
    for step in SYSTEM_STEPS:
        assert trimmed(store, BEGIN + step.keep) == []
        before = points(store)
        assert sum(trimmed(store, BEGIN + step.keep + timedelta(milliseconds=1))) == 1
        after = points(store)
        assert before.keys() - after.keys() == {step.seconds}
    assert store.read(time_series.list_ids) == []


def test_one_write_removes_no_more_rows_than_it_may(store: Store) -> None:
    for number in range(40):
        at = BEGIN + timedelta(minutes=number)
        store.write(lambda db, at=at: time_series.add(db, [Sample("tables", 1)], at))
    # 40 of a minute and 4 of ten minutes are old; that of two hours is not.
    removed = trimmed(store, BEGIN + timedelta(days=60), limit=16)
    assert (max(removed), sum(removed)) == (16, 44)
    assert points(store) == {TWO_HOURS.seconds: 1}


@pytest.mark.parametrize(
    ("age", "length", "step"),
    [
        (timedelta(hours=1), timedelta(hours=1), MINUTE),
        (timedelta(hours=25), timedelta(hours=25), MINUTE),
        (timedelta(hours=26), timedelta(hours=26), TEN),
        (timedelta(hours=49), timedelta(hours=1), TEN),
        (timedelta(days=10), timedelta(days=10), TEN),
        (timedelta(days=11), timedelta(days=11), TWO_HOURS),
        (timedelta(days=31), timedelta(hours=1), TWO_HOURS),
        (timedelta(days=999), timedelta(days=999), TWO_HOURS),
    ],
)
def test_the_finest_step_that_is_kept_and_not_too_long_fits(age: timedelta, length: timedelta, step: Step) -> None:
    assert fitting(SYSTEM_STEPS, NOW - age, NOW - age + length, NOW) is step


def test_a_tables_last_numbers_of_a_step_are_kept_and_old_ones_go(store: Store) -> None:
    table_id = store.write(lambda db: tables.add(db, runtime())).table_id
    hour, day = TABLE_STEPS

    def put(at: datetime, number: int) -> None:
        figures = TableFigures(number, 2, 3, 4, 5, 6)
        store.write(lambda db: time_series.add_figures(db, table_id, figures, at))

    def kept(step: Step) -> list[tuple[datetime, int]]:
        found = store.read(lambda db: time_series.list_figures(db, table_id, step, BEGIN - timedelta(days=9), END))
        return [(at, figures.health) for at, figures in found]

    put(BEGIN, 1)
    put(BEGIN + timedelta(minutes=59), 2)
    put(BEGIN + timedelta(minutes=60), 3)
    assert kept(hour) == [(BEGIN, 2), (BEGIN + timedelta(hours=1), 3)]
    assert kept(day) == [(BEGIN, 3)]
    put(BEGIN + timedelta(days=7), 4)
    assert [number for _, number in kept(hour)] == [2, 3, 4]
    put(BEGIN + timedelta(days=7, minutes=1), 5)
    assert [number for _, number in kept(hour)] == [3, 5]
    put(BEGIN + timedelta(days=91), 6)
    assert [number for _, number in kept(day)] == [5, 6]
    store.write(lambda db: tables.remove(db, table_id))
    assert kept(day) == []
