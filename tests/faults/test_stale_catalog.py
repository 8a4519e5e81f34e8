"""A catalog whose loads are answered by a replica that lags behind: nothing is concluded from an old state."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from tests.faults.conftest import Place
from tests.faults.proxy import Applied, Cut, Fault, Proxy, Response
from tests.faults.rest import RestServer
from tests.faults.world import World
from tests.tiers import sample, seeds

UNKNOWN = [CommitOutcome.UNKNOWN]


@pytest.fixture(params=sample([2, 1], every=2), ids=lambda version: f"format {version}")
def kind(request: pytest.FixtureRequest) -> dict[str, int]:
    return {"version": request.param}


@pytest.fixture(params=sample(["as it was before the commit", "older than that", "much older"], every=2))
def old(request: pytest.FixtureRequest, world: World, server: RestServer) -> Response:
    """The state of the filled table that the replica gives."""
    world.append(2, files=2)
    states = [server.loaded("db", "t")]
    world.append(4, files=2)
    world.append(4, files=2)
    states.append(server.loaded("db", "t"))
    world.delete(1)
    states.append(server.loaded("db", "t"))
    at = {"as it was before the commit": 2, "older than that": 1, "much older": 0}[request.param]
    return states[at]


@pytest.mark.parametrize("answer", sample([503, 409, Cut.RESET], every=2))
def test_commit_that_landed_stays_unknown_until_the_catalog_shows_it(
    old: Response, world: World, proxy: Proxy, answer: int | Cut
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(Applied.NOW, answer))
    proxy.stale.extend([None, None, *[old] * 20])  # what is validated is the true head
    for _ in range(3):
        assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
        assert world.outcomes(process_id) == UNKNOWN
        assert world.clearing.clean_up(process_id) == ()
        world.require_consistent(process_id)
    world.restart()
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.require_consistent(process_id)
    proxy.stale.clear()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied.count(200) == 1


@pytest.mark.parametrize("lag", sample([1, 2, 3], every=2), ids=lambda lag: f"{lag} states behind")
def test_refused_commit_may_have_landed_when_the_catalog_then_shows_an_older_state(
    world: World, server: RestServer, proxy: Proxy, lag: int
) -> None:
    """What was refused may be what something in between sent again after it had landed."""
    states = []
    for _ in range(4):
        world.append(2)
        states.append(server.loaded("db", "t"))
    process_id = world.rewritten()
    proxy.plan(Fault(Applied.NOW, 403))
    proxy.stale.extend([None, None, *[states[-1 - lag]] * 3])
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.require_consistent(process_id)
    proxy.stale.clear()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS


@pytest.mark.parametrize("answer", sample([409, 503], every=2))
def test_commit_that_did_not_land_is_made_when_the_catalog_is_itself_again(
    old: Response, world: World, proxy: Proxy, answer: int
) -> None:
    process_id = world.rewritten()
    proxy.plan(Fault(Applied.NEVER, answer))
    proxy.stale.extend([None, None, *[old] * 3])
    assert world.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.require_consistent(process_id)
    proxy.stale.clear()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS
    assert proxy.applied == [200]


def test_plan_of_an_old_state_never_commits(old: Response, world: World, proxy: Proxy) -> None:
    """Its inputs are gone by then. ClickHouse #120165: a compaction rooted at an old state dropped newer snapshots."""
    world.optimized()
    files, snapshots = world.files("*"), len(world.lake.table.refresh().metadata.snapshots)
    proxy.stale.extend([old] * 10)
    process_id = world.rewritten()
    assert world.files("*") != files
    proxy.stale.clear()
    assert world.commit(process_id) is ProcessStatus.FAILED
    assert world.require_ended(process_id) is ProcessStatus.FAILED
    assert (world.files("*"), len(world.lake.table.refresh().metadata.snapshots)) == (files, snapshots)


@pytest.mark.parametrize("kind", [2, 1], indirect=True, ids=lambda version: f"format {version}")
def test_state_older_than_the_plan_is_no_conflict(server: RestServer, world: World, proxy: Proxy) -> None:
    """Only sequence numbers tell it from a rollback, so in format 1 the round is lost: nothing was sent."""
    world.append(2)
    old = server.loaded("db", "t")
    world.append(2)
    process_id = world.rewritten()
    proxy.stale.extend([old] * 10)
    if world.lake.version == 1:
        assert world.commit(process_id) is ProcessStatus.FAILED
        assert world.require_ended(process_id) is ProcessStatus.FAILED
        return
    with pytest.raises(CatalogUnavailable, match="older than the plan"):
        world.commit(process_id)
    assert world.outcomes(process_id) == []
    proxy.stale.clear()
    assert world.commit(process_id) is ProcessStatus.SUCCESS
    assert world.require_ended(process_id) is ProcessStatus.SUCCESS


@pytest.mark.parametrize("seed", seeds(1, 8))
def test_random_commits_behind_a_lagging_replica_land_at_most_once_and_keep_every_row(
    place: Place, tmp_path: Path, proxy: Proxy, seed: int
) -> None:
    """Every load may be answered with any of the last states, commits with a fault; others write meanwhile."""
    chance = random.Random(seed)
    (catalog, server, config), version = place, chance.choice((2, 2, 1))
    world = World(tmp_path / "home", catalog, config, version=version, partitioned=chance.random() < 0.5)
    states = []
    for _ in range(3):
        world.fill()
        states.append(server.loaded("db", "t"))
        proxy.stale.extend(chance.choice((None, None, states[-1])) for _ in range(4))
        process_id = world.rewritten()
        for tried in range(8):
            proxy.stale.clear()
            states.append(server.loaded("db", "t"))
            if tried < 5:
                proxy.stale.extend(chance.choice((None, *states[-3:])) for _ in range(12))
                if chance.random() < 0.6:
                    proxy.plan(Fault(chance.choice((Applied.NOW, Applied.NEVER)), chance.choice((503, 409))))
                if chance.random() < 0.2:
                    world.change(chance)
            try:
                world.commit(process_id)
            except CatalogUnavailable as error:
                print(error.message)
            world.require_consistent(process_id)
            if not world.process(process_id).is_active:
                break
        proxy.stale.clear()
        proxy.script.clear()
        world.require_ended(process_id, leaves_files=True)
