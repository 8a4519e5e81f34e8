"""Amoro's tests of its maintainers, test by test: ours of the same name below, what proves the same, or why not.

`TestDataExpire` is in `test_manifests_of_java`. The variants for Iceberg and Hive run the same tests on other tables.
"""

from __future__ import annotations

import os
from datetime import timedelta

from pyiceberg.table.statistics import StatisticsFile

from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.services.test_expiring import ids, made, whole
from tests.services.test_expiring import sweep as sweep_all
from tests.services.test_orphans import Place
from tests.services.world import World


def test_orphan_data_file_clean(place: Place) -> None:
    """Also in a folder of its own. It is young at first, and the rest of the table is read as before."""
    nested = place.put("data/testLocation/orphan.parquet")
    now = place.world.now.timestamp()
    for path in (nested, place.orphan):
        os.utime(path, (now, now))
    assert place.found() == []
    place.age()
    assert place.found() == sorted([place.orphan, nested])
    place.run()
    assert place.run("empty-trash").status is ProcessStatus.SUCCESS
    assert not any(os.path.exists(path) for path in (nested, place.orphan))
    assert all(os.path.exists(path.removeprefix("file://")) for path in place.live)


def test_orphan_metadata_file_clean(place: Place) -> None:
    orphans = [place.put(f"metadata/{name}") for name in ("orphan.avro", "snap-1-1-orphan.avro", "orphan.stats")]
    place.run()
    place.run("empty-trash")
    assert not any(os.path.exists(path) for path in orphans)
    whole(place.table)


def test_not_delete_statistics_file(place: Place) -> None:
    """Wherever they lie, as long as the metadata names them."""
    snapshots = place.table.refresh().metadata.snapshots
    paths = [place.put(below) for below in ("metadata/t1.puffin", "data/t2.puffin", "data/puffin/t3.puffin")]
    with place.table.update_statistics() as update:
        for snapshot, path in zip(snapshots, paths, strict=True):
            update.set_statistics(
                StatisticsFile(
                    **{
                        "snapshot-id": snapshot.snapshot_id,
                        "statistics-path": f"file://{path}",
                        "file-size-in-bytes": 3,
                        "file-footer-size-in-bytes": 1,
                        "blob-metadata": [],
                    }
                )
            )
    place.age()
    unnamed = place.put("data/puffin/t4.puffin")
    assert place.found() == sorted([place.orphan, unnamed])


def test_expire_table_files_repeatedly(world: World) -> None:
    """Files that were removed, added again by a later snapshot and removed again go once, with all that named them."""
    table = made(world, 2, {"maintenance.expire-snapshots.trash-keep": "0"})
    rows = [one.path for one in oracle.live_files(table)]
    for _ in range(2):
        writer.copy_on_write(table.refresh(), lambda one: one["id"] == 0, lambda one: one)
    head = ids(table)[-1]
    world.later(timedelta(days=30).total_seconds())
    begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    sweep_all(world)
    assert ids(table) == [head]
    whole(table)
    gone = [path for path in rows if not os.path.exists(path.removeprefix("file://"))]
    assert len(gone) == 1
