"""Random tables for expiry: branches, tags, staged and rolled-back snapshots, files added again, all ages."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetPartitionStatisticsUpdate, SetStatisticsUpdate

from tests.engine import oracle, writer
from tests.engine.aging import DAY_MS, aged
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path

_PROPERTIES = (
    {},
    {"write.object-storage.enabled": "true"},
    {"history.expire.max-snapshot-age-ms": str(2 * DAY_MS)},
    {"history.expire.min-snapshots-to-keep": "3"},
    {"history.expire.max-ref-age-ms": str(8 * DAY_MS)},
)


def random_history(catalog: Catalog, name: str, chance: random.Random, operations: int = 9) -> Table:
    """A table after so many random operations, its snapshots of random ages, the older the earlier they were made."""
    version = chance.choice((1, 2, 2))
    table = writer.make_table(catalog, name, SCHEMA, BY_PART, version, chance.choice(_PROPERTIES))
    known: list[str] = []  # files that were live at any time
    writer.append(table, [row(number, "ab"[number % 2]) for number in range(4)], 2)
    for number in range(1, operations):
        known += [one.path for one in oracle.live_files(table) if one.content == 0]
        _operate(table, chance, number, version, known)
    ids = [one.snapshot_id for one in table.refresh().metadata.snapshots]
    ages = sorted((chance.uniform(0, 12) for _ in ids), reverse=True)
    return aged(table, dict(zip(ids, ages, strict=True)))


def _operate(table: Table, chance: random.Random, number: int, version: int, known: list[str]) -> None:
    branches = [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type == "branch"]
    some = chance.choice([one.snapshot_id for one in table.metadata.snapshots])
    live = [one.path for one in oracle.live_files(table) if one.content == 0]
    match chance.randrange(11):
        case 0 | 1:
            writer.append(table, [row(100 + number, chance.choice("ab"))], branch=chance.choice(branches))
        case 2 if version == 2:
            writer.upsert(table, [row(chance.randrange(4), "a", f"new {number}")], ["id"])
        case 3:
            remove = writer.delete_where if version == 2 else writer.copy_on_write
            remove(table, lambda record: record["id"] == chance.randrange(4))
        case 4 if live:
            writer.remove_files(table, [chance.choice(live)])
        case 5:
            retention = chance.choice(
                ({}, {"min_snapshots_to_keep": 2}, {"max_snapshot_age_ms": 3 * DAY_MS}, {"max_ref_age_ms": 6 * DAY_MS})
            )
            writer.create_branch(table, f"branch{number}", some, **retention)
        case 6:
            writer.create_tag(table, f"tag{number}", some, chance.choice((None, 5 * DAY_MS)))
        case 7:  # as staged: a snapshot of no branch
            writer.create_branch(table, "staging", some)
            writer.append(table, [row(200 + number)], branch="staging")
            table.catalog.commit_table(table.refresh(), (), (RemoveSnapshotRefUpdate(**{"ref-name": "staging"}),))
        case 8:
            writer.rollback(table, some)
        case 9 if gone := sorted(set(known) - set(live)):
            with suppress(ValueError):  # of another partition than the file's name says, perhaps
                table.refresh().add_files([chance.choice(gone)])
        case _:
            _with_statistics(table, some, number)
    table.refresh()


def _with_statistics(table: Table, snapshot_id: int, number: int) -> None:
    """Statistics of both kinds for a snapshot; one file of partition statistics serves two at times."""
    paths = [
        f"{table.location()}/metadata/{name}" for name in (f"{number}.stats", f"partition-stats-{number % 2}.parquet")
    ]
    for path in paths:
        Path(local_path(path)).write_bytes(b"statistics")
    said = {"snapshot-id": snapshot_id, "file-size-in-bytes": 10}
    puffin = StatisticsFile(
        **said, **{"statistics-path": paths[0], "file-footer-size-in-bytes": 1, "blob-metadata": []}
    )
    partitions = PartitionStatisticsFile(**said, **{"statistics-path": paths[1]})
    updates = (SetStatisticsUpdate(statistics=puffin), SetPartitionStatisticsUpdate(partition_statistics=partitions))
    table.catalog.commit_table(table.refresh(), (), updates)
