"""Pages of what waits: of both lists at once or of one, in an order that may move between them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.cursors import sealed
from amoro_core.model.lines import Line
from amoro_core.model.paging import Window
from amoro_core.model.processes import OptimizerThread, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.scheduling.shares import Accounts
from amoro_core.services.queue import Queue, QueueService
from amoro_core.store import optimizers, processes, tables, tasks
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from tests.store import builders
from tests.store.builders import NOW, minutes


class Site:
    """The queue of a store at a time that tests set."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = NOW
        self.accounts: dict[str, Accounts] = {}
        self.service = QueueService(store, lambda: self.now, lambda: self.accounts)

    def pending(self, *names: str, **fields: object) -> list[TableRuntime]:
        """Tables that wait for a plan, each optimized a minute after the one before it."""

        def add(db: Connection) -> list[TableRuntime]:
            known = [
                builders.runtime(
                    name,
                    status=OptimizingStatus.PENDING,
                    pending_type=OptimizingType.MINOR,
                    last_optimized_at=minutes(number - 1000),
                    **fields,
                )
                for number, name in enumerate(names)
            ]
            return [tables.add(db, one) for one in known]

        return self.store.write(add)

    def waiting(self, *names: str) -> None:
        """Processes with a task that waits, each created a minute after the one before it."""

        def add(db: Connection) -> None:
            for number, name in enumerate(names):
                on = tables.add(db, builders.runtime(f"of_{name}"))
                made = builders.process(on, name, created_at=minutes(number))
                processes.add(db, made)
                tasks.add_many(db, [(builders.task(made), b"")])

        self.store.write(add)

    def ran(self, on: TableRuntime, since: datetime, until: datetime) -> None:
        """A task of the table that held a thread for that time."""

        def add(db: Connection) -> None:
            status = ProcessStatus.SUCCESS
            made = builders.process(on, f"ran-{on.table_id}", status=status, created_at=since, finished_at=until)
            processes.add(db, made)
            times = {"scheduled_at": since, "acked_at": since, "finished_at": until}
            thread = OptimizerThread("optimizer-1", 0)
            done = builders.task(made, status=TaskStatus.SUCCESS, attempt=1, ended_on=thread, **times)
            tasks.add_many(db, [(done, b"")])

        self.store.write(add)

    def change(self, table: TableRuntime, **fields: object) -> None:
        self.store.write(lambda db: tables.save(db, replace(tables.get(db, table.table_id), **fields)))

    def page(self, limit: int, after: str = "", only: Line | None = None, group: str = "") -> Queue:
        return self.service.list_queue(group, Window(limit, after), only)

    def pages(self, limit: int, only: Line | None = None, group: str = "") -> Iterator[Queue]:
        found = self.page(limit, "", only, group)
        yield found
        while found.next:
            found = self.page(limit, found.next, only, group)
            yield found


@pytest.fixture
def site(store: Store) -> Site:
    return Site(store)


def names(found: Queue) -> tuple[str, str]:
    """The tables and the processes of a page."""
    return (
        " ".join(one.table.identifier.name for one in found.pending),
        " ".join(one.process.process_id for one in found.waiting),
    )


def test_both_lists_are_read_page_by_page_until_the_longer_one_ends(site: Site) -> None:
    site.pending("a", "b", "c")
    site.waiting("p", "q", "r", "s", "t")
    found = list(site.pages(2))
    assert [names(one) for one in found] == [("a b", "p q"), ("c", "r s"), ("", "t")]
    assert {(one.pending_total, one.waiting_total, one.order_changed) for one in found} == {(3, 5, False)}
    assert [place.place for one in found for place in one.waiting] == [1, 2, 3, 4, 5]
    site.pending("d")
    assert names(site.page(2, found[1].next)) == ("", "t")


def test_one_of_the_two_lists_is_read_alone(site: Site) -> None:
    site.pending("a", "b", "c")
    site.waiting("p", "q", "r")
    found = list(site.pages(2, Line.PENDING))
    assert [names(one) for one in found] == [("a b", ""), ("c", "")]
    assert {(one.pending_total, one.waiting_total) for one in found} == {(3, 0)}
    found = list(site.pages(2, Line.WAITING))
    assert [names(one) for one in found] == [("", "p q"), ("", "r")]
    assert {(one.pending_total, one.waiting_total) for one in found} == {(0, 3)}


