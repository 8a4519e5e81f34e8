"""What was decoded of manifests is kept in memory: a scan reads new ones alone, and says what one without it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from amoro_core.iceberg.manifest.manifest_cache import UNKNOWN, KnownTables, ManifestReader
from amoro_core.iceberg.manifest.reading import read_manifest
from amoro_core.iceberg.scan import NOTHING_KNOWN, Known, scan
from amoro_core.model.files import TableScan
from tests.engine import writer
from tests.iceberg.looking import Reader, said
from tests.model.lake import Lake, row

ROOM = 2**30


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.created(writer.make_catalog(tmp_path), partitioned=True)
    for number in range(3):
        made.append([row(3 * number + at, part) for at, part in enumerate(("a", "b", None))])
    made.upsert([row(1, "b", "new")])
    return made


def scanned(table: Table, known: Known = NOTHING_KNOWN, read: ManifestReader = read_manifest) -> TableScan:
    found = scan(table.refresh(), [table.location()], read, known=known)
    assert found is not None
    return found


def uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def test_a_scan_reads_new_manifests_alone_of_either_content(lake: Lake) -> None:
    known, first, second, third = Known(tables=KnownTables(ROOM, 0)), Reader(), Reader(), Reader()
    plain = said(scanned(lake.table))
    assert said(scanned(lake.table, known, first)) == plain
    assert said(scanned(lake.table, known, second)) == plain
    assert (len(first.read), second.read) == (5, [])
    lake.append([row(50, "c")])
    assert said(scanned(lake.table, known, third)) == said(scanned(lake.table))
    assert third.read == [ManifestContent.DATA]


def test_small_tables_are_not_kept_nor_those_that_are_larger_than_the_memory(lake: Lake) -> None:
    for tables in (KnownTables(ROOM), KnownTables(1000, 0)):
        assert said(scanned(lake.table, Known(tables=tables))) == said(scanned(lake.table))
        assert tables.find(uuid(lake.table)) is UNKNOWN


def test_the_least_recently_used_tables_are_forgotten(lake: Lake) -> None:
    tables = KnownTables(ROOM, 0)
    scanned(lake.table, Known(tables=tables))
    known = tables.find(uuid(lake.table))
    tight = KnownTables(int(2.5 * known.size_bytes), 0)
    for name in ("one", "two"):
        tight.keep(name, known)
    assert tight.find("one") is known
    tight.keep("three", known)
    assert [tight.find(name) is known for name in ("one", "two", "three")] == [True, False, True]
