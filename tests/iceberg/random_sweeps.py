"""Random tables with decoys, through the services: before every batch of deletes no file of it is needed by anybody.

What is needed is told by pyiceberg, of every snapshot that the table has at that moment, in any spelling of its paths,
and by whoever else is asked: `tests/spark/test_maintenance.py` asks Iceberg's Java runtime.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_core.actions.action_api import Plan, PlanningContext, Request, TriggerVerdict
from amoro_core.actions.orphans import CleanOrphanFiles
from amoro_core.errors import TableRefused
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.ports import AnyTable
from amoro_core.model.maintenance import Options, Removal, Surroundings
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from tests.engine.aging import aged
from tests.engine.commits import Change, commit
from tests.engine.writer import create_tag, make_catalog, rollback
from tests.iceberg.orphan_tables import NOW, OLD, Site, file_of, make_site, place_of, put
from tests.services.world import World

PLAN, DELETE = CleanOrphanFiles.plan, FileAccess.delete_many
AT_ONCE = {"maintenance.expire-snapshots.trash-keep": "0", "maintenance.clean-orphan-files.trash-keep": "0"}
TRIES = 3
#: One of so many tables has another one in its location.
EACH = 14

#: The places of the files that a table needs, by another reader.
Reader = Callable[[Table], set[str]]


def nothing_else(_: Table) -> set[str]:
    """Only pyiceberg is asked."""
    return set()


class Sweep:
    """One table, what is done to it, and what its deletes are watched for."""

    def __init__(
        self, world: World, site: Site, beside: Iterable[Site], totals: Counter[str], also: Reader = nothing_else
    ) -> None:
        self.world, self.site, self.totals, self.also = world, site, totals, also
        self.name = f"{site.table.catalog.name}.{'.'.join(site.table.name())}"
        self.watched = (site, *beside)
        self.spared: set[str] = set()  # condemned files that somebody has committed since

    def run(self) -> None:
        """Expire, clean, empty, with writers between; then everything that is needed is there."""
        with self.site.table.transaction() as change:
            change.set_properties(AT_ONCE)
        self._age()
        with (
            patch.object(CleanOrphanFiles, "plan", self._planner()),
            patch.object(FileAccess, "delete_many", self._deleter()),
        ):
            for action in self.site.chance.sample(("expire-snapshots", "clean-orphan-files"), 2):
                self._begin(action)
            self._write()
            self._empty()
            self._finish()
        self._require_whole()

    def _finish(self) -> None:
        """Clean what an expiry of others left, and what changed meanwhile."""
        self._begin("clean-orphan-files")
        self._empty()

    def _age(self) -> None:
        """Snapshots of all ages, the older the earlier they were made."""
        ids = [one.snapshot_id for one in self.site.table.refresh().metadata.snapshots]
        ages = sorted((self.site.chance.uniform(0, 12) for _ in ids), reverse=True)
        aged(self.site.table, dict(zip(ids, ages, strict=True)))
        place = place_of(self.site.table.metadata_location)
        os.utime(place, (OLD.timestamp(), OLD.timestamp()))

    def _begin(self, action: str) -> str:
        options = Options(confirmed=True)
        table_id = self.world.table(self.name).table_id
        begun = self.world.maintaining.begin(table_id, action, trigger="request", options=options)
        if begun.process_id:
            status = self.world.committing.commit(begun.process_id)
            self.totals[f"{action} {status}"] += 1
            return status
        return ""

    def _write(self) -> None:
        """What others do while files are condemned."""
        table, chance = self.site.table, self.site.chance
        table.refresh()
        match chance.choice(("append", "commit an orphan", "tag", "roll back", "nothing")):
            case "commit an orphan":
                named = (path for path in self.site.orphans if path.endswith(".parquet") and "%" not in path)
                left = sorted(path for path in named if Path(path).exists())
                if left:
                    path = chance.choice(left)
                    self.spared.add(path)
                    commit(table, lambda head: Change((file_of(head, chance.choice(self.site.spellings)(path)),)))
            case "tag" if table.metadata.snapshots:
                create_tag(table, "late", chance.choice(table.metadata.snapshots).snapshot_id)
            case "roll back" if table.current_snapshot():
                rollback(table, chance.choice(table.metadata.snapshots).snapshot_id)
            case "append":
                self._append()

    def _append(self) -> None:
        path = put(f"{self.site.inside}/late-{self.site.chance.random()}.parquet")
        commit(self.site.table, lambda head: Change((file_of(head, path),)))

    def _empty(self) -> None:
        for _ in range(TRIES):
            if self._begin("empty-trash") != ProcessStatus.HELD:
                return
            assert self.spared, f"{self.name}: the guard spoke though nobody has committed what was condemned"
            self.totals["guard spoke"] += 1

    def _planner(self) -> object:
        """The plan of orphans with what the table's planted processes and files are to be taken for."""
        site = self.site

        def plan(
            action: CleanOrphanFiles, table: AnyTable, situation: PlanningContext, request: Request
        ) -> tuple[TriggerVerdict, Plan | None]:
            around = situation.around()

            def merged() -> Surroundings:
                own = site.around
                return replace(
                    around,
                    paths=around.paths | own.paths,
                    condemned=around.condemned | own.condemned,
                    active=around.active | own.active,
                    ended={**around.ended, **own.ended},
                )

            return PLAN(action, table, replace(situation, around=merged), request)

        return plan

    def _deleter(self) -> object:
        """Deleting, once nobody needs any file of the batch; at times somebody writes between two batches."""

        def delete_many(access: FileAccess, paths: Iterable[str]) -> Mapping[str, Removal]:
            batch = tuple(paths)
            places = {place_of(path) for path in batch}
            for one in self.watched:
                needed = places & (one.named(live=True) | self.also(one.table))
                assert not needed, f"{self.name}: {sorted(needed)} of {one.table.name()} would be deleted"
            self.totals["batches"] += 1
            self.totals["files deleted"] += len(batch)
            told = DELETE(access, batch)
            if self.site.chance.random() < 0.2:
                self._append()
                self.totals["commits between batches"] += 1
            return told

        return delete_many

    def _require_whole(self) -> None:
        """Everything that is needed or young is there, and what was planted for nobody is gone."""
        site = self.site
        lost = {path for one in self.watched for path in one.named(live=True) if not Path(path).exists()}
        assert lost == set(), f"{self.name}: {lost} is lost"
        gone = {path: what for path, what in site.kept.items() if not Path(path).exists()}
        assert gone == {}, f"{self.name}: {gone}"
        planted = {path for path in site.orphans if path not in self.spared} - site.named()
        self._count(len(planted), sum(not Path(path).exists() for path in planted))

    def _count(self, planted: int, found: int) -> None:
        """Add the table and its orphans to the totals."""
        self.totals.update(dict.fromkeys((f"tables with {one}" for one in self.site.shapes), 1))
        self.totals.update({"tables": 1, "tables of all shapes": 1, "planted orphans": planted, "found orphans": found})


