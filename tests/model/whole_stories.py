"""Random stories of a table: writes, maintenance, and undo of what was done, beside a list of its rows.

Also what takes something away: expiry of snapshots and data, orphans, the sweep, and tags. Hours and days pass between
the steps: the world's clock moves on, and what was made meanwhile gets its time. Beside the rows of the head those of
every snapshot are watched, from its first step to its last, and after its return.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Set
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from amoro_core.errors import CannotUndo
from amoro_core.model.maintenance import Options
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.aging import aged
from tests.engine.builders import BY_PART, SCHEMA, SPECS, row
from tests.engine.parquet_rows import local_path
from tests.services.world import World

IDS, PARTS = range(12), "ab"
#: Small files are fragments, or all are segments whose deletes are converted.
SIZES = ({}, {"self-optimizing.target-size": "4000", "self-optimizing.major.trigger.duplicate-ratio": "1.0"})
ENDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL)
DAY = timedelta(days=1)
#: So long ago is the first story: each step takes up to three days, and none may be later than it is.
LONG_AGO = 3000 * DAY
PROPERTIES = {
    "snapshot.keep.duration": "3d",
    "data-expire.field": "value",
    "data-expire.retention-time": "5d",
    "data-expire.base-on-rule": "CURRENT_TIME",
    "tag.auto-create.trigger.max-delay.minutes": "0",
}
KEEPS = ("0", "1d", "2d")
FILES = ("data/{}.parquet", "metadata/{}-m0.avro", "metadata/snap-{}.avro", "metadata/{}.stats")
RESTORED = "restored-"

Item = tuple[int, str, str]
Key = tuple[int] | tuple[int, str]  # the second within its partition


def item_of(row: oracle.LiveRow) -> Item:
    """What a row is in the list."""
    return row.record["id"], row.record["part"], row.record["value"]


def without(rows: Iterable[Item], gone: Set[Key]) -> list[Item]:
    """The rows that have none of the keys."""
    return [one for one in rows if one[:2] not in gone and one[:1] not in gone]


class Story:
    """A table with what should be in it and in each of its snapshots; values are days, by which rows expire."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world, self.name, self.seed = world, f"cat.db.{name}", seed
        self.version = self.chance.choice((1, 2, 2, 2))
        self.spec = SPECS[self.chance.choice(list(SPECS))]
        properties = self.chance.choice(SIZES)
        self.table: Table = writer.make_table(
            world.catalog, f"db.{name}", SCHEMA, self.spec, self.version, properties=properties
        )
        self.rows: list[Item] = []
        self.done: list[str] = []  # processes that may be undone
        self.told: list[str] = []
        self.refused = 0
        keep = self.chance.choice(KEEPS)
        with self.table.transaction() as change:
            change.set_properties({
                **PROPERTIES,
                "data-expire.level": self.chance.choice(("file", "partition")),
                "snapshot.keep.min-count": self.chance.choice(("1", "1", "3")),
                "maintenance.expire-snapshots.trash-keep": keep,
                "maintenance.clean-orphan-files.trash-keep": keep,
            })  # fmt: skip
        self.of_snapshot: dict[int, Counter[Item]] = {}
        self.expired: dict[str, list[Item]] = {}  # what would come back by the undo of each expiry of data
        self.at: dict[int, tuple[list[Item], dict[str, list[Item]]]] = {}  # both, as they were at a head
        self.theirs: dict[str, int] = {}  # tags of others
        self.planted: dict[str, list[Path]] = {}  # by the process that condemned them
        self.numbers = count()
        self.kinds: dict[str, str] = {}
        self.totals: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """Go on for so many steps; after each the rows are as they should be."""
        self.append()
        self.check()
        for _ in range(steps):
            self.chance.choice(self.choices())()
            self.check()

    def choices(self) -> list[Callable[[], None]]:
        """What may come next, the likelier the more often."""
        every = [self.append, *[self.optimize] * 2, *[self.undo] * 3, self.rewrite_files, self.maintain]
        every += [*[self.expire_snapshots] * 2, self.expire_data, self.clean_orphans, self.empty_trash, self.make_tag]
        every += [self.tag_by_others, self.drop_tag, self.roll_back, self.undo]
        return [*every, self.upsert, self.upsert, self.delete] if self.version >= 2 else every

    def check(self) -> None:
        """The rows of the head and of every snapshot; then time passes."""
        found = Counter(map(item_of, oracle.live_rows_with_positions(self.table.refresh())))
        assert found == Counter(self.rows), f"seed {self.seed}: {self.told}"
        self._let_time_pass()
        metadata = self.table.metadata
        for one in metadata.snapshots:
            found = Counter(map(item_of, oracle.rows_in(metadata, one.snapshot_id)))
            known = self.of_snapshot.setdefault(one.snapshot_id, found)
            assert found == known, f"seed {self.seed}, snapshot {one.snapshot_id}: {self.told}"
        for name, ref in metadata.refs.items():
            if name.startswith(RESTORED):
                first = int(name.removeprefix(RESTORED))
                assert self.of_snapshot[ref.snapshot_id] == self.of_snapshot[first], f"seed {self.seed}: {self.told}"
        refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
        assert self.theirs.items() <= refs.items(), f"seed {self.seed}: {self.told}"
        self.at[refs["main"]] = (list(self.rows), {key: list(rows) for key, rows in self.expired.items()})

    def append(self) -> None:
        items = [self._item() for _ in range(self.chance.randint(1, 4))]
        writer.append(self.table, [row(*item) for item in items], files=self.chance.randint(1, 2))
        self._note("append", items)
        self.rows += items

    def upsert(self) -> None:
        items = list({item[:2]: item for item in (self._item() for _ in range(self.chance.randint(1, 3)))}.values())
        if self.spec is not BY_PART:
            items = list({item[0]: item for item in items}.values())
        writer.upsert(self.table, [row(*item) for item in items], ["id"])
        self._note("upsert", items)
        gone = {item[:2] if self.spec is BY_PART else item[:1] for item in items}
        self.rows = without(self.rows, gone) + items
        # What comes back lacks them, too.
        self.expired = {process_id: without(rows, gone) for process_id, rows in self.expired.items()}

    def delete(self) -> None:
        gone = self._some_ids()
        writer.delete_where(self.table, lambda item: item["id"] in gone, per_file=self.chance.random() < 0.5)
        self._forget("delete", gone)

    def rewrite_files(self) -> None:
        """Copy on write, by somebody else."""
        gone = self._some_ids()
        writer.copy_on_write(self.table, lambda item: item["id"] in gone)
        self._forget("copy on write", gone)

    def optimize(self) -> None:
        kind = self.chance.choice(list(OptimizingType))
        table_id = self.world.table(self.name).table_id
        begun = self.world.planning.begin(table_id, trigger="request", requested=kind, force=True)
        if begun.process_id is None:
            return
        self.world.run_all(begun.process_id)
        if self.chance.random() < 0.3:
            self.append()  # beside the rewrite
        self._note(kind.value, self.world.committing.commit(begun.process_id))
        if self.world.status(begun.process_id) in ENDED:
            self.done.append(begun.process_id)

    def maintain(self) -> None:
        name = self.chance.choice(("clean-dangling-delete-files", "rewrite-manifests", "compute-statistics"))
        begun = self.world.maintaining.begin(self.world.table(self.name).table_id, name, trigger="request")
        self._note(name, begun.reason)
        if begun.process_id and self.world.committing.commit(begun.process_id) in ENDED:
            self.done.append(begun.process_id)

    def undo(self) -> None:
        if not self.done:
            return
        process_id = self.chance.choice(self.done)
        try:
            begun = self.world.maintaining.undo(process_id)
        except CannotUndo as refusal:
            self._note("no undo", refusal.message)
            self.refused += 1
            return
        if self.chance.random() < 0.3:
            self.append()
        status = self.world.committing.commit(begun.process_id)
        self._note("undo", process_id, status)
        assert status is ProcessStatus.SUCCESS, f"seed {self.seed}: {self.told}"
        self.done.remove(process_id)
        self.was_undone(process_id)

    def _item(self) -> Item:
        day = self.world.now - self.chance.randint(0, 8) * DAY
        return self.chance.choice(IDS), self.chance.choice(PARTS), f"{day:%Y-%m-%d}"

    def _some_ids(self) -> set[int]:
        return set(self.chance.sample(IDS, 2))

    def _forget(self, what: str, gone: set[int]) -> None:
        self._note(what, gone)
        self.rows = [one for one in self.rows if one[0] not in gone]

    def _note(self, *words: Any) -> None:
        self.told.append(" ".join(map(str, words)))

    def was_undone(self, process_id: str) -> None:
        """Rows are there again, orphans are there still."""
        self.totals[f"{self.kinds.get(process_id, 'optimizing')} × taken back"] += 1
        self.rows += self.expired.pop(process_id, ())
        assert all(path.exists() for path in self.planted.pop(process_id, ())), f"seed {self.seed}: {self.told}"

    def expire_snapshots(self) -> None:
        self._maintain("expire-snapshots", Options(retain_last=self.chance.choice((None, None, 2))))

    def expire_data(self) -> None:
        """Files, whole ones, whose rows are all too old."""
        before = {one.path for one in oracle.live_files(self.table) if one.content == oracle.DATA}
        live = oracle.live_rows_with_positions(self.table)
        process_id = self._maintain("expire-data", Options(confirmed=True))
        if not process_id:
            return
        gone = before - {one.path for one in oracle.live_files(self.table)}
        until = f"{self.world.now - 5 * DAY:%Y-%m-%d}"
        lost = [item_of(one) for one in live if one.path in gone]
        assert all(item[2] <= until for item in lost), f"seed {self.seed}: {self.told}"
        for item in lost:
            self.rows.remove(item)
        self.expired[process_id] = lost

    def clean_orphans(self) -> None:
        """Files that nobody names; some are young."""
        root, planted = Path(local_path(self.table.location())), []
        for _ in range(self.chance.randint(0, 2)):
            path = root / self.chance.choice(FILES).format(f"orphan-{next(self.numbers)}")
            path.write_bytes(b"nobody names it")
            planted.append(path)
            self._stamp(path, self.world.now - self.chance.choice((1, 4, 9)) * DAY)
        process_id = self._maintain("clean-orphan-files", Options(confirmed=True))
        if process_id:
            self.planted[process_id] = [path for path in planted if path.exists()]

    def empty_trash(self) -> None:
        self._maintain("empty-trash", Options())

    def make_tag(self) -> None:
        self._maintain("auto-create-tags", Options())

    def tag_by_others(self) -> None:
        snapshot_id = self.chance.choice(self.table.refresh().metadata.snapshots).snapshot_id
        name = f"theirs-{next(self.numbers)}"
        writer.create_tag(self.table, name, snapshot_id)
        self.theirs[name] = snapshot_id
        self._note("tag", name, snapshot_id)

    def drop_tag(self) -> None:
        tags = [name for name in self.table.refresh().metadata.refs if name != "main"]
        if tags:
            name = self.chance.choice(tags)
            self.table.manage_snapshots().remove_tag(name).commit()
            self.theirs.pop(name, None)
            self._note("drop tag", name)

    def roll_back(self) -> None:
        """To any snapshot that was the head once."""
        there = [one.snapshot_id for one in self.table.refresh().metadata.snapshots if one.snapshot_id in self.at]
        snapshot_id = self.chance.choice(there)
        writer.rollback(self.table, snapshot_id)
        rows, expired = self.at[snapshot_id]
        self.rows, self.expired = list(rows), {key: list(items) for key, items in expired.items()}
        self._note("roll back", snapshot_id)

    def _maintain(self, name: str, options: Options) -> str:
        """Run it to its end; the process, "" when there was nothing to do."""
        table_id = self.world.table(self.name).table_id
        begun = self.world.maintaining.begin(table_id, name, trigger="request", options=options)
        if not begun.process_id:
            self._note(name, begun.reason)
            return ""
        status = self.world.committing.commit(begun.process_id)
        self._note(name, begun.process_id, status)
        assert status in ENDED, f"seed {self.seed}: {self.told}"
        self.totals[f"{name} × done"] += 1
        self.kinds[begun.process_id] = name
        if name != "empty-trash":
            self.done.append(begun.process_id)
        return begun.process_id

    def _let_time_pass(self) -> None:
        """What is new gets the time of the world's clock, which moves on then."""
        now = self.world.now
        ahead = datetime.now(UTC) - now
        young = {
            one.snapshot_id: ahead / DAY
            for one in self.table.refresh().metadata.snapshots
            if one.timestamp_ms > now.timestamp() * 1000
        }
        if young:
            aged(self.table, young)
        for path in Path(local_path(self.table.location())).rglob("*"):
            if path.is_file() and path.stat().st_mtime > now.timestamp():
                self._stamp(path, now)
        self.world.later(self.chance.choice((1, 12, 24, 72)) * 3600)

    @staticmethod
    def _stamp(path: Path, moment: datetime) -> None:
        os.utime(path, (moment.timestamp(), moment.timestamp()))


def run(seeds: Iterable[int], steps: int, directory: Path, totals: Counter[str]) -> None:
    """Stories by these seeds in one world, at most a thousand steps in all."""
    catalog = writer.make_catalog(directory)
    (directory / "home").mkdir()
    world = World(directory / "home", catalog)
    world.now = datetime.now(UTC) - LONG_AGO
    try:
        for seed in seeds:
            story = Story(world, f"t{seed}", seed)
            story.run(steps)
            totals.update({"stories": 1, "steps": steps, "refused": story.refused, **story.totals})
    finally:
        world.close()
        catalog.close()
