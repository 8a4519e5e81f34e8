"""Random histories, and the cache of what was decoded of manifests."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.iceberg.manifest.manifest_cache import NO_MANIFESTS, ManifestReader, TableManifestCache
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.iceberg.scan import DEFAULT_SOURCES, ManifestSources, scan
from amoro_core.model.files import TableScan
from tests.engine import writer
from tests.engine.chance import seed_ids
from tests.iceberg.histories import CHANGES, random_lake
from tests.iceberg.looking import Reader, said, watched
from tests.model.lake import Lake
from tests.model.lake import row as lake_row
from tests.tiers import seeds

COMMITS, MOST = 12, 80
#: What histories must have met. Some take about ten of them.
WANTED = {
    *CHANGES,
    *(f"rewrite × format {version}" for version in (1, 2, 3)),
    *("conversions", "merged", "looks at the branch", "known", "read"),
}


def test_random_tables_are_seen_as_without_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """History after history until all that is wanted was met. `make prove` goes on with other seeds."""
    [seed] = seeds(1, 1)
    chance = random.Random(seed)
    seed_ids(monkeypatch, chance)
    seen: Counter[str] = Counter()
    for number in range(MOST):
        (place := tmp_path / str(number)).mkdir()
        seen += watched(random_lake(place, chance), chance, COMMITS)
        close_catalogs()
        if seen.keys() >= WANTED:
            break
    assert WANTED - seen.keys() == set(), seen


# What was decoded of manifests is kept in memory: a scan reads new ones alone, and says what one without it says


ROOM = 2**30


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.created(writer.make_catalog(tmp_path), partitioned=True)
    for number in range(3):
        made.append([lake_row(3 * number + at, part) for at, part in enumerate(("a", "b", None))])
    made.upsert([lake_row(1, "b", "new")])
    return made


def scanned(
    table: Table, sources: ManifestSources = DEFAULT_SOURCES, read: ManifestReader = read_manifest
) -> TableScan:
    found = scan(table.refresh(), [table.location()], read, sources=sources)
    assert found is not None
    return found


def uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def test_a_scan_reads_new_manifests_alone_of_either_content(lake: Lake) -> None:
    cached, first, second, third = ManifestSources(TableManifestCache(ROOM, 0)), Reader(), Reader(), Reader()
    plain = said(scanned(lake.table))
    assert said(scanned(lake.table, cached, first)) == plain
    assert said(scanned(lake.table, cached, second)) == plain
    assert (len(first.read), second.read) == (5, [])
    lake.append([lake_row(50, "c")])
    assert said(scanned(lake.table, cached, third)) == said(scanned(lake.table))
    assert third.read == [ManifestContent.DATA]


def test_small_tables_are_not_kept_nor_those_that_are_larger_than_the_memory(lake: Lake) -> None:
    for tables in (TableManifestCache(ROOM), TableManifestCache(1000, 0)):
        assert said(scanned(lake.table, ManifestSources(tables=tables))) == said(scanned(lake.table))
        assert tables.find(uuid(lake.table)) is NO_MANIFESTS


def test_the_least_recently_used_tables_are_forgotten(lake: Lake) -> None:
    tables = TableManifestCache(ROOM, 0)
    scanned(lake.table, ManifestSources(tables=tables))
    known = tables.find(uuid(lake.table))
    tight = TableManifestCache(int(2.5 * known.size_bytes), 0)
    for name in ("one", "two"):
        tight.keep(name, known)
    assert tight.find("one") is known
    tight.keep("three", known)
    assert [tight.find(name) is known for name in ("one", "two", "three")] == [True, False, True]
