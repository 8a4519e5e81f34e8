"""Expiry through a REST catalog that leaves the outcome open, while others write and tag: it ends, and nothing is lost.

Every snapshot that is left can be read, whatever is condemned is reached by none, and a tag made meanwhile is there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from amoro_core.actions.expiring import NAME
from amoro_core.errors import AmoroError
from amoro_core.iceberg import limits
from amoro_core.model.processes import CatalogConfig, CommitOutcome, ProcessStatus
from amoro_core.store import commits, condemned
from amoro_core.store.condemned import BatchStatus
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.engine.builders import SCHEMA, row
from tests.engine.reached import reached
from tests.faults.proxy import Applied, Fault, Proxy
from tests.faults.random_commits import FAULTY_TRIES, random_fault
from tests.faults.rest import RestServer
from tests.services.world import World

ENDED = (ProcessStatus.SUCCESS, ProcessStatus.FAILED)
TRIES = 14


class OverRest(World):
    """Services that know the tables of the catalog by REST as well."""

    def _commit_due(self, process_id: str, catalog: str) -> None:
        self.heard.commits.append(process_id)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_limits", limits.Limits(5.0, 1.0))


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog, over_rest: CatalogConfig) -> Iterator[OverRest]:
    home = tmp_path / "home"
    home.mkdir()
    made = OverRest(home, catalog)
    made.catalogs.add(CatalogConfig("rest", over_rest.properties))
    yield made
    made.close()


@pytest.fixture
def table(world: World) -> Table:
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    writer.append(made, [row(0)])
    return made


def ids(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().metadata.snapshots]


def begin(world: World, table: Table, number: int) -> str:
    """An expiry that is due on a table with some more snapshots, in a few of which files go."""
    for one in range(2):
        writer.append(table, [row(number * 10 + one)])
    if number % 2:
        writer.remove_files(table, [oracle.live_files(table)[0].path])
    aged(table, 30)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    begun = world.maintaining.begin(world.table("rest.db.t").table_id, NAME, trigger="request")
    assert begun.process_id, begun.reason
    return begun.process_id


def commit(world: World, process_id: str) -> ProcessStatus:
    with suppress(AmoroError):
        world.committing.commit(process_id)
    world.later(3600)
    return world.status(process_id)


def condemned_by(world: World, process_id: str) -> set[str]:
    def read(db: Any) -> set[str]:
        facts = condemned.list_facts(db, world.table("rest.db.t").table_id, statuses=tuple(BatchStatus))
        batches = [condemned.get(db, one.batch_id) for one in facts if one.process_id == process_id]
        return {file.path for batch in batches if batch is not None for file in batch.files}

    return world.store.read(read)


def test_of_expiries_with_random_faults_each_ends_and_loses_nothing(
    world: OverRest, table: Table, proxy: Proxy
) -> None:
    chance, totals = random.Random(11), Counter[str]()
    for number in range(1, 15):
        process_id = begin(world, table, number)
        before, rows, tags = table.refresh().metadata, oracle.live_rows(table), set[str]()
        for attempt in range(TRIES):
            proxy.script.clear()
            if number % 4 == 0 and attempt == 0:  # nothing but a tag in the window of one request
                proxy.before_commit = partial(_tag, table, ids(table)[0], f"lost{number}", tags)
            elif attempt < FAULTY_TRIES:
                proxy.plan(random_fault(chance))
            if proxy.before_commit is None and chance.random() < 0.3:
                proxy.before_commit = partial(_meddle, table, chance, number, tags)
            elif chance.random() < 0.2:
                _meddle(table, chance, number, tags)
            if commit(world, process_id) in ENDED:
                break
            if chance.random() < 0.3:
                world.restart()
        proxy.before_commit = None
        proxy.script.clear()
        proxy.release()
        status = world.status(process_id)
        assert status in ENDED
        totals[status] += 1
        attempts = world.store.read(lambda db, of=process_id: commits.list_for_process(db, of))
        totals["attempts"] += len(attempts)
        _require_whole(world, table, process_id, tags)
        if status is ProcessStatus.SUCCESS:
            receipt = world.optimizing.find_process(process_id).process.receipt
            totals["back"] += receipt is not None and "brought" in receipt.words
            gone = {one.snapshot_id for one in before.snapshots} - set(ids(table))
            (done,) = [one for one in attempts if one.outcome is CommitOutcome.DONE]
            assert set(done.evidence.snapshot_ids) <= gone
            released = reached(before) - reached(table.metadata)
            assert condemned_by(world, process_id) <= released
            # What an attempt removed that nobody knows to have landed is left to the removal of orphans.
            assert len(attempts) > 1 or condemned_by(world, process_id) == released
        assert not rows - oracle.live_rows(table)
        for name in tags & table.metadata.refs.keys():
            table.manage_snapshots().remove_tag(name).commit()
    assert totals[ProcessStatus.SUCCESS] > 8
    assert totals["back"] >= 2
    assert totals["attempts"] > totals[ProcessStatus.SUCCESS]


def _meddle(table: Table, chance: random.Random, number: int, tags: set[str]) -> None:
    """What another writer does at the same time: a tag on any snapshot, or rows; the tags that were made are kept."""
    if chance.random() < 0.4:
        writer.append(table, [row(1000 + number)])
        return
    _tag(table, chance.choice(ids(table)), f"tag{number}-{chance.randrange(10**6)}", tags)


def _tag(table: Table, snapshot_id: int, name: str, tags: set[str]) -> None:
    with suppress(CommitFailedException, ValueError):
        writer.create_tag(table, name, snapshot_id)
        tags.add(name)


def _require_whole(world: World, table: Table, process_id: str, tags: set[str]) -> None:
    metadata = table.refresh().metadata
    for one in metadata.snapshots:
        oracle.live_rows(table, one.snapshot_id)
    assert not condemned_by(world, process_id) & reached(metadata)
    assert tags <= metadata.refs.keys()


def test_a_late_expiry_that_others_overtook_lands_once_or_never(world: OverRest, table: Table, proxy: Proxy) -> None:
    process_id = begin(world, table, 1)
    proxy.plan(Fault(Applied.LATE, 503, 1000))
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    writer.append(table, [row(99)])
    assert commit(world, process_id) is ProcessStatus.SUCCESS
    proxy.release()
    assert proxy.applied[-1] == 409  # every reference is required
    assert len(ids(table)) == 2
    _require_whole(world, table, process_id, set())


def test_a_stale_state_that_lacks_the_snapshots_is_no_landing(
    world: OverRest, table: Table, server: RestServer, proxy: Proxy
) -> None:
    """A replica that lags behind gives the table from before these snapshots were made."""
    expire = begin(world, table, 2)
    commit(world, expire)
    old = server.loaded("db", "t")
    process_id = begin(world, table, 4)
    proxy.plan(Fault(Applied.NEVER, 503), Fault(Applied.NEVER, 503))
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    proxy.stale.extend([old] * 20)
    assert commit(world, process_id) is ProcessStatus.COMMIT_UNKNOWN
    assert condemned_by(world, process_id) == set()
    proxy.stale.clear()
    assert commit(world, process_id) is ProcessStatus.SUCCESS
    _require_whole(world, table, process_id, set())
