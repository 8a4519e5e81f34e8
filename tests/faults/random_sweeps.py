"""Random tables with decoys on a storage that is busy, lies in its listings, deletes by halves and loses manifests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog

from amoro_core.errors import AmoroError, CatalogUnavailable
from amoro_core.model.maintenance import Ended, Options, Removal, StoredFile
from amoro_core.model.processes import CatalogConfig
from amoro_core.store import processes
from tests.engine.writer import make_catalog
from tests.iceberg.orphan_tables import NOW, OLD, Site, make_site, place_of
from tests.iceberg.random_sweeps import Sweep
from tests.model.crashes import SteppedWorld

#: How likely each fault is, try after try; at last nothing fails any more.
LEVELS = (0.25, 0.15, 0.1, 0.0)


class FaultySweep(Sweep):
    """Every action is begun again until it ends, by a storage that gets better."""

    world: SteppedWorld

    def __init__(self, world: SteppedWorld, site: Site, beside: Iterable[Site], totals: Counter[str]) -> None:
        super().__init__(world, site, beside, totals)
        self._level, self._levels = 0.0, LEVELS
        self._hidden: set[str] = set()  # of this try

    def run(self) -> None:
        with self.world.steps(self._act):
            super().run()

    def _begin(self, action: str) -> str:
        table_id = self.world.table(self.name).table_id
        status = ""
        for level in self._levels:
            self._level = level
            self._hidden.clear()
            with suppress(AmoroError), self._without_a_manifest():
                begun = self.world.maintaining.begin(
                    table_id, action, trigger="request", options=Options(confirmed=True)
                )
                if begun.process_id:
                    status = self.world.committing.commit(begun.process_id)
            for process in self.world.store.read(processes.list_active):
                with suppress(AmoroError):
                    status = self.world.committing.commit(process.process_id)
            self.totals[f"{action} {status}".strip()] += 1
        return status

    def _finish(self) -> None:
        """As before, and once more without faults: what a listing told wrongly had been left alone."""
        super()._finish()
        self._levels = LEVELS[-1:]
        super()._finish()

    @contextmanager
    def _without_a_manifest(self) -> Iterator[None]:
        """At times one of them is not to be found meanwhile."""
        snapshot = self.site.table.refresh().current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(self.site.table.io)
        if not manifests or not self._happens("manifest vanished"):
            yield
            return
        path = Path(place_of(self.site.chance.choice(manifests).manifest_path))
        hidden = path.with_name(f".{path.name}.hidden")
        path.rename(hidden)
        try:
            yield
        finally:
            hidden.rename(path)

    def _happens(self, fault: str) -> bool:
        if self.site.chance.random() >= self._level:
            return False
        self.totals[fault] += 1
        return True

    def _act(self, name: str, step: Callable[..., Any], *given: Any, **more: Any) -> Any:
        """What the storage answers, where it is asked for a listing or for files by their names."""
        if name == "pages":
            return self._pages(step(*given, **more))
        if name == "stat_many" and self._happens("files not looked at"):
            raise CatalogUnavailable("503 Slow Down")
        return step(*given, **more)

    def _pages(self, true: Iterable[Sequence[StoredFile]]) -> Iterator[Sequence[StoredFile]]:
        for page in true:
            yield [told for one in page if (told := self._told(one)) is not None]
            if self._happens("listing broke off"):
                raise CatalogUnavailable("503 Slow Down")

    def _told(self, one: StoredFile) -> StoredFile | None:
        """What a listing says of a file: nothing, no time, what it was before, or the truth."""
        # Of what no listing shows while it is there nobody can know: a manifest of Flink's is not lacking twice.
        if one.path not in self._hidden and self._happens("file not listed"):
            self._hidden.add(one.path)
            return None
        if self._happens("file without time"):
            return replace(one, modified_at=None)
        if self._happens("stale file"):
            return replace(one, size_bytes=(one.size_bytes or 0) + 1, modified_at=OLD - timedelta(days=1))
        return one

    def _deleter(self) -> object:
        watched = super()._deleter()
        assert callable(watched)

        def delete_many(table: Any, paths: Iterable[str]) -> Mapping[str, Removal]:
            batch = tuple(paths)
            if not self._happens("deleted by halves"):
                return watched(table, batch)
            half = len(batch) // 2
            told = watched(table, batch[:half])
            if self._happens("answer lost"):
                raise CatalogUnavailable("503 Slow Down")
            return {**told, **dict.fromkeys(batch[half:], Removal(Ended.FAILED, "503 Slow Down"))}

        return delete_many


def run(numbers: Iterable[int], directory: Path, totals: Counter[str]) -> None:
    """The random tables of these numbers in one warehouse."""
    catalog = make_catalog(directory)
    world = world_of(directory, catalog)
    try:
        for number in numbers:
            FaultySweep(world, make_site(catalog, number, directory), (), totals).run()
    finally:
        world.close()
        catalog.close()


def world_of(directory: Path, catalog: Catalog) -> SteppedWorld:
    """Services that may read and write below the directory."""
    (directory / "home").mkdir()
    properties = tuple(sorted({**catalog.properties, "type": "sql"}.items()))
    config = CatalogConfig(catalog.name, properties, (f"file://{directory}",))
    world = SteppedWorld(directory / "home", catalog, config=config)
    world.now = NOW
    return world