class SharedSweep(Sweep):
    """A table in whose location another one lies, or that lies in another's: its orphans are not looked for."""

    def _begin(self, action: str) -> str:
        if action != "clean-orphan-files":
            return super()._begin(action)
        with pytest.raises(TableRefused) as refused:
            super()._begin(action)
        assert refused.value.reason == "shared-location", refused.value
        return ""

    def _count(self, planted: int, found: int) -> None:
        assert found == 0, f"{self.name}: {found} of {planted} orphans are gone"
        self.totals["tables in a shared place"] += 1


@contextmanager
def world_of(directory: Path, catalog: Catalog) -> Iterator[World]:
    """Services that may read and write below the directory."""
    (directory / "home").mkdir()
    config = CatalogConfig(
        catalog.name, tuple(sorted({**catalog.properties, "type": "sql"}.items())), (f"file://{directory}",)
    )
    world = World(directory / "home", catalog, config=config)
    world.now = NOW
    try:
        yield world
    finally:
        world.close()


def run(numbers: Iterable[int], directory: Path, totals: Counter[str], guarded: bool = True) -> None:
    """The random tables of these numbers in one warehouse, some of them with their files in one place."""
    catalog = make_catalog(directory)
    run_in(catalog, numbers, directory, totals, guarded=guarded)
    catalog.close()


def run_in(
    catalog: Catalog,
    numbers: Iterable[int],
    directory: Path,
    totals: Counter[str],
    also: Reader = nothing_else,
    guarded: bool = True,
) -> None:
    """The same in a catalog whose files lie below the directory; `also` tells, too, what is needed."""
    with world_of(directory, catalog) as world:
        if not guarded:
            world.iceberg.guard(reachable=lambda guard, paths: {})
        sites: list[Site] = []
        for number in numbers:
            site = make_site(catalog, number, directory)
            if number % EACH == EACH - 1:
                inside = make_site(catalog, number, directory, around=site)
                _run_around(world, site, inside, bool(number // EACH % 2), totals, also)
            else:
                Sweep(world, site, sites[-3:], totals, also).run()
                sites.append(site)
    assert totals["found orphans"] >= 0.99 * totals["planted orphans"], totals


def _run_around(world: World, site: Site, inside: Site, is_seen: bool, totals: Counter[str], also: Reader) -> None:
    """The same of a table with another one in its location, which at times nobody has seen before."""
    sweep, other = (
        SharedSweep(world, one, (beside,), totals, also) for one, beside in ((site, inside), (inside, site))
    )
    totals["tables seen inside another" if is_seen else "unseen tables inside another"] += 1
    if is_seen:
        world.tables.refresh(world.table(other.name).table_id)
    sweep.run()
    world.tables.refresh(world.table(sweep.name).table_id)
    other.run()
