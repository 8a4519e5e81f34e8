"""Expiries through a REST catalog whose answers lie, fail or never come, while others write and tag.

Every snapshot that is left can be read, whatever is condemned is reached by none, and a tag made meanwhile is there.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from amoro_core.actions.snapshots import NAME
from amoro_core.errors import AmoroError
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.engine.builders import row
from tests.engine.oracle import reached
from tests.faults.proxy import Proxy
from tests.faults.random_commits import FAULTY_TRIES, random_fault
from tests.faults.rest import give_up_hanging
from tests.faults.world import World, rest_catalog

ENDED = (ProcessStatus.SUCCESS, ProcessStatus.FAILED)
TRIES = 14


def run(seed: int, expiries: int, directory: Path, totals: Counter[str]) -> None:
    """So many expiries of one table; the seed decides faults, writes and restarts. Counts in `totals`."""
    with rest_catalog(directory) as (catalog, server, config), pytest.MonkeyPatch.context() as patch:
        give_up_hanging(patch, server.proxy)
        world = World(directory / "home", catalog, config)
        try:
            writer.append(world.lake.table, [row(0)])
            expire(world, world.lake.table, server.proxy, random.Random(seed), range(1, expiries + 1), totals)
        finally:
            world.close()


def expire(
    world: World, table: Table, proxy: Proxy, chance: random.Random, numbers: Iterable[int], totals: Counter[str]
) -> None:
    """An expiry for each number, with faults by chance; asserts that it ends and loses nothing."""
    for number in numbers:
        process_id = begin(world, table, number)
        played = len(proxy.played)
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
        proxy.forget()
        proxy.release()
        status = world.status(process_id)
        assert status in ENDED
        totals[f"expire-snapshots {status}"] += 1
        attempts = world.commits(process_id)
        totals["ambiguous expiries"] += len(proxy.played) > played
        totals["attempts"] += len(attempts)
        require_whole(world, table, process_id, tags)
        if status is ProcessStatus.SUCCESS:
            receipt = world.process(process_id).receipt
            totals["back"] += receipt is not None and "restored" in receipt.words
            gone = {one.snapshot_id for one in before.snapshots} - set(ids(table))
            (done,) = [one for one in attempts if one.outcome is CommitOutcome.DONE]
            assert set(done.evidence.snapshot_ids) <= gone
            released = reached(before) - reached(table.metadata)
            condemned = set(world.condemned(process_id))
            assert condemned <= released
            # What an attempt removed that nobody knows to have landed is left to the removal of orphans.
            assert len(attempts) > 1 or condemned == released
        assert not rows - oracle.live_rows(table)
        for name in tags & table.metadata.refs.keys():
            table.manage_snapshots().remove_tag(name).commit()


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
    return world.begin_action(NAME)


def commit(world: World, process_id: str) -> ProcessStatus:
    with suppress(AmoroError):
        world.committing.commit(process_id)
    world.later(3600)
    return world.status(process_id)


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


def require_whole(world: World, table: Table, process_id: str, tags: set[str]) -> None:
    metadata = table.refresh().metadata
    for one in metadata.snapshots:
        oracle.live_rows(table, one.snapshot_id)
    assert reached(metadata).isdisjoint(world.condemned(process_id))
    assert tags <= metadata.refs.keys()
