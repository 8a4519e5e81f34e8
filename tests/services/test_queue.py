"""What waits for a plan or for threads, in order, and figures that are counted once a second."""

from dataclasses import replace
from datetime import datetime, timedelta

from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.paging import Window
from amoro_core.model.processes import ResourceGroup
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.scheduling.policy import POLICIES, PendingTable
from amoro_core.services.groups import GroupChange
from amoro_core.services.queue import QueueService
from amoro_core.store import processes, tables
from amoro_core.store.connection import Connection
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

ENABLED = {"self-optimizing.enabled": "true"}


def pending(world: World, name: str, **properties: str) -> int:
    """A table that waits for a plan."""
    table = writer.make_table(world.catalog, f"db.{name}", SCHEMA, properties={**ENABLED, **properties})
    for number in range(12):
        writer.append(table, [row(number)])
    runtime = world.tables.refresh(world.table(f"cat.db.{name}").table_id)
    assert runtime is not None
    assert runtime.status is OptimizingStatus.PENDING
    return runtime.table_id


def optimized(world: World, table_id: int, at: datetime) -> None:
    world.store.write(lambda db: tables.save(db, replace(tables.get(db, table_id), last_optimized_at=at)))


def shown(world: World, group: str = "") -> list[tuple[str, int, str, str]]:
    found = world.queue.list_queue(group)
    return [(one.table.identifier.name, one.place, one.policy, one.held_back) for one in found.pending]


def test_pending_tables_stand_in_the_order_in_which_they_are_planned(world: World) -> None:
    world.groups.create(ResourceGroup("nightly", "balanced"))
    for name, hours in (("a", 3), ("b", 1), ("c", 2)):
        optimized(
            world, pending(world, name, **{"self-optimizing.group": "nightly"}), world.now - timedelta(hours=hours)
        )
    pending(world, "d")
    assert shown(world) == [
        ("d", 1, "quota", ""),
        ("a", 1, "balanced", ""),
        ("c", 2, "balanced", ""),
        ("b", 3, "balanced", ""),
    ]
    turns = world.groups.in_turn([one for one in world.tables.list_pending() if one.group == "nightly"])
    assert [one.identifier.name for one in turns] == ["a", "c", "b"]
    first = world.queue.list_queue("nightly").pending[0]
    assert (first.key, first.occupation, first.table.type) == (
        (world.now - timedelta(hours=3), 0.0),
        0.0,
        OptimizingType.MINOR,
    )
    few = world.queue.list_queue("nightly", Window(2))
    assert (len(few.pending), few.pending_total) == (2, 3)
    few = world.queue.list_queue(window=Window(2))
    assert [(one.table.identifier.name, one.place) for one in few.pending] == [("d", 1), ("a", 1)]
    assert few.pending_total == 4
    world.tables.set_enabled(world.table("cat.db.a").identifier, False)
    assert [name for name, *_ in shown(world)] == ["d", "c", "b"]


def test_a_blocked_table_keeps_its_place_and_says_so(world: World) -> None:
    table_id = pending(world, "a")
    world.blockers.block(table_id, frozenset({BlockedOperation.OPTIMIZE}), timedelta(seconds=30), "month-end")
    assert shown(world) == [("a", 1, "quota", "blocked")]
    world.later(60)
    assert shown(world) == [("a", 1, "quota", "")]


def test_a_policy_that_fails_or_is_gone_gives_way_to_the_default_as_in_planning(world: World) -> None:
    def broken(table: PendingTable, now: datetime) -> int:
        raise RuntimeError("no luck")

    pending(world, "a")
    world.groups.update("default", GroupChange("balanced"))
    for policies in ({**POLICIES, "balanced": broken}, {"quota": POLICIES["quota"]}):
        world.queue = QueueService(world.store, lambda: world.now, dict, policies)
        assert shown(world) == [("a", 1, "quota", "")]


def test_processes_that_wait_for_threads_stand_by_the_standing_of_their_tables(world: World) -> None:
    optimizer = world.optimizer(threads=4)
    pending(world, "a")
    pending(world, "b")
    first = world.begin(OptimizingType.MINOR, "cat.db.a")
    world.later(1)
    second = world.begin(OptimizingType.MINOR, "cat.db.b")
    waiting = world.queue.list_queue().waiting
    assert [(one.table.name, one.place, one.process.tasks) for one in waiting] == [("a", 1, 1), ("b", 2, 1)]
    assert {one.process.process_id for one in waiting} == {first, second}
    assert {(one.use.limit, one.use.share, one.use.ahead_s, one.use.running) for one in waiting} == {(2, 0.5, 0.0, 0)}
    few = world.queue.list_queue(window=Window(1))
    assert ([one.table.name for one in few.waiting], few.waiting_total) == (["a"], 2)
    (handed,) = world.poll(optimizer)
    left = world.queue.list_queue()
    assert ([one.table.name for one in left.waiting], left.waiting_total) == (["b"], 1)
    world.optimizing.ack(optimizer, [handed.attempt])
    assert world.queue.list_queue("other").waiting == ()


def test_figures_count_everything_once_a_second(world: World) -> None:
    world.queue = QueueService(world.store, lambda: world.now, dict, monotonic=lambda: world.now.timestamp())
    optimizer = world.optimizer(threads=4)
    pending(world, "a")
    since = world.now
    pending(world, "b")
    figures, counted_at = world.queue.figures()
    assert counted_at == world.now
    assert (figures.statuses, figures.oldest_pending, figures.enabled_tables) == ({("pending", ""): 2}, since, 2)
    assert (figures.optimizers, figures.threads, figures.waiting_tasks, figures.running_tasks) == (1, 4, 0, 0)
    process_id = world.begin(OptimizingType.MINOR, "cat.db.a")
    assert world.queue.figures() == (figures, counted_at)
    world.later(1)
    figures, counted_at = world.queue.figures()
    assert counted_at == world.now
    assert (figures.processes, figures.waiting_tasks, figures.running_tasks) == ({"running": 1}, 1, 0)
    (handed,) = world.poll(optimizer)
    world.optimizing.ack(optimizer, [handed.attempt])
    world.later(1)
    figures = world.queue.figures()[0]
    assert (figures.waiting_tasks, figures.running_tasks) == (0, 1)
    world.complete(optimizer, handed.attempt, world.execute(handed))
    world.committing.commit(process_id)
    receipt = world.store.read(lambda db: processes.get(db, process_id)).receipt
    assert receipt is not None
    world.later(1)
    figures = world.queue.figures()[0]
    assert (figures.ended, figures.rewritten_bytes, figures.removed_files) == ({"success": 1}, receipt.bytes_before, 11)
    world.later(24 * 3600 + 1)
    assert world.queue.figures()[0].ended == {}


def test_refused_tables_are_counted_by_their_word(world: World) -> None:
    for name, word in (("a", "format"), ("b", "format"), ("c", "encryption")):
        table_id = pending(world, name)

        def refuse(db: Connection, table_id: int = table_id, word: str = word) -> None:
            known = tables.get(db, table_id)
            tables.save(db, replace(known, status=OptimizingStatus.REFUSED, refusal=word, pending_type=None))

        world.store.write(refuse)
    assert world.queue.figures()[0].statuses == {("refused", "format"): 2, ("refused", "encryption"): 1}
