"""What Iceberg's Java runtime reaches from any snapshot is in no batch of deletes; it is asked before each batch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import Table

from amoro_core.iceberg.guarding import Guard
from tests.engine.commits import Change, commit
from tests.iceberg import random_sweeps
from tests.iceberg.orphan_tables import Site, file_of, place_of

from .catalogs import SharedCatalog
from .java_writer import load_java_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Others than those of `tests/iceberg/test_random_sweeps.py`; `make prove` goes on after them.
FIRST, TABLES = 10_000, 4


class JavaReader:
    """The places of the files that Java reaches from all snapshots of a table: each state and manifest is read once."""

    def __init__(self, spark: SparkSession, catalog: str) -> None:
        self._spark, self._catalog = spark, catalog
        self._live: dict[str, frozenset[str]] = {}
        self._found: dict[str, set[str]] = {}  # by the location of the metadata
        self.asked = 0

    def __call__(self, table: Table) -> set[str]:
        self.asked += 1
        location = table.refresh().metadata_location
        if location not in self._found:
            self._found[location] = {place_of(path) for path in self._reached(table)}
        return self._found[location]

    def _reached(self, table: Table) -> set[str]:
        java = load_java_table(self._spark, self._catalog, ".".join(table.name()))
        util, io = java.iceberg.ReachableFileUtil, java.table.io()
        found = {
            *util.manifestListLocations(java.table),
            *util.metadataFileLocations(java.table, False),
            *util.statisticsFilesLocations(java.table),
        }
        for snapshot in java.table.snapshots():
            for manifest in snapshot.allManifests(io):
                path = manifest.path()
                if path not in self._live:
                    self._live[path] = frozenset(_live(java.iceberg, manifest, io, java.table.specs()))
                found.add(path)
                found |= self._live[path]
        return found


def _live(iceberg: Any, manifest: Any, io: Any, specs: Any) -> list[str]:
    """The paths of a manifest's live files."""
    files = iceberg.ManifestFiles
    of_data = manifest.content().toString() == "DATA"
    reader = (files.read if of_data else files.readDeleteManifest)(manifest, io, specs)
    try:
        return [str(file.location()) for file in reader.iterator()]
    finally:
        reader.close()


def test_no_file_that_java_reaches_is_in_any_batch(spark: SparkSession, catalog: SharedCatalog) -> None:
    totals: Counter[str] = Counter()
    swept_before_java(spark, catalog, range(FIRST, FIRST + TABLES), totals)
    assert totals["tables"] == TABLES
    assert min(totals["java asked"], totals["files deleted"]) > 10 * TABLES


def test_java_says_when_one_would_be(
    spark: SparkSession, catalog: SharedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody commits what was condemned, no guard speaks, and pyiceberg is not asked."""
    named = Site.named
    monkeypatch.setattr(Guard, "reachable", lambda self, paths: {})
    monkeypatch.setattr(Site, "named", lambda self, live=False: set() if live else named(self))
    monkeypatch.setattr(random_sweeps.Sweep, "_write", _commit_what_is_condemned)
    with pytest.raises(AssertionError, match="would be deleted"):
        swept_before_java(spark, catalog, range(FIRST, FIRST + 1), Counter())


def _commit_what_is_condemned(sweep: random_sweeps.Sweep) -> None:
    site = sweep.site
    path = next(path for path, what in site.orphans.items() if what == "data")
    commit(site.table, lambda head: Change((file_of(head, path),)))


def swept_before_java(spark: SparkSession, catalog: SharedCatalog, numbers: range, totals: Counter[str]) -> None:
    """The random tables of these numbers, expired, cleaned and emptied under Java's eyes."""
    reader = JavaReader(spark, catalog.name)
    random_sweeps.run_in(catalog.pyiceberg, numbers, catalog.root, totals, reader)
    totals["java asked"] += reader.asked
