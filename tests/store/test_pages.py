"""Lists by pages while their items come and go: what stays is shown once, and only once."""

import random
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pytest

from amoro_core.errors import InvalidArgument
from amoro_core.model.blockers import BlockedOperation, Blocker
from amoro_core.model.cursors import sealed
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.paging import Page, Window
from amoro_core.model.processes import CatalogConfig, ResourceGroup
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.trash import TrashService
from amoro_core.store import blockers, catalogs, condemned, groups, optimizers, processes, tables
from amoro_core.store.condemned import Batch, BatchStatus
from amoro_core.store.database import Connection, Store
from tests.store.builders import NOW, optimizer, process, runtime

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
    service = CatalogService(store, None, lambda: foreign, dict)  # type: ignore[arg-type]
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
    service = CatalogService(store, None, lambda: [CatalogConfig("a", (), origin="pyiceberg")], dict)  # type: ignore[arg-type]
    store.write(lambda db: catalogs.add(db, CatalogConfig("a", ())))
    page = service.page(Window(1))
    assert ([one.origin for one in page.items], page.total, page.next) == (["amoro"], 1, "")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("group", ["", "night"])
def test_pages_of_optimizers(store: Store, seed: int, group: str) -> None:
    for name in ("night", "day"):
        store.write(lambda db, name=name: groups.add(db, ResourceGroup(name)))
    service = OptimizerService(store, lambda: NOW, lambda: 0.0, lambda *_: [], HOUR)

    def add(name: str) -> object:
        made = optimizer(name, token_hash=name, group="night")
        return store.write(lambda db: optimizers.add(db, made))

    changing = Changing(seed, add, lambda name: store.write(lambda db: optimizers.remove(db, name)))
    other = optimizer("name-5000x", token_hash="x", group="day")
    store.write(lambda db: optimizers.add(db, other))
    found = seen(lambda window: service.page(group, window).mapped(lambda pair: pair[0].optimizer_id), changing)
    assert ("name-5000x" in found) == (group == "")
    require_once(found, changing)
    assert service.page(group, Window(1)).total == (41 if group == "" else 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_blockers(store: Store, seed: int) -> None:
    owners = [store.write(lambda db, name=name: tables.add(db, runtime(name))).table_id for name in ("t", "u")]
    clock = [NOW]
    service, turn = BlockerService(store, lambda: clock[0], HOUR), count()

    def add(name: str) -> object:
        owner = owners[next(turn) % 2]
        made = Blocker(name, owner, frozenset({BlockedOperation.OPTIMIZE}), NOW, NOW + HOUR, HOUR, "")
        return store.write(lambda db: blockers.add(db, made))

    changing = Changing(seed, add, lambda name: store.write(lambda db: blockers.remove(db, name)))

    def page(window: Window, table_id: int | None = None) -> Page[str]:
        return service.page(table_id, window).mapped(lambda one: one.blocker.blocker_id)

    assert len(seen(page, lambda: None)) == page(Window(1)).total == 40
    assert len(seen(lambda window: page(window, owners[0]), lambda: None)) == page(Window(1), owners[0]).total == 20
    require_once(seen(page, changing), changing)
    clock[0] = NOW + HOUR
    assert service.page(None, Window(3)) == Page((), 0), "expired ones are not shown"


def batch(db: Connection, process_id: str, table_id: int, names: list[str], kind: FileKind = FileKind.DATA) -> None:
    files = tuple(Condemned(name, kind, 1, None, "") for name in names)
    condemned.add_many(db, [Batch(0, process_id, table_id, "uuid", kind, BatchStatus.WAITING, NOW, files)])


def test_pages_of_condemned_files_go_over_batches(store: Store) -> None:
    owner = store.write(lambda db: tables.add(db, runtime("t")))
    made = process(owner, "0199aaaa-0001-7000-8000-000000000001")
    store.write(lambda db: processes.add(db, made))
    service = TrashService(store, None, lambda: NOW)  # type: ignore[arg-type]
    names = [f"file-{number:02}" for number in range(10)]
    # Written in another order than they are due, and shown in that in which they were written.
    store.write(lambda db: batch(db, made.process_id, owner.table_id, names[:4]))
    store.write(lambda db: batch(db, made.process_id, owner.table_id, names[:3:-1], FileKind.MANIFEST))

    def page(window: Window) -> Page[str]:
        return service.show(made.process_id[:12], window).files.mapped(lambda one: one[0].path)

    for limit in (1, 3, 4, 7, 10, 11):
        assert seen(page, lambda: None, limit) == names
    assert page(Window(3)).total == 10

    # What was restored between two pages is gone, what stays is shown once.
    first = page(Window(3))
    store.write(lambda db: condemned.spare(db, owner.table_id, ["file-01", "file-03", "file-05"]))
    assert seen(lambda window: page(Window(3, window.after or first.next)), lambda: None) == names[4:5] + names[6:]
    with pytest.raises(InvalidArgument, match="no cursor"):
        page(Window(3, "nonsense"))
    with pytest.raises(InvalidArgument, match="other filters"):
        page(Window(3, sealed(("trash", None), (1, "x"))))