def test_pages_go_on_from_group_to_group(site: Site) -> None:
    site.pending("d", "e")
    site.pending("a", "b", "c", group="before")
    found = list(site.pages(2))
    assert [[(one.table.group, one.place) for one in each.pending] for each in found] == [
        [("before", 1), ("before", 2)],
        [("before", 3), ("default", 1)],
        [("default", 2)],
    ]
    assert [names(one)[0] for one in site.pages(2, group="before")] == ["a b", "c"]


def busy(site: Site) -> None:
    """Three tables of which the last is behind for what it used within the hour, of which 14 minutes are left."""
    site.store.write(lambda db: optimizers.add(db, builders.optimizer()))
    known = site.pending("a", "b", "c")
    site.ran(known[0], minutes(-50), minutes(-46))
    site.ran(known[1], minutes(-20), minutes(-18))


def ordered(site: Site) -> Sequence[str]:
    return names(site.page(0))[0].split()


def test_time_alone_moves_no_table_to_another_page(site: Site) -> None:
    busy(site)
    assert ordered(site) == ["c", "b", "a"]
    first = site.page(2)
    site.now = minutes(20)
    assert ordered(site) == ["a", "c", "b"]
    second = site.page(2, first.next)
    assert (names(second), second.order_changed) == (("a", ""), False)
    assert round(second.pending[0].occupation, 6) == round(4 / 60 / 2, 6)


def test_an_old_cursor_orders_for_an_hour_ago(site: Site) -> None:
    busy(site)
    first = site.page(1)
    site.now = minutes(110)
    second = site.page(2, first.next)
    assert (names(first)[0], names(second)[0], second.order_changed) == ("c", "a b", True)
    assert [one.occupation for one in second.pending] == [0, 0]
    for at in (-(10**30), 10**30):
        forged = sealed(("queue", "", ""), (at, "", 0, "", "", "", -1, "", ""))
        assert names(site.page(1, forged)) == ("a", "")


def test_tables_that_are_planned_come_or_move_are_told_and_hide_no_other(site: Site) -> None:
    known = dict(zip("abcdefgh", site.pending(*"abcdefgh"), strict=True))
    after = site.page(4).next
    site.change(known["a"], status=OptimizingStatus.PLANNING, pending_type=None)
    found = site.page(4, after)
    assert (names(found)[0], found.order_changed, found.pending_total) == ("e f g h", True, 7)
    site.change(known["d"], last_optimized_at=minutes(0))
    assert names(site.page(4, after))[0] == "e f g h"
    site.pending("new")
    assert names(site.page(4, after))[0] == "e f g h"


def test_processes_keep_to_their_page_when_all_accounts_shift(site: Site) -> None:
    site.waiting(*"pqrst")
    known = {one.table.name.removeprefix("of_"): one.process.table_id for one in site.page(0).waiting}
    ahead = {known[name]: 100.0 * place for place, name in enumerate("tsrqp")}
    site.accounts["default"] = Accounts(NOW, ahead)
    first = site.page(3)
    assert names(first)[1] == "t s r"
    site.accounts["default"] = Accounts(NOW, {table: max(0.0, seconds - 250) for table, seconds in ahead.items()})
    second = site.page(3, first.next)
    assert names(second)[1] == "q p"


def test_a_cursor_of_another_group_or_list_is_refused(site: Site) -> None:
    site.pending("a", "b", "c")
    cursor = site.page(1).next
    others: list[Callable[[], Queue]] = [
        lambda: site.page(1, cursor, group="default"),
        lambda: site.page(1, cursor, Line.PENDING),
    ]
    for other in others:
        with pytest.raises(InvalidArgument, match="other filters or another order"):
            other()
    for broken in ("x", cursor[:-3], "é"):
        with pytest.raises(InvalidArgument, match="is no cursor"):
            site.page(1, broken)
    with pytest.raises(InvalidArgument, match="-1 is no limit"):
        site.page(-1)


def test_a_page_has_500_of_each_list_unless_more_are_asked_for(site: Site) -> None:
    site.pending(*(f"t{number:04}" for number in range(1100)))
    assert [len(one.pending) for one in (site.page(0), site.page(700), site.page(5000))] == [500, 700, 1000]
