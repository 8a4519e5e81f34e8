"""Expiry through a REST catalog that leaves the outcome open, while others write and tag: it ends and loses nothing."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from pyiceberg.table import Table

from amoro_core.model.processes import ProcessStatus
from tests.engine import writer
from tests.engine.builders import row
from tests.faults.proxy import Applied, Fault, Proxy
from tests.faults.random_expiries import begin, commit, expire, ids, require_whole
from tests.faults.rest import RestServer
from tests.faults.world import World
from tests.tiers import count


@pytest.fixture
def table(world: World) -> Table:
    writer.append(world.lake.table, [row(0)])
    return world.lake.table


def test_of_expiries_with_random_faults_each_ends_and_loses_nothing(world: World, table: Table, proxy: Proxy) -> None:
    """`make prove` goes on with other seeds."""
    totals = Counter[str]()
    number = count(4, 14)
    expire(world, table, proxy, random.Random(11), range(1, number + 1), totals)
    success = totals[f"expire-snapshots {ProcessStatus.SUCCESS}"]
    assert success > number / 2
    assert totals["back"] >= number // 7
    assert totals["attempts"] >= success


def test_a_late_expiry_that_others_overtook_lands_once_or_never(world: World, table: Table, proxy: Proxy) -> None:
    process_id = begin(world, table, 1)
    proxy.plan(Fault(Applied.LATE, 503, 1000))
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    writer.append(table, [row(99)])
    assert commit(world, process_id) is ProcessStatus.SUCCESS
    proxy.release()
    assert proxy.applied[-1] == 409  # every reference is required
    assert len(ids(table)) == 2
    require_whole(world, table, process_id, set())


def test_a_stale_state_that_lacks_the_snapshots_is_no_landing(
    world: World, table: Table, server: RestServer, proxy: Proxy
) -> None:
    """A replica that lags behind gives the table from before these snapshots were made."""
    first = begin(world, table, 2)
    commit(world, first)
    old = server.loaded("db", "t")
    process_id = begin(world, table, 4)
    proxy.plan(Fault(Applied.NEVER, 503), Fault(Applied.NEVER, 503))
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    proxy.stale.extend([old] * 20)
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    assert world.condemned(process_id) == []
    proxy.stale.clear()
    assert commit(world, process_id) is ProcessStatus.SUCCESS
    require_whole(world, table, process_id, set())
