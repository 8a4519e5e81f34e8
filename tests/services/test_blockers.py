"""Blockers: what they keep off a table, how long, and that they and processes exclude each other."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from amoro_core.errors import BlockerNotFound, InvalidArgument, TableBlocked, TableBusy
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.services.blockers import HeldBlocker
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.rigs import reaching
from tests.services.world import START, World

OPTIMIZE, BATCH_WRITE = BlockedOperation.OPTIMIZE, BlockedOperation.BATCH_WRITE
MINUTE, MS = timedelta(minutes=1), timedelta(milliseconds=1)


@pytest.fixture(autouse=True)
def small_files(world: World) -> None:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(3):
        writer.append(table, [row(number)])


def block(world: World, *operations: BlockedOperation, **more: object) -> HeldBlocker:
    table_id = world.table().table_id
    return world.blockers.block(table_id, frozenset(operations or (OPTIMIZE,)), **more)


def test_a_blocked_table_is_not_planned_and_says_by_whom_and_until_when(world: World) -> None:
    held = block(world, reason="nightly overwrite").blocker
    assert (held.created_at, held.expires_at, held.held_for) == (START, START + MINUTE, MINUTE)
    with pytest.raises(TableBlocked) as blocked:
        world.begin(OptimizingType.MINOR)
    assert blocked.value.message == (
        f"cat.db.t is blocked for optimize until 2026-03-01 12:01:00 UTC by {held.blocker_id} (nightly overwrite)"
    )
    assert (blocked.value.exit_status, world.table().status) == (5, OptimizingStatus.IDLE)
    assert world.blockers.blocked_from(OPTIMIZE) == {world.table().table_id}


def test_a_blocker_holds_until_it_expires_and_not_a_tick_longer(world: World) -> None:
    block(world)
    world.now = START + MINUTE - MS
    with pytest.raises(TableBlocked):
        world.begin(OptimizingType.MINOR)
    world.now = START + MINUTE
    assert world.blockers.list_active() == []
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
    assert world.blockers.trim() == 1


def test_renewing_holds_from_now_on_and_what_expired_cannot_be_renewed(world: World) -> None:
    held = block(world, held_for=2 * MINUTE).blocker
    world.now = START + 2 * MINUTE - MS
    renewed = world.blockers.renew(held.blocker_id[:30]).blocker
    assert renewed.expires_at == world.now + 2 * MINUTE
    assert world.blockers.renew(held.blocker_id, MINUTE).blocker.expires_at == world.now + MINUTE
    world.later(60)
    for change in (world.blockers.renew, world.blockers.release):
        with pytest.raises(BlockerNotFound, match="was released or has expired"):
            change(held.blocker_id)


def test_releasing_lets_the_table_go(world: World) -> None:
    held = block(world)
    assert world.blockers.release(held.blocker.blocker_id) == held
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS


@pytest.mark.parametrize("operations", [(OPTIMIZE,), (BATCH_WRITE,), (OPTIMIZE, BATCH_WRITE)])
def test_two_blockers_never_hold_the_same_work(world: World, operations: tuple[BlockedOperation, ...]) -> None:
    block(world, *operations)
    for other in (OPTIMIZE, BATCH_WRITE):
        if other in operations:
            with pytest.raises(TableBlocked):
                block(world, other)
        else:
            assert block(world, other).blocker.operations == {other}


def test_a_blocker_of_batch_writes_alone_does_not_keep_us_off(world: World) -> None:
    block(world, BATCH_WRITE)
    assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS


def test_no_blocker_against_optimizing_is_taken_while_a_process_is_active(world: World) -> None:
    process = world.begin(OptimizingType.MINOR)
    with pytest.raises(TableBusy, match=f"process {process} \\(minor, running\\) is active on cat.db.t"):
        block(world)
    assert block(world, BATCH_WRITE).blocker.operations == {BATCH_WRITE}
    world.run_all(process)
    with pytest.raises(TableBusy, match="committing"):
        block(world)
    assert world.committing.commit(process) is ProcessStatus.SUCCESS
    block(world)


def test_no_blocker_is_taken_while_a_plan_is_made(world: World) -> None:
    seen: list[object] = []

    def meanwhile(name: str) -> None:
        if name == "plan.before_store":
            with pytest.raises(TableBusy, match=r"cat\.db\.t is planning"):
                block(world)
            seen.append(name)

    with reaching(meanwhile):
        world.begin(OptimizingType.MINOR)
    assert seen == ["plan.before_store"]


def test_of_a_blocker_and_a_process_that_race_exactly_one_wins(world: World) -> None:
    table_id = world.table().table_id
    outcomes: list[tuple[bool, bool]] = []
    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            start = Barrier(2)

            def plan(start: Barrier = start) -> str | None:
                start.wait()
                try:
                    return world.planning.begin(table_id, trigger="request", requested=OptimizingType.MINOR).process_id
                except TableBlocked:
                    return None

            def take(start: Barrier = start) -> HeldBlocker | None:
                start.wait()
                try:
                    return block(world)
                except TableBusy:
                    return None

            planned, taken = pool.submit(plan), pool.submit(take)
            process, held = planned.result(), taken.result()
            outcomes.append((process is not None, held is not None))
            if process is not None:
                world.optimizing.cancel(process, "again")
            if held is not None:
                world.blockers.release(held.blocker.blocker_id)
    assert set(outcomes) <= {(True, False), (False, True)}


@pytest.mark.parametrize("held_for", [timedelta(0), -MINUTE, timedelta(days=1) + MS])
def test_nobody_holds_a_table_for_no_time_or_for_ever(world: World, held_for: timedelta) -> None:
    with pytest.raises(InvalidArgument):
        world.blockers.renew(block(world).blocker.blocker_id, held_for)
    if held_for:
        with pytest.raises(InvalidArgument):
            block(world, BATCH_WRITE, held_for=held_for)


def test_a_blocker_of_nothing_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="a blocker needs at least one operation"):
        world.blockers.block(world.table().table_id, frozenset())


def test_blockers_survive_a_restart_and_go_with_their_table(world: World) -> None:
    held = block(world)
    world.restart()
    assert world.blockers.list_active() == [held]
    world.catalog.drop_table("db.t")
    world.discovery.explore("cat")
    assert world.blockers.list_active() == []


def test_a_prefix_that_is_too_short_or_names_two_is_refused(world: World) -> None:
    first, second = block(world).blocker.blocker_id, block(world, BATCH_WRITE).blocker.blocker_id
    common = next(length for length in range(36, 0, -1) if first[:length] == second[:length])
    with pytest.raises(BlockerNotFound, match="2 blockers begin with"):
        world.blockers.release(first[:common])
    with pytest.raises(BlockerNotFound, match="is too short"):
        world.blockers.release(first[:5])
