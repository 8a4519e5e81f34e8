"""Tables that many tests begin with: prepared once, and set back to how they were for each test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from tests.engine.writer import make_catalog
from tests.model.lake import NAME, ById, Lake


@dataclass(frozen=True, slots=True)
class _Saved:
    """A table at one moment; its files are never changed, so that its metadata file says everything."""

    catalog: SqlCatalog
    version: int
    metadata_location: str
    rows: dict[str, list[ById]]
    history: dict[int, list[ById]]


class Stages:
    """Prepared tables by name, each in a catalog of its own below the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._saved: dict[str, _Saved] = {}
        self._catalogs = ExitStack()

    def restored(self, name: str, prepare: Callable[[SqlCatalog], Lake]) -> Lake:
        """The table as it was when prepared; of two tests one must have ended before the other begins."""
        if name not in self._saved:
            catalog = make_catalog(self._directory / name)
            self._catalogs.callback(catalog.close)
            lake = prepare(catalog)
            self._saved[name] = _Saved(
                catalog, lake.version, lake.table.refresh().metadata_location, dict(lake.rows), dict(lake.history)
            )
        saved = self._saved[name]
        saved.catalog.drop_table(NAME)
        table = saved.catalog.register_table(NAME, saved.metadata_location)
        return Lake(saved.catalog, saved.version, table, dict(saved.rows), dict(saved.history))

    def close(self) -> None:
        self._catalogs.close()
