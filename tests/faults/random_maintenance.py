"""Commits of maintenance that meet faults by chance: data expiry, dangling deletes, manifests and tags of one table."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestampType

from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.engine.chance import seed_ids
from tests.faults.proxy import Proxy
from tests.faults.random_commits import commit_with_faults
from tests.faults.rest import give_up_hanging
from tests.faults.world import rest_catalog
from tests.model.crashes import SteppedWorld

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "at", TimestampType(), required=False))
BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "day"))
PROPERTIES = {
    "data-expire.field": "at",
    "data-expire.retention-time": "30d",
    "data-expire.base-on-rule": "CURRENT_TIME",
    "tag.auto-create.trigger.max-delay.minutes": "0",
}
ACTIONS = ("expire-data", "clean-dangling-delete-files", "rewrite-manifests", "auto-create-tags")


class Ledger:
    """The table `db.t`, and the rows that it must hold: young ones always, old ones until they are expired."""

    def __init__(self, catalog: Any, now: datetime) -> None:
        self.table: Table = writer.make_table(catalog, "db.t", SCHEMA, BY_DAY, properties=PROPERTIES)
        self.now = now.replace(tzinfo=None)
        self.young: set[int] = set()
        self.old: set[int] = set()
        self._next = 0

    def add(self, count: int, age: timedelta = timedelta()) -> list[dict[str, Any]]:
        """Rows of one day."""
        ids = range(self._next, self._next + count)
        self._next += count
        (self.old if age else self.young).update(ids)
        rows = [{"id": id_, "at": self.now - age} for id_ in ids]
        writer.append(self.table, rows)
        return rows

    def fill(self) -> None:
        """Old and young rows, several manifests, and deletes that will dangle or already do."""
        old, young = self.add(3, timedelta(days=60)), self.add(4)
        writer.row_delta(self.table, equality_deletes=[(["id"], [old[0], young[0]])])
        writer.delete_where(self.table, lambda row: row["id"] in (old[1]["id"], young[1]["id"]))
        self.old -= {old[0]["id"], old[1]["id"]}
        self.young -= {young[0]["id"], young[1]["id"]}
        lone = self.add(1)
        path = next(
            one.path for one in oracle.live_rows_with_positions(self.table) if one.record["id"] == lone[0]["id"]
        )
        writer.delete_where(self.table, lambda row: row["id"] == lone[0]["id"], per_file=True)
        writer.remove_files(self.table, [path])
        self.young -= {lone[0]["id"]}

    @property
    def ids(self) -> list[int]:
        """What the table holds."""
        return sorted(one.record["id"] for one in oracle.live_rows_with_positions(self.table))

    def require_whole(self) -> None:
        """Every file that a snapshot names is there, and main is one line of rising numbers."""
        metadata = self.table.refresh().metadata
        for snapshot in metadata.snapshots:
            for manifest in snapshot.manifests(self.table.io):
                assert Path(manifest.manifest_path.removeprefix("file://")).exists()
        assert [one.sequence_number for one in metadata.snapshots] == list(range(1, len(metadata.snapshots) + 1))


def run(seed: int, directory: Path, totals: Counter[str]) -> None:
    """Commit each action once to one table; the seed decides faults, writes and deaths. Counts in `totals`.

    Raises AssertionError when a commit landed twice, a row differs from the model's, or a process does not end.
    """
    chance = random.Random(seed)
    (directory / "home").mkdir()
    with rest_catalog(directory) as (catalog, server, config), pytest.MonkeyPatch.context() as patch:
        give_up_hanging(patch, server.proxy)
        seed_ids(patch, random.Random(seed))
        world = SteppedWorld(directory / "home", catalog, config=config)
        try:
            ledger = Ledger(catalog, datetime.now(UTC))
            for name in chance.sample(ACTIONS, len(ACTIONS)):
                _one(seed, name, world, ledger, server.proxy, chance, totals)
        finally:
            world.close()


def _one(
    seed: int, name: str, world: SteppedWorld, ledger: Ledger, proxy: Proxy, chance: random.Random, totals: Counter[str]
) -> None:
    ledger.fill()
    metadata = ledger.table.refresh().metadata
    # By the machine's clock a new day may have begun since the last commit, and no tag would be due.
    world.now = datetime.fromtimestamp(metadata.snapshots[-1].timestamp_ms / 1000, UTC) + timedelta(milliseconds=1)
    before, tags = set(ledger.ids), set(metadata.refs)
    assert before == ledger.young | ledger.old
    process_id = world.begin_action(name, confirmed=True)
    print(f"seed {seed}, {name}")
    played = len(proxy.played)

    def check() -> None:
        assert world.snapshots_of(process_id) <= 1
        held = set(ledger.ids)
        assert held in (ledger.young | ledger.old, ledger.young if name == "expire-data" else held | ledger.young)

    happened = commit_with_faults(world, proxy, chance, process_id, partial(ledger.add, 2), check, dies=0.4)
    status = world.status(process_id)
    landed = world.snapshots_of(process_id)
    assert landed == (status is ProcessStatus.SUCCESS and name != "auto-create-tags")
    if status is not ProcessStatus.SUCCESS:
        assert (status, "refused" in happened) == (ProcessStatus.FAILED, True)
    elif name == "expire-data":
        ledger.old.clear()
    elif name == "auto-create-tags":
        assert len(set(ledger.table.refresh().metadata.refs) - tags) == 1
    assert set(ledger.ids) == ledger.young | ledger.old
    proxy.release()  # what was answered long ago may still be applied
    assert world.snapshots_of(process_id) == landed
    assert set(ledger.ids) == ledger.young | ledger.old
    ledger.require_whole()
    totals["commits"] += 1
    totals["ambiguous commits"] += len(proxy.played) > played
    totals[f"{name} {status}"] += 1
